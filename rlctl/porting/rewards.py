"""The reward of a run: a user's code that an adapter can call in the target, or the reason why none can."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.common.errors import Location
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.reward_signatures import BATCH_ARGUMENTS, takes
from rlctl.config.sections.rewards import ExternalReward, FunctionReward, RuleReward
from rlctl.porting.code import Code, code_of, parsed, registered

DEFAULT_MODULE, DEFAULT = "verl.utils.reward_score", "default_compute_score"
"""What scores in verl by data source if the config names no function."""
PACKAGE = "pkg://"
SERVED = ("reward_router_address", "reward_model_tokenizer")


@record
class Ported:
    """A reward that an adapter calls."""

    kind: str
    """``verl``: a function that verl calls; ``trinity``: a class that Trinity-RFT registers."""
    name: str
    """Of the function, or the name that the class is registered by."""
    code: Code
    settings: Mapping[str, Any]
    """What the adapter and the proof need, by the names of their templates."""


@record
class Stub:
    """A reward that is not ported."""

    reason: str
    at: Location | None = None


SIMPLE = ("simple_workflow", "math_workflow", "async_simple_workflow", "async_math_workflow")
"""Workflows of Trinity-RFT that send the prompt of a row and call the reward function, and do nothing else."""


def own_prompts(keys: Mapping[str, Any]) -> Stub | None:
    """Why a run of Trinity-RFT sends other prompts than its rows and config say; None if it does not.

    Args:
        keys: the keys of its config with their values.
    """
    for key, value in keys.items():
        last = key.rpartition(".")[2]
        if last == "default_workflow_type" and value and value not in SIMPLE:
            return Stub(said("the workflow {name} makes prompts or rewards of its own", name=value))
        if last == "reply_prefix" and value:
            return Stub(said("{key} starts each response, which verl cannot do", key=key))
    return None


def reward_of(config: Config, framework: str, plugins: Path | None, here: Path) -> Ported | Stub:
    """The reward of a run.

    Args:
        config: of the run.
        framework: that the run is written for.
        plugins: the folder of a Trinity-RFT run's plug-ins.
        here: the folder in which the run is started, from which paths and imports start.
    """
    if config.rollout.default_agent not in (None, "single_turn") or config.rollout.agents:
        return Stub("the run has agents or a workflow of its own: a port moves single-turn runs")
    if config.data.custom is not None:
        return Stub("the run has a dataset class of its own, which changes rows when it runs")
    if len(config.rewards) != 1:
        return Stub(said("the run has {count} rewards; a port moves one", count=len(config.rewards)))
    [reward] = config.rewards
    if framework == "verl" and isinstance(reward, FunctionReward):
        return _of_verl(config, reward, here)
    if framework == "verl" and isinstance(reward, RuleReward) and reward.rule == "auto" and not reward.args:
        return _called(config, Code((), ("verl",), ()), DEFAULT, {}, module=DEFAULT_MODULE)
    if framework == "trinity" and isinstance(reward, ExternalReward):
        return _of_trinity(config, reward, plugins, here)
    what = reward.kind if isinstance(reward, ExternalReward) else reward.type_name
    return Stub(
        said("a port does not move a reward of the kind {kind} of {framework} yet", kind=what, framework=framework)
    )


def _of_verl(config: Config, reward: FunctionReward, here: Path) -> Ported | Stub:
    if reward.path.startswith(PACKAGE):
        module = reward.path.removeprefix(PACKAGE).replace("/", ".").removesuffix(".py")
        code = Code((), (module.partition(".")[0],), ())
        return _called(config, code, reward.function, reward.args, module=module)
    file = here / Path(reward.path.removeprefix("file://")).expanduser()
    if not file.is_file():
        return Stub(said("there is no file {path}", path=file))
    node = _function(file, reward.function)
    if node is not None and set(BATCH_ARGUMENTS) & takes(node).names:
        return Stub("the function scores a batch of responses at once")
    if node is not None and set(SERVED) & takes(node).required:
        return Stub("the function asks a reward model that verl serves")
    code = code_of(file, [here])
    if code.secrets:
        return Stub("the file of the reward holds a key, a token or a password; it is not copied", code.secrets[0])
    return _called(config, code, reward.function, reward.args)


def _called(
    config: Config, code: Code, name: str, args: Mapping[str, Any], *, module: str | None = None
) -> Ported | Stub:
    """A function that is called as verl's reward managers call it."""
    manager = config.reward_loop.manager
    if manager not in ("naive", "dapo"):
        return Stub(said("the reward manager {manager} calls the function in another way", manager=manager))
    penalty = config.algorithm.reward_shaping.overlong_penalty
    overlong = None
    if penalty is not None and manager == "dapo":
        limit = penalty.limit or config.rollout.max_response_tokens
        overlong = {"buffer": penalty.buffer, "limit": limit, "factor": penalty.factor}
    settings = {
        "FILE": str(code.files[0][1]) if code.files else None,
        "MODULE": module,
        "FUNCTION": name,
        "ARGUMENTS": dict(args),
        "SOURCE_COLUMN": config.data.train[0].source_key or "data_source",
        "MANAGER": manager,
        "OVERLONG": overlong,
    }
    return Ported("verl", name, code, settings)


def _function(file: Path, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    tree = parsed(file, file.read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((node for node in found if node.name == name), None)


def _of_trinity(config: Config, reward: ExternalReward, plugins: Path | None, here: Path) -> Ported | Stub:
    if plugins is None:
        return Stub(said("the reward {name} is in a plug-in; name its folder with --plugin-dir", name=reward.kind))
    file = registered(here / plugins, reward.kind)
    if file is None:
        return Stub(said("no file in {folder} registers the reward {name}", folder=plugins, name=reward.kind))
    code = code_of(file, [here / plugins, here])
    if code.secrets:
        return Stub("the file of the reward holds a key, a token or a password; it is not copied", code.secrets[0])
    settings = {
        "FILE": str(code.files[0][1]),
        "NAME": reward.kind,
        "ARGUMENTS": dict(reward.args),
        "ANSWER_COLUMN": config.data.train[0].answer_key or "answer",
    }
    return Ported("trinity", reward.kind, code, settings)
