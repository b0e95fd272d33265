"""The reward of a run: a user's code or a rule that an adapter can call in the target, or the reason why none can."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.common.errors import Location, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.reward_signatures import BATCH_ARGUMENTS, Parameters, form_of
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.rewards import ExternalReward, FunctionReward, Reward, RuleReward
from rlctl.porting.code import Code, called, class_at, code_of, imported_from, merged, registered, strings_of
from rlctl.porting.rows import ANSWERS

DEFAULT_MODULE, DEFAULT = "verl.utils.reward_score", "default_compute_score"
"""What scores in verl by data source if the config names no function."""
PACKAGE = "pkg://"
SERVED = ("reward_router_address", "reward_model_tokenizer")
MANAGERS = ("naive", "dapo", "batch", "prime")
UNKNOWN = ("prompt", "messages", "truncated", "conversation", "tool_calls", "turn_rewards", "info", "stop")
"""What a function of rlctl can take and no other framework tells."""
BY_DOMAIN = "roll"
"""The framework that gives a row one reward, by its domain."""
OF_ROLL = frozenset(
    {
        "roll.configs.worker_config.WorkerConfig",
        "roll.distributed.executor.worker.Worker",
        "roll.distributed.scheduler.decorator.Dispatch",
        "roll.distributed.scheduler.decorator.register",
        "roll.distributed.scheduler.protocol.DataProto",
        "roll.models.model_providers.default_tokenizer_provider",
        "roll.models.model_providers.default_reward_model_provider",
        "roll.pipeline.rlvr.rlvr_config.RewardConfig",
        "roll.utils.logging.get_logger",
        "roll.utils.context_managers.state_offload_manger",
        "roll.distributed.strategy.factory.create_strategy",
        "roll.distributed.strategy.strategy.InferenceStrategy",
        "roll.distributed.strategy.strategy.TrainStrategy",
    }
)
"""Names of ROLL for which ``roll_reward.py`` has a substitute."""
OF_TRINITY = frozenset(
    f"trinity.common.rewards{module}.{name}"
    for module in ("", ".reward_fn")
    for name in ("REWARD_FUNCTIONS", "RewardFn")
)
"""Names of Trinity-RFT for which ``trinity_reward.py`` has a substitute."""
SLOW = ("math", "geo3k", "auto")
"""Rules that limit their time by a signal."""
SIGNALS = ("signal", "math_verify", "timeout_decorator")
"""Modules by which code limits its time."""
COUNTS = ("attention_mask", "response_mask")
"""Tensors from which a worker learns how many tokens a response has."""


@record
class Part:
    """One reward of a run as an adapter calls it."""

    module: str
    """The file of the folder that has its class."""
    class_name: str
    name: str
    """Of the function, class or rule."""
    settings: Mapping[str, Any]
    """Keyword arguments of the class."""
    reward: Reward

    @property
    def text(self) -> str:
        """The call that makes it, as Python."""
        given = [repr(self.name), *(f"{key}={value!r}" for key, value in self.settings.items())]
        return f"{self.class_name}({', '.join(given)})"


@record
class Ported:
    """A reward that an adapter calls."""

    source: str
    """The framework of the run."""
    parts: tuple[Part, ...]
    code: Code
    """All files of the user that the parts call."""
    overlong: Mapping[str, float] | None = None
    """The penalty of long responses, in tokens."""
    labels: tuple[str, ...] = ()
    """Columns by which rows choose among several rewards."""

    @property
    def main_thread(self) -> bool:
        """Whether it may limit its time by a signal."""
        slow = any(part.module == "roll_reward" or part.name in SLOW for part in self.parts)
        return slow or bool(set(SIGNALS) & {*self.code.packages, *self.code.standard})

    @property
    def name(self) -> str:
        """The names of all parts."""
        return ", ".join(dict.fromkeys(part.name for part in self.parts))


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
            return Stub(said("{key} starts each response, which only Trinity-RFT can do", key=key))
    return None


@record
class Run:
    """What a reward is looked for in."""

    config: Config
    framework: str
    """That the run is written for."""
    plugins: Path | None
    """The folder of plug-ins, or a checkout that has the reward's file."""
    here: Path
    """The folder in which the run is started, from which paths and imports start."""
    target: str
    sources: frozenset[str]
    """Data sources of the rows."""

    @property
    def data(self) -> DataSource:
        """The first source of rows; all have the same columns."""
        return self.config.data.train[0]

    @property
    def roots(self) -> list[Path]:
        """Where files of the run are looked for."""
        return [*([self.here / self.plugins] if self.plugins else []), self.here]

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the answer and the data source, as adapters name them."""
        answers = (self.data.answer_key,) if self.data.answer_key else ANSWERS[:3]
        return {"answers": answers, "source": self.data.source_key}


def reward_of(
    config: Config,
    framework: str,
    plugins: Path | None,
    here: Path,
    *,
    target: str = "",
    sources: frozenset[str] = frozenset(),
) -> Ported | Stub:
    """The reward of a run.

    Args:
        config: of the run.
        framework: that the run is written for.
        plugins: the folder of a Trinity-RFT run's plug-ins, or of a ROLL run's workers.
        here: the folder in which the run is started, from which paths and imports start.
        target: the framework to which it is ported.
        sources: the data sources of its rows.
    """
    run = Run(config, framework, plugins, here, target, sources)
    if (stub := _refused(run)) is not None:
        return stub
    parts, codes = [], []
    for reward in config.rewards:
        found = _part_of(run, reward)
        if isinstance(found, Stub):
            return found
        parts.append(found[0])
        codes.append(found[1])
    code = merged(codes)
    if isinstance(code, str):
        return Stub(said("two files of rewards have the name {name}", name=code))
    if code.secrets:
        return Stub("the file of the reward holds a key, a token or a password; it is not copied", code.secrets[0])
    labels = tuple(column for column in (run.data.source_key, run.data.tag_key) if column)
    return Ported(framework, tuple(parts), code, _overlong(run), labels)


def _refused(run: Run) -> Stub | None:
    """What forbids every reward of a run."""
    config = run.config
    if config.rollout.default_agent not in (None, "single_turn") or config.rollout.agents:
        return Stub("the run has agents or a workflow of its own: a port moves single-turn runs")
    if config.data.custom is not None:
        return Stub("the run has a dataset class of its own, which changes rows when it runs")
    if not config.rewards:
        return Stub("the run has no reward")
    if run.framework == "verl" and len(config.rewards) > 1:
        return Stub(said("the run has {count} rewards; a port moves one", count=len(config.rewards)))
    if run.framework == "trinity" and len(config.rewards) > 1:
        return Stub("task sets of the run have rewards of their own; a port moves one for all")
    if any(source.reward or source.reward_args for source in config.data.train):
        return Stub("a dataset of the run names its reward or the reward's arguments; a port moves one for all")
    return None


def _overlong(run: Run) -> dict[str, float] | None:
    """The penalty that an adapter takes off, because the target has no key for it or another one."""
    penalty = run.config.algorithm.reward_shaping.overlong_penalty
    if penalty is None or run.target in ("verl", "rlctl"):
        return None
    if run.framework == "verl" and run.config.reward_loop.manager != "dapo":
        return None
    limit = penalty.limit or run.config.rollout.max_response_tokens
    return {"buffer": penalty.buffer, "limit": limit, "factor": penalty.factor}


_Found = tuple[Part, Code] | Stub


def _part_of(run: Run, reward: Reward) -> _Found:
    if isinstance(reward, RuleReward):
        return _rule(run, reward)
    if isinstance(reward, FunctionReward):
        return _of_verl(run, reward) if run.framework == "verl" else _own(run, reward)
    if isinstance(reward, ExternalReward) and run.framework == "trinity":
        return _of_trinity(run, reward)
    if isinstance(reward, ExternalReward) and run.framework == "roll":
        return _of_roll(run, reward)
    what = reward.kind if isinstance(reward, ExternalReward) else reward.type_name
    return Stub(
        said("a port does not move a reward of the kind {kind} of {framework} yet", kind=what, framework=run.framework)
    )


def _rule(run: Run, reward: RuleReward) -> _Found:
    """A rule of rlctl, which scores as the built-in one of the source; verl's default itself where no rule does."""
    if reward.rule == "auto" and run.framework == "verl" and not _known(run.sources):
        return _verl_part(run, reward, DEFAULT, Code((), ("verl",), ()), module=DEFAULT_MODULE)
    if reward.rule == "length" and run.target == "verl":
        return Stub("the rule length counts tokens, of which verl tells its reward functions nothing")
    settings = {"arguments": dict(reward.args), "right": reward.score_right, "wrong": reward.score_wrong, **run.columns}
    if run.framework == "roll":
        settings["half"] = True
    packages = {"math": ("math_verify",), "geo3k": ("mathruler",), "ifeval": ("langdetect",)}.get(reward.rule, ())
    return Part("rule_reward", "Rule", reward.rule, settings, reward), Code((), packages, ())


def _known(sources: frozenset[str]) -> bool:
    """Whether rules of rlctl score all data sources as verl's default does."""
    from rlctl.runtime.rewards.rules import auto_rule

    try:
        return bool(sources) and all(auto_rule(source).rule != "geo3k" for source in sources)
    except RunError:
        return False


def _of_verl(run: Run, reward: FunctionReward) -> _Found:
    if reward.path.startswith(PACKAGE):
        return _verl_part(run, reward, reward.function, _package(reward), reward.args, module=_module(reward))
    file = run.here / Path(reward.path.removeprefix("file://")).expanduser()
    if not file.is_file():
        return Stub(said("there is no file {path}", path=file))
    parameters = called(file, reward.function)
    batch = run.config.reward_loop.manager == "batch"
    if parameters is not None and set(BATCH_ARGUMENTS) & parameters.names and not batch:
        return Stub("the function scores a batch of responses at once")
    if parameters is not None and set(SERVED) & parameters.required:
        return Stub("the function asks a reward model that verl serves")
    code = code_of(file, [run.here])
    return _verl_part(run, reward, reward.function, code, reward.args)


def _module(reward: FunctionReward) -> str:
    return reward.path.removeprefix(PACKAGE).replace("/", ".").removesuffix(".py")


def _package(reward: FunctionReward) -> Code:
    return Code((), (_module(reward).partition(".")[0],), ())


def _verl_part(
    run: Run, reward: Reward, name: str, code: Code, args: Mapping[str, Any] | None = None, *, module: str | None = None
) -> _Found:
    """A function that is called as verl's reward managers call it."""
    manager = run.config.reward_loop.manager
    if manager not in MANAGERS:
        return Stub(said("the reward manager {manager} calls the function in another way", manager=manager))
    where = {"file": str(code.files[0][1])} if module is None else {"module": module}
    settings = {**where, "arguments": dict(args or {}), "source_column": run.data.source_key or "data_source"}
    return Part("verl_reward", "VerlFunction", name, {**settings, "manager": manager}, reward), code


def _own(run: Run, reward: FunctionReward) -> _Found:
    """A function of a run of rlctl."""
    if reward.path.startswith(PACKAGE):
        where, code, parameters = {"module": _module(reward)}, _package(reward), None
    else:
        file = run.here / Path(reward.path.removeprefix("file://")).expanduser()
        if not file.is_file():
            return Stub(said("there is no file {path}", path=file))
        where, code, parameters = {"file": file.name}, code_of(file, [run.here]), called(file, reward.function)
    form = reward.signature if reward.signature != "auto" else form_of(parameters) if parameters else None
    if form is None:
        return Stub(said("the form of {name} is not known: set its signature", name=reward.function))
    parameters = parameters or Parameters(frozenset(), anything=True)
    if asked := sorted(set(UNKNOWN) & parameters.names if form in ("rlctl", "roll", "trinity") else ()):
        return Stub(said("the function takes {names}, which only rlctl tells", names=", ".join(asked)))
    if run.target == "verl" and {"tokens", "response_token"} & parameters.names:
        return Stub("the function counts tokens, of which verl tells its reward functions nothing")
    if form == "verl" and "solution_strs" in parameters.names:
        form = "verl_batch"
    known = None if parameters.anything else tuple(sorted(parameters.names))
    more = {"takes": known, "form": form, "arguments": dict(reward.args)}
    settings = {**where, **more, **run.columns, "tag": run.data.tag_key, "extra": run.data.extra_key}
    return Part("rlctl_reward", "OwnFunction", reward.function, settings, reward), code


def _of_trinity(run: Run, reward: ExternalReward) -> _Found:
    if run.plugins is None:
        return Stub(said("the reward {name} is in a plug-in; name its folder with --plugin-dir", name=reward.kind))
    file = registered(run.here / run.plugins, reward.kind)
    if file is None:
        return Stub(said("no file in {folder} registers the reward {name}", folder=run.plugins, name=reward.kind))
    code = code_of(file, run.roots)
    if unknown := sorted(imported_from(code, "trinity") - OF_TRINITY):
        return Stub(
            said("the file of the reward imports {names}, which only Trinity-RFT has", names=", ".join(unknown))
        )
    answer = run.data.answer_key or "answer"
    settings = {"file": str(code.files[0][1]), "arguments": dict(reward.args), "answer": answer}
    return Part("trinity_reward", "TrinityReward", reward.kind, settings, reward), code


def _of_roll(run: Run, reward: ExternalReward) -> _Found:
    file = next((file for root in run.roots if (file := class_at(root, reward.kind))), None)
    if file is None:
        if reward.kind.startswith("roll."):
            return Stub(said("the worker {name} of ROLL has no counterpart here", name=reward.kind))
        return Stub(
            said("no file of {name} was found; name the folder of its module with --plugin-dir", name=reward.kind)
        )
    code = code_of(file, run.roots)
    if unknown := sorted(imported_from(code, "roll") - OF_ROLL):
        return Stub(said("the file of the worker imports {names}, which only ROLL has", names=", ".join(unknown)))
    if counted := sorted(set(COUNTS) & strings_of(file)):
        return Stub(said("the worker reads {names}: it counts tokens", names=", ".join(counted)))
    settings = {"file": str(code.files[0][1]), "settings": dict(reward.args)}
    return Part("roll_reward", "RollWorker", reward.kind.rpartition(".")[2], settings, reward), code
