"""Rules on what a run reads: model, data, rewards, and the paths that are local."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import PlanError, closest
from rlctl.common.filenames import expanded, is_there
from rlctl.config import Config
from rlctl.config.sections.algorithm import FunctionOperator
from rlctl.config.sections.data import FunctionDataOperator
from rlctl.config.sections.rewards import FunctionReward, JudgeReward, ModelReward
from rlctl.config.sections.train import Megatron
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.auxiliaries import check_auxiliaries

DATA_ENDINGS = (".parquet", ".json", ".jsonl", ".csv", ".arrow", ".py", ".jinja")


def present(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A model, data and rewards are named."""
    if not config.model.path and (arithmetic.trains(config) or arithmetic.needs_rollout(config)):
        yield problem("no-model", ("model", "path"))
    if config.run.mode == "evaluate_only" and not config.data.eval:
        yield problem("no-data_evaluation", ("data", "eval"))
    elif config.run.mode in ("full", "rollout_only") and not config.data.train:
        yield problem("no-data", ("data", "train"))
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            if not source.path and source.format != "episodes":
                key: KeyPath = ("data", name, index, "path")
                yield problem("no-data_path", key)
    mode = "full" if arithmetic.fills_buffer(config) else config.run.mode
    scored = config.algorithm.objective.choice in ("rl", "mix") and mode in ("full", "evaluate_only")
    if scored and not config.rewards and not arithmetic.agent_rewards(config):
        yield problem("no-reward", ("rewards",))


def reward_names(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Rewards can be told apart in metrics."""
    for name, count in Counter(reward.name for reward in config.rewards).items():
        if count > 1:
            yield problem("reward-names", ("rewards",), count=count, name=name)


def domain_weights(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Domains are those of rewards, and nothing else mixes the data."""
    data, names, key = config.data, [reward.name for reward in config.rewards], ("data", "domain_weights")
    if not data.domain_weights:
        return
    if config.algorithm.objective.choice in ("sft", "dpo"):
        yield problem("domain-weights_objective", key, objective=config.algorithm.objective.choice)
        return
    for name in data.domain_weights:
        if name not in names:
            known = ", ".join(names) or "none"
            yield problem("domain-weights", (*key, name), name=name, known=known, near=closest(name, names) or "none")
    if data.mixing != "concatenate":
        yield problem("domain-weights_mixing", ("data", "mixing"), value=data.mixing)
    for index, source in enumerate(data.train):
        if source.weight != 1:
            yield problem("domain-weights_source", ("data", "train", index, "weight"), value=source.weight)


def judges(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A judge has a model; one that the run serves has devices, and is the only one."""
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, JudgeReward) and not reward.model and reward.auxiliary_model is None:
            yield problem("judge-model", ("rewards", index, "model"), name=reward.name)
    try:
        arithmetic.judge_devices(config)
    except PlanError as error:
        yield problem("judge-model_devices", ("rewards",), reason=error.message, advice=error.hint)
    try:
        check_auxiliaries(config, surroundings.cluster.device if surroundings.cluster is not None else None)
        arithmetic.auxiliary_devices(config)
    except PlanError as error:
        yield problem("auxiliary-models", ("rollout", "auxiliary_models"), reason=error.message, advice=error.hint)


def data_juicer(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Operators of Data-Juicer have a service."""
    service = config.service.data_juicer
    if arithmetic.uses_data_juicer(config) and (service is None or not (service.url or service.auto_start)):
        yield problem("no-data-juicer", ("service", "data_juicer"))
    if service is None or not service.url:  # the files of a service elsewhere are on its machine
        for key, args in arithmetic.data_juicer_operators(config):
            file = args.get("config_path")
            if isinstance(file, str) and not is_there(expanded(file)):
                yield problem("path-missing", (*key, "args", "config_path"), path=file)


def paths(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Files and folders that are local exist."""
    for key, path in _paths(config):
        if not path or "://" in path:
            continue
        if is_there(expanded(path)):
            continue
        if looks_local(path):
            yield problem("path-missing", key, path=path)
        else:
            yield problem("hub-name", key, path=path)


def _paths(config: Config) -> Iterator[tuple[KeyPath, str]]:
    yield ("model", "path"), config.model.path
    yield ("model", "tokenizer"), config.model.tokenizer or ""
    for role, section in (("reference", config.reference), ("critic", config.critic)):
        if section is not None and section.model is not None:
            yield (role, "model", "path"), section.model.path
    for name, engine in (
        ("train", config.train.engine),
        ("critic", config.critic and config.critic.engine),
        ("reference", config.reference.engine),
    ):
        if isinstance(engine, Megatron):
            yield (name, "engine", "checkpoint_path"), engine.checkpoint_path or ""
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            if index or name != "train" or not config.data.operators_input:
                yield ("data", name, index, "path"), source.path
    for index, operator in enumerate(config.algorithm.experience_operators):
        if isinstance(operator, FunctionOperator):
            yield ("algorithm", "experience_operators", index, "path"), operator.path
    for index, file in enumerate(config.data.operators_input):
        yield ("data", "operators_input", index), file
    for index, each in enumerate(config.data.operators):
        if isinstance(each, FunctionDataOperator):
            yield ("data", "operators", index, "path"), each.path
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, FunctionReward):
            yield ("rewards", index, "path"), reward.path
        if isinstance(reward, ModelReward):
            yield ("rewards", index, "path"), reward.path
        if arithmetic.is_served_here(reward):
            yield ("rewards", index, "model"), getattr(reward, "model", "")
    for index, model in enumerate(config.rollout.auxiliary_models):
        if model.base_url is None:
            yield ("rollout", "auxiliary_models", index, "path"), model.path


def looks_local(path: str) -> bool:
    """Whether a path can only mean a file or folder: a hub name is ``owner/name`` and has no ending of a file."""
    return path.startswith(("/", ".", "~")) or path.count("/") > 1 or path.endswith(DATA_ENDINGS)


RULES = (present, reward_names, domain_weights, judges, data_juicer, paths)
