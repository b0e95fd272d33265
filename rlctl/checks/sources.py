"""Rules on what a run reads: model, data, rewards, and the paths that are local."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.errors import PlanError
from rlctl.common.filenames import expanded, is_there
from rlctl.config import Config
from rlctl.config.sections.rewards import FunctionReward, JudgeReward, ModelReward
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

DATA_ENDINGS = (".parquet", ".json", ".jsonl", ".csv", ".arrow", ".py", ".jinja")


def present(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A model, data and rewards are named."""
    if not config.model.path and (arithmetic.trains(config) or arithmetic.needs_rollout(config)):
        yield Problem("no-model", ("model", "path"), "model.path is not set", "name a folder, or a model on the hub")
    if config.run.mode == "evaluate_only" and not config.data.eval:
        yield Problem(
            "no-data", ("data", "eval"), "the run only evaluates, and data.eval is empty", "add a source to data.eval"
        )
    elif config.run.mode in ("full", "rollout_only") and not config.data.train:
        yield Problem("no-data", ("data", "train"), "data.train is empty", "add a source: {path: train.parquet}")
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            if not source.path:
                key: KeyPath = ("data", name, index, "path")
                yield Problem("no-data", key, f"source {index + 1} of data.{name} has no path", "set its path")
    mode = "full" if arithmetic.fills_buffer(config) else config.run.mode
    scored = config.algorithm.objective.choice in ("rl", "mix") and mode in ("full", "evaluate_only")
    if scored and not config.rewards:
        yield Problem("no-reward", ("rewards",), "no reward scores the responses", "add one: {type: rule}")


def reward_names(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Rewards can be told apart in metrics."""
    for name, count in Counter(reward.name for reward in config.rewards).items():
        if count > 1:
            yield Problem(
                "reward-names", ("rewards",), f"{count} rewards are called {name!r}", "give each a name of its own"
            )


def judges(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A judge has a model; one that the run serves has devices, and is the only one."""
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, JudgeReward) and not reward.model:
            yield Problem(
                "judge-model",
                ("rewards", index, "model"),
                f"the judge {reward.name!r} has no model",
                "name it as the endpoint does, or, without base_url, as a folder or on the hub",
            )
    try:
        arithmetic.judge_devices(config)
    except PlanError as error:
        yield Problem("judge-model", ("rewards",), error.message, error.hint)


def paths(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Files and folders that are local exist."""
    for key, path, what in _paths(config):
        if not path or "://" in path:
            continue
        if is_there(expanded(path)):
            continue
        if looks_local(path):
            hint = "correct the path; a relative one is taken from the folder that rlctl runs in"
            yield Problem("path-missing", key, f"{what} {path} does not exist here", hint)
        else:
            yield Problem("hub-name", key, f"{what} {path} is not here; it is taken for a name on a hub")


def _paths(config: Config) -> Iterator[tuple[KeyPath, str, str]]:
    yield ("model", "path"), config.model.path, "the model"
    yield ("model", "tokenizer"), config.model.tokenizer or "", "the tokenizer"
    for role, section in (("reference", config.reference), ("critic", config.critic)):
        if section is not None and section.model is not None:
            yield (role, "model", "path"), section.model.path, f"the {role}'s model"
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            yield ("data", name, index, "path"), source.path, "the data"
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, FunctionReward):
            yield ("rewards", index, "path"), reward.path, "the reward's file"
        if isinstance(reward, ModelReward):
            yield ("rewards", index, "path"), reward.path, "the reward model"
        if arithmetic.is_served_here(reward):
            yield ("rewards", index, "model"), getattr(reward, "model", ""), "the judge"


def looks_local(path: str) -> bool:
    """Whether a path can only mean a file or folder: a hub name is ``owner/name`` and has no ending of a file."""
    return path.startswith(("/", ".", "~")) or path.count("/") > 1 or path.endswith(DATA_ENDINGS)


RULES = (present, reward_names, judges, paths)
