"""A config in a dozen lines: what is trained on what, how, and where; each line with the fields that it is made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlctl.common.language import later
from rlctl.config import Config
from rlctl.config.chinese import in_words
from rlctl.config.sections.algorithm import PolicyLoss
from rlctl.config.sections.rewards import FunctionReward, JudgeReward, ModelReward, Reward, RuleReward
from rlctl.documents import KeyPath
from rlctl.editing.values import NULL, text_of
from rlctl.planning import arithmetic
from rlctl.tui.language import plural, say

SEPARATOR = " · "


@dataclass(frozen=True, slots=True)
class Item:
    """One line: its name, what it says, and its fields, of which the first is where it is edited."""

    name: str
    text: str
    paths: tuple[KeyPath, ...]


def items(config: Config) -> Iterator[Item]:
    """The lines of a config, without the flow of its batch; a line that the objective has no use for is left out."""
    yield _model(config)
    yield _data(config)
    yield _objective(config)
    yield from _lengths(config)
    if arithmetic.needs_rollout(config):
        yield _sampling(config)
    if arithmetic.scores(config):
        yield Item(say("rewards"), " + ".join(map(_reward, config.rewards)), (("rewards",),))
    if arithmetic.trains(config):
        yield _learning_rate(config)
        if config.algorithm.objective.choice in ("rl", "mix"):
            yield _kl(config)
    yield _schedule(config)
    yield _devices(config)
    yield _engines(config)
    if config.stages:
        names = [str(stage.get("name", number)) for number, stage in enumerate(config.stages, start=1)]
        yield Item(say("stages"), " → ".join(names), (("stages",),))


def _model(config: Config) -> Item:
    model = config.model
    parts = [model.path or say("not set")]
    if model.lora is not None:
        parts.append(f"LoRA r={model.lora.rank}")
    return Item(say("model"), SEPARATOR.join(parts), (("model", "path"), ("model", "lora")))


def _data(config: Config) -> Item:
    train, held_out = config.data.train, config.data.eval
    told = [_paths([each.path for each in train]) or say("not set")]
    if held_out:
        told.append(say("evaluation {paths}").format(paths=_paths([each.name or each.path for each in held_out])))
    return Item(say("data"), SEPARATOR.join(told), (("data", "train"), ("data", "eval")))


def _paths(paths: list[str]) -> str:
    """The first path, and how many more there are."""
    more = say(" and {count} more").format(count=len(paths) - 1) if len(paths) > 1 else ""
    return f"{paths[0]}{more}" if paths else ""


def _objective(config: Config) -> Item:
    algorithm = config.algorithm
    parts = [algorithm.objective.type_name]
    if algorithm.objective.choice in ("rl", "mix"):
        parts += [algorithm.advantage.type_name, algorithm.policy_loss.type_name + _clip(algorithm.policy_loss)]
    if algorithm.distillation is not None:
        parts.append(say("teacher {path}").format(path=algorithm.distillation.teacher))
    names = ("objective", "advantage", "policy_loss", "distillation")
    return Item(say("objective"), SEPARATOR.join(parts), tuple(("algorithm", name) for name in names))


def _clip(loss: PolicyLoss) -> str:
    """How far the ratio may leave 1, downwards and upwards."""
    low, high = getattr(loss, "clip_low", None), getattr(loss, "clip_high", None)
    return "" if low is None or high is None else f" {low:g} / {high:g}"


def _lengths(config: Config) -> Iterator[Item]:
    data = config.data
    if not arithmetic.needs_rollout(config) and data.max_sequence_tokens is not None:
        yield Item(say("sequence ≤"), _tokens(data.max_sequence_tokens), (("data", "max_sequence_tokens"),))
        return
    prompt = SEPARATOR.join((_tokens(data.max_prompt_tokens), _overlong(data.overlong_prompts)))
    yield Item(say("prompt ≤"), prompt, (("data", "max_prompt_tokens"), ("data", "overlong_prompts")))
    if arithmetic.needs_rollout(config):
        yield Item(
            say("response ≤"), _tokens(config.rollout.max_response_tokens), (("rollout", "max_response_tokens"),)
        )


def _tokens(count: int) -> str:
    return say("{count:,} tokens").format(count=count)


def _overlong(what: str) -> str:
    return say("longer: dropped") if what == "drop" else say("longer: kept")


def _sampling(config: Config) -> Item:
    sampling = config.rollout.sampling
    parts = [f"temperature {sampling.temperature:g}", f"top_p {sampling.top_p:g}"]
    parts += [f"top_k {sampling.top_k}"] if sampling.top_k is not None else []
    parts += [f"min_p {sampling.min_p:g}"] if sampling.min_p else []
    names = ("temperature", "top_p", "top_k", "min_p")
    return Item(say("sampling"), SEPARATOR.join(parts), tuple(("rollout", "sampling", name) for name in names))


def _reward(reward: Reward) -> str:
    match reward:
        case RuleReward():
            told = say("rule {name}").format(name=reward.rule)
        case FunctionReward():
            told = f"{reward.path}:{reward.function}"
        case ModelReward():
            told = say("model {path}").format(path=reward.path)
        case JudgeReward():
            told = say("judge {name}").format(name=reward.model or reward.auxiliary_model or "")
        case _:
            told = reward.type_name
    return told if reward.weight == 1 else f"{reward.weight:g} × {told}"


def _learning_rate(config: Config) -> Item:
    optimizer, scheduler = config.train.optimizer, config.train.lr_scheduler
    parts = [f"{optimizer.lr:g}", optimizer.type, scheduler.type]
    if scheduler.warmup_steps:
        parts.append(plural(scheduler.warmup_steps, later("1 step of warm-up"), later("{count} steps of warm-up")))
    elif scheduler.warmup_ratio:
        parts.append(say("{percent:g}% warm-up").format(percent=scheduler.warmup_ratio * 100))
    return Item(say("learning rate"), SEPARATOR.join(parts), (("train", "optimizer", "lr"), ("train", "lr_scheduler")))


def _kl(config: Config) -> Item:
    places = {
        "kl_in_loss": later("{coefficient:g} × {estimator} in the loss"),
        "kl_in_reward": later("{coefficient:g} × {estimator} in the reward"),
    }
    set_ = {name: kl for name in places if (kl := getattr(config.algorithm, name)) is not None}
    told = [say(places[name]).format(coefficient=kl.coefficient, estimator=kl.estimator) for name, kl in set_.items()]
    return Item(
        "KL", SEPARATOR.join(told) or say("off"), tuple(("algorithm", name) for name in dict.fromkeys((*set_, *places)))
    )


def _schedule(config: Config) -> Item:
    schedule = config.schedule
    told = []
    if schedule.total_steps is not None:
        told.append(plural(schedule.total_steps, later("1 step"), later("{count} steps")))
    if schedule.total_epochs is not None:
        told.append(plural(schedule.total_epochs, later("1 epoch"), later("{count} epochs")))
    length = say(" or ").join(told) or say("as many steps as the data has")
    every = text_of(schedule.evaluate_every)
    evaluates = evaluation_of(int(every)) if every.isdecimal() else evaluation_of(None if every == NULL else every)
    first = "total_steps" if schedule.total_steps is not None else "total_epochs"
    names = dict.fromkeys((first, "total_steps", "total_epochs", "evaluate_every"))
    return Item(say("schedule"), SEPARATOR.join((length, evaluates)), tuple(("schedule", name) for name in names))


def evaluation_of(every: int | str | None) -> str:
    """How often a run evaluates: every so many steps, in an interval such as ``1 epoch``, or never."""
    if not every:
        return say("never evaluates")
    if isinstance(every, int):
        return plural(every, later("evaluates every step"), later("evaluates every {count} steps"))
    return say("evaluates every {interval}").format(interval=in_words(every))


def _devices(config: Config) -> Item:
    placement = config.placement
    kind = {"cuda": say("GPUs"), "cpu": say("CPU workers"), "auto": say("GPUs")}[placement.device]
    text = f"{placement.nodes} × {placement.devices_per_node} {kind}{SEPARATOR}{placement.layout}"
    names = ("devices_per_node", "nodes", "layout", "device")
    return Item(say("devices"), text, tuple(("placement", name) for name in names))


def _engines(config: Config) -> Item:
    told, paths = [], list[KeyPath]()
    if arithmetic.trains(config):
        told.append(say("train {engine}").format(engine=config.train.engine.type_name))
        paths.append(("train", "engine"))
    if arithmetic.needs_rollout(config):
        parallel = config.rollout.parallel.tensor_parallel_size
        told.append(
            say("rollout {engine}").format(engine=config.rollout.engine.type_name)
            + (f" TP {parallel}" if parallel > 1 else "")
        )
        paths += [("rollout", "engine"), ("rollout", "parallel", "tensor_parallel_size")]
    return Item(say("engines"), SEPARATOR.join(told), tuple(paths) or (("train", "engine"),))
