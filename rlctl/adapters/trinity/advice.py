"""Trinity: what a file means that no key of it says: what rows must hold, who scores, what the trainer does with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.agents import games, plays
from rlctl.adapters.engine.implied import ENVIRONMENTS, told
from rlctl.adapters.engine.rules import ABSENT, Version, split
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.values import BY_STEP
from rlctl.adapters.engine.writing import ConfigWithOrigins
from rlctl.adapters.trinity.algorithm import TYPES
from rlctl.adapters.trinity.keys import ACTOR, REPLACED
from rlctl.adapters.trinity.requirements import FILES
from rlctl.adapters.trinity.workflows import ONE_TURN, can_call, one_turn
from rlctl.common.errors import closest
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config
from rlctl.config.sections.data import Data

INPUT = ("buffer", "explorer_input")
WORKFLOW = "buffer.explorer_input.default_workflow_type"
REWARD = "buffer.explorer_input.default_reward_fn_type"
TASKSET = "buffer.explorer_input.taskset.path"
TOKENS = "trainer.max_token_len_per_gpu"
OPTIMIZER, OPTIM = "algorithm.optimizer", f"{ACTOR}.optim"


def on_written(given: ConfigWithOrigins, values: Mapping[str, Any], version: Version) -> list[Finding]:
    """What differs in a run of a written file although its keys say the same; nothing where it was Trinity's before."""
    found = _on_files(given)
    source = given.sources.get(("batch", "responses_per_prompt"))
    if given.config.algorithm.objective.choice != "rl" or (source and source.key == "algorithm.repeat_times"):
        return found
    added = [finding("micro-batches-added", Level.NOTE, TOKENS)]
    return [
        *found,
        *_on_tasks(given.config, values, version),
        *_on_sapo(given.config),
        *(added if version >= (0, 6) else []),
    ]


def _on_files(given: ConfigWithOrigins) -> list[Finding]:
    """A warning of data in single files: Trinity's ``load_dataset(path)`` takes a folder or a name on the Hub."""
    paths = []
    for kind, sources in (("train", given.config.data.train), ("eval", given.config.data.eval)):
        for index, source in enumerate(sources):
            origin = given.sources.get(("data", kind, index, "path"))
            own = origin is not None and origin.key.startswith("buffer.")
            if not own and source.path and str(source.path).endswith(FILES):
                paths.append(str(source.path))
    names = ", ".join(dict.fromkeys(paths))
    return [finding("data-files_folder", Level.WARNING, TASKSET, path=names)] if paths else []


def on_data(config: Config) -> Iterator[Finding]:
    """What Trinity cannot read of the data, by canonical keys: answers inside another column."""
    sources = {
        f"data.{kind}[{index}]": source
        for kind, found in (("train", config.data.train), ("eval", config.data.eval))
        for index, source in enumerate(found)
    }
    nested = [
        (place, source.answer_key)
        for place, source in sources.items()
        if "." in (source.answer_key or "") and not (source.agent or config.rollout.default_agent)
    ]
    if nested and config.algorithm.objective.choice == "rl":  # a workflow of the user's may look deeper
        place, answer = nested[0]
        yield finding(
            "data-columns_nested",
            Level.WARNING,
            f"{place}.answer_key",
            framework="Trinity-RFT",
            nested=answer,
            column=str(answer).rpartition(".")[2],
        )


def on_read(config: Config, values: Mapping[str, Any], version: Version) -> list[Finding]:
    """What Trinity does with a file that its keys do not let expect."""
    found = [*_on_sapo(config), *_on_calls(values)]
    named = find(values, ("algorithm", "algorithm_type"))
    if isinstance(named, str) and "${" not in named and named not in TYPES:
        near = closest(named, TYPES) or "none"
        found.append(finding("unknown-algorithm", Level.WARNING, "algorithm.algorithm_type", name=named, near=near))
    if version >= (0, 6) and config.run.mode in ("full", "train_only"):
        found.append(finding("micro-batches-added_own", Level.NOTE, TOKENS))
    if config.algorithm.advantage.choice in ("step_wise_grpo", *BY_STEP) and config.run.mode in ("full", "train_only"):
        found.append(finding("rows-of-steps", Level.NOTE, "buffer.train_batch_size"))
    schedule = config.train.lr_scheduler
    endless = find(values, ("trainer", "total_steps")) in (ABSENT, None)
    if endless and schedule.warmup_ratio and config.run.mode in ("full", "train_only"):
        found.append(finding("endless-schedule", Level.WARNING, f"{OPTIMIZER}.lr_warmup_steps_ratio"))
    elif endless and schedule.type == "cosine":
        found.append(finding("endless-schedule_cosine", Level.WARNING, f"{OPTIMIZER}.lr_scheduler_type"))
    return found


def on_optimizer(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Finding]:
    """The optimizer of a file for 0.3.1 or older, which 0.5 replaces; ``defaults`` are those of ``algorithm.optimizer``."""
    own, common = find(values, split(OPTIM)), find(values, split(OPTIMIZER))
    common = common if isinstance(common, Mapping) else {}
    lost = {}
    for name, other in REPLACED.items() if isinstance(own, Mapping) else ():
        written, used = own.get(name), common.get(other)
        used = defaults[other] if used is None else used
        if written not in (None, used) and "${" not in f"{written}{used}":
            lost[name] = said("{key} = {written} becomes {used}", key=name, written=written, used=used)
    if lost:
        place = f"{OPTIM}.{next(iter(lost))}"
        yield finding("optimizer-replaced", Level.WARNING, place, values=together(lost.values(), COMMAS))


def _on_tasks(config: Config, values: Mapping[str, Any], version: Version) -> Iterator[Finding]:
    workflow = _said(values, "default_workflow_type")
    row = one_turn(workflow)
    if plays(config):
        yield _on_environments(config, workflow)
        return
    if row is not None and (problems := [*_rows(config.data, workflow), *_scores(config, values)]):
        yield finding("other-data-and-reward", Level.WARNING, WORKFLOW, reason=together(problems))
    keeps = not any(item.choice == "overlong" for item in config.algorithm.filters)
    if row is not None and row.masks(version) and keeps:
        yield finding("cut-responses-masked", Level.WARNING, WORKFLOW, workflow=workflow)


def _on_calls(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Reward functions that a workflow cannot call: Trinity loads such a file, and then each task raises a TypeError."""
    row, reward = one_turn(_said(values, "default_workflow_type")), _said(values, "default_reward_fn_type")
    if row is not None and isinstance(reward, str) and not can_call(row, reward):
        fits = sorted(other.names[0] for other in ONE_TURN if can_call(other, reward))
        yield finding(
            "uncallable-reward",
            Level.WARNING,
            REWARD,
            workflow=row.names[0],
            reward=reward,
            other=WORKFLOW,
            fits=" or ".join(fits) or "none",
        )


def _said(values: Mapping[str, Any], key: str) -> Any:
    value = find(values, (*INPUT, key))
    return None if value is ABSENT else value


def _on_environments(config: Config, workflow: Any) -> Finding:
    tags = ", ".join(agent.name for agent in plays(config))
    workflow = None if one_turn(workflow) is not None else workflow
    message = said(
        "Trinity has no environment managers: a custom workflow must play {tags}, ", tags=tags or "the environment"
    )
    if workflow is None:
        message += "and no built-in workflow does"
        hint = said("write a class with @WORKFLOWS.register_module, and name it in {workflow}", workflow=WORKFLOW)
    else:
        message += said("here {workflow}, with its own prompts, steps and rewards", workflow=workflow)
        hint = said("compare {workflow} with the source's environment, or write your own workflow", workflow=workflow)
    message += "; each row of the task set starts one episode"
    for kind in games(config):
        message += told(ENVIRONMENTS, kind)
    advice = said("{hint}; set TRINITY_TASKSET_PATH to the task set", hint=hint)
    return finding("other-environment", Level.WARNING, WORKFLOW, reason=message, advice=advice)


def _rows(data: Data, workflow: str) -> Iterator[str]:
    """What the rows of the source are not, which Trinity's workflows read."""
    foreign = [item for item in data.train if item.prompt_type == "messages" or "." in (item.answer_key or ".")]
    if foreign:
        one = foreign[0]
        yield (
            said(
                "Trinity's {workflow} reads '{prompt_key}' as plain text and the answer from the column of "
                "format.response_key; it cannot read chat messages or nested answers",
                workflow=workflow,
                prompt_key=one.prompt_key,
            )
        )


def _scores(config: Config, values: Mapping[str, Any]) -> Iterator[str]:
    """That the rewards are not those of the source."""
    routed = any(item.source_key or item.tag_key for item in config.data.train)
    if _said(values, "default_reward_fn_type") is None and (routed or not _routed(config)):
        yield (
            said(
                "math_workflow asks for <think> and <answer> tags and scores 1 for a right answer, 0.1 for the tags "
                "(-0.1 without); the source {scored}",
                scored=_scored(config),
            )
        )


def _routed(config: Config) -> bool:
    """Whether the rule goes by each row's data source."""
    return not config.rewards or (len(config.rewards) == 1 and getattr(config.rewards[0], "rule", "") == "auto")


def _scored(config: Config) -> str:
    if _routed(config):
        return "picks a reward by the data_source of each row"
    if len(config.rewards) > 1:
        return said("scores with {count} rewards: ", count=len(config.rewards)) + ", ".join(
            item.name for item in config.rewards
        )
    one = config.rewards[0]
    rule = getattr(one, "rule", "")
    return (
        said("scores by the rule {rule}", rule=rule)
        if rule
        else said("scores with its own {choice} '{name}'", choice=one.choice, name=one.name)
    )


def _on_sapo(config: Config) -> Iterator[Finding]:
    if config.algorithm.objective.choice == "rl" and config.algorithm.policy_loss.choice == "sapo":
        yield finding("other-gradient", Level.WARNING, "algorithm.policy_loss_fn")
