"""Trinity: the explorer: its workflows, its patience and the models beside the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.implied import WORKFLOWS, kind_of
from rlctl.adapters.engine.rules import (
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Switch,
    Tree,
    VersionedDefault,
    Writing,
)
from rlctl.adapters.engine.turns import unwritten_turns
from rlctl.adapters.trinity.batch import seconds
from rlctl.adapters.trinity.data import spelling_of_all
from rlctl.adapters.trinity.keys import train_places
from rlctl.adapters.trinity.workflows import one_turn, taught, teaches
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath

PLAYED: dict[str, str] = {}
"""Trinity's workflows that play an environment, by the environment's type: the first of each."""
for _name, _row in WORKFLOWS.items():
    if _row.plays:
        PLAYED.setdefault(_row.plays, _name)


def _write_workflow(view: Writing) -> Iterator[Out]:
    config = view.config
    if config.algorithm.objective.choice in ("sft", "dpo") or config.run.mode == "train_only":
        return
    own, used = config.rollout.workflow, (view.to("rollout.workflow"),)
    key = view.path("buffer.explorer_input.default_workflow_type")
    if own is None and config.rollout.environments is not None:
        yield from _write_environments(view, key)
    elif own is not None or not config.data.train or not all(source.workflow for source in config.data.train):
        note = "" if own else "one question, one answer"
        name = own or spelling_of_all(view).workflow
        yield Flow(key, name, used, "mapped" if own else "derived", note, always=True)


def _read_workflow(view: Reading) -> Iterator[Flow]:
    """The default workflows: null for one question and one answer, whatever it implies; evaluation follows training."""
    key, own = "buffer.explorer_input.default_workflow_type", "buffer.explorer_input.default_eval_workflow_type"
    named, evaluation = view.get(key), view.get(own)
    kept = None if one_turn(named) else named
    yield Flow(view.to("rollout.workflow"), kept, (view.path(key),), same=kept is not None)
    plain = kept is None and one_turn(evaluation) is not None
    yield Flow(view.to("rollout.evaluation_workflow"), None if plain else evaluation, (view.path(own),), same=not plain)


def _write_evaluation_workflow(view: Writing) -> Iterator[Out]:
    named, used = view.get("rollout.evaluation_workflow"), (view.to("rollout.evaluation_workflow"),)
    if named:
        yield Flow(view.path("buffer.explorer_input.default_eval_workflow_type"), named, used, same=True)
    else:
        yield Flow((), None, used)


def _write_environments(view: Writing, key: KeyPath) -> Iterator[Out]:
    """The workflow that plays the environments, where one of Trinity's does, and the task set that starts its episodes."""
    environments, to = view.get("rollout.environments"), "rollout.environments"
    kinds = {kind_of(environments["custom"].get(tag), tag) for tag in environments["tags"]}
    found = {PLAYED.get(kind) for kind in kinds}
    if len(found) == 1 and (workflow := found.pop()):
        yield Flow(key, workflow, (view.to(f"{to}.tags"),), "derived", "Trinity's own workflow of it", always=True)
    # kept as a whole: a part of it means nothing where the workflow is read
    yield Inexpressible((view.to(to),), "in Trinity, environments belong to workflows", idle=True)
    if view.config.data.train:
        return
    (root,) = train_places(view)
    note = "Trinity starts an episode for each row of a task set, and the source has no rows"
    for name, value in {
        "name": "_".join(environments["tags"]) or "episodes",
        "storage_type": "file",
        "path": "${oc.env:TRINITY_TASKSET_PATH}",
    }.items():
        yield Flow((*root, name), value, (view.to(f"{to}.tags"),), "derived", note, always=True)


def _read_models(view: Reading) -> Iterator[Flow]:
    several = view.get("explorer.auxiliary_models")
    if isinstance(several, list) and not several:
        yield Flow(view.to("rollout.auxiliary_models"), [], (view.path("explorer.auxiliary_models"),))
    names = {
        "model_path": "path",
        "name": "name",
        "engine_num": "replicas",
        "tensor_parallel_size": "tensor_parallel_size",
    }
    first = 0 if teaches(view) is None else 1
    for index, item in enumerate(several[first:] if isinstance(several, list) else []):
        place, to = (*view.path("explorer.auxiliary_models"), index + first), ("rollout", "auxiliary_models", index)
        if not isinstance(item, Mapping):
            raise BadValueError(said("holds {item!r}; expected a mapping for each model", item=item), key=place)
        for key, value in item.items():
            if key in names and value is not None:
                yield Flow((*to, names[key]), value, ((*place, key),), same=True)
        rest = {key: value for key, value in item.items() if key not in names}
        if rest:
            yield Flow((*to, "settings"), rest, tuple((*place, key) for key in rest))


def _write_models(view: Writing) -> Iterator[Out]:
    names = {
        "path": "model_path",
        "name": "name",
        "replicas": "engine_num",
        "tensor_parallel_size": "tensor_parallel_size",
    }
    first = 0 if taught(view.config) is None else 1
    for index, item in enumerate(view.get("rollout.auxiliary_models")):
        root, used = (*view.path("explorer.auxiliary_models"), index + first), ("rollout", "auxiliary_models", index)
        for field, key in names.items():
            if item[field] is not None:
                yield Flow((*root, key), item[field], ((*used, field),), same=True, always=True)
        for key, value in item["settings"].items():
            yield Flow((*root, key), value, ((*used, "settings"),), always=True)


REPEAT = "explorer.max_repeat_times_per_runner"


def _read_repeat(view: Reading) -> Iterator[Flow]:
    if view.written(REPEAT) and view.get(REPEAT) in (None, 1):
        yield Flow(view.to("rollout.split_groups"), view.get(REPEAT) == 1, (view.path(REPEAT),))


def _write_repeat(view: Writing) -> Iterator[Out]:
    split, used = view.config.rollout.split_groups, (view.to("rollout.split_groups"),)
    if view.explicit("rollout.split_groups"):
        yield Flow(view.path(REPEAT), 1 if split else None, used, always=True)
    else:
        yield Flow((), None, used)


def _read_ratio(view: Reading) -> Iterator[Flow]:
    key = "explorer.over_rollout.ratio"
    yield Flow(view.to("rollout.oversampling.ratio"), view.get(key), (view.path(key),), same=True)


def _write_ratio(view: Writing) -> Iterator[Out]:
    ratio, used = view.config.rollout.oversampling.ratio, (view.to("rollout.oversampling.ratio"),)
    if ratio and view.config.weight_sync.style == "fixed":
        yield Inexpressible(
            used, "Trinity drops no stragglers with sync_style fixed; set explorer_driven or trainer_driven"
        )
    else:
        yield Flow(view.path("explorer.over_rollout.ratio"), ratio, used, same=True)


EXPLORER: list[Rule] = [
    seconds("explorer.max_timeout", "rollout.timeouts.response", 1800),
    Key("explorer.max_retry_times", "rollout.timeouts.retries", 2),
    Switch("explorer.dynamic_timeout.enable", "rollout.timeouts.dynamic", False),
    Key("explorer.dynamic_timeout.ratio", "rollout.timeouts.dynamic.ratio", 3.0),
    CustomRule(
        "over-rollout",
        (DialectKey("explorer.over_rollout.ratio", 0.0),),
        ("rollout.oversampling.ratio",),
        lambda view: _read_ratio(view),
        lambda view: _write_ratio(view),
        "with sync_style other than fixed",
    ),
    Key("explorer.over_rollout.wait_after_min", "rollout.oversampling.wait_after_minimum", 30.0),
    *[
        Dropped(f"rollout.oversampling.{name}", "Trinity's explorer does not refill batches")
        for name in ["additional_prompts", "generation_batch_prompts", "max_generation_batches"]
    ],
    Key("explorer.runner_per_model", "rollout.runners_per_engine", 8),
    CustomRule(
        "responses of a runner",
        (DialectKey("explorer.max_repeat_times_per_runner", None),),
        ("rollout.split_groups",),
        lambda view: _read_repeat(view),
        lambda view: _write_repeat(view),
        "1 if each response of a group is a separate request",
    ),
    seconds("explorer.runner_state_report_interval", "rollout.report_every", 0),
    Tree("explorer.env_vars", "rollout.env_vars"),
    CustomRule(
        "workflow",
        (
            DialectKey("buffer.explorer_input.default_workflow_type", None),
            DialectKey("buffer.explorer_input.default_eval_workflow_type", None),
        ),
        ("rollout.workflow", "rollout.evaluation_workflow"),
        _read_workflow,
        lambda view: (*_write_workflow(view), *_write_evaluation_workflow(view)),
        "null is one question and one answer; what a workflow implies is under rewards and data",
    ),
    Dropped("rollout.workflow_args", "in Trinity, arguments belong to task sets"),
    CustomRule(
        "auxiliary models",
        (DialectKey("explorer.auxiliary_models", []), DialectKey("explorer.auxiliary_models.*.**")),
        (
            "rollout.auxiliary_models",
            *(
                f"rollout.auxiliary_models[].{name}"
                for name in ["path", "name", "replicas", "tensor_parallel_size", "settings"]
            ),
        ),
        lambda view: _read_models(view),
        lambda view: _write_models(view),
    ),
    *[
        Dropped(f"rollout.{name}", "Trinity's explorer saves responses in its own buffers", idle=True)
        for name in ("max_running_prompts", "log_evaluation_responses", "responses_folder", "evaluation_folder")
    ],
    *[
        Dropped(f"rollout.{name}.**", "a Trinity workflow has its own settings in workflow_args")
        for name in ("environments", "evaluation_environments")
    ],
    *[
        Dropped(f"rollout.{name}", "rlctl does not write its agents in Trinity's form")
        for name in ("default_agent", "agents", "agents.**")
    ],
    Dropped("rollout.agent_workers", "rlctl does not write its agents in Trinity's form", idle=True),
    *unwritten_turns("rlctl does not write its agents in Trinity's form"),
    Dropped("rollout.environments", "in Trinity, environments belong to workflows", None),
    Dropped("rollout.evaluation_environments", "in Trinity, environments belong to workflows", None),
    *[
        Dropped(f"rollout.multi_turn.{name}", "in Trinity, turns belong to workflows")
        for name in [
            "enabled",
            "max_assistant_turns",
            "max_user_turns",
            "max_parallel_calls",
            "max_tool_response_characters",
            "tool_truncation",
            "tool_format",
            "tool_config",
            "interaction_config",
            "use_inference_template",
            "sanity_check",
            "turn_mode",
        ]
    ],
    *[
        Dropped(f"rollout.agent.{name}", "in Trinity, agents are workflows")
        for name in ["workers", "default", "config", "server_path", "server_class", "args"]
    ],
    Key("trainer.enable_preview", "rollout.log_responses", VersionedDefault({"0.5": True, "0.6": False})),
]
