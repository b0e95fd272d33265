"""Trinity: the explorer: its workflows, its patience and the models beside the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.agents import AGENTS, OF_STATES, OF_STEPS, of_other_agents, plays
from rlctl.adapters.engine.rules import (
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    Switch,
    Tree,
    Writing,
)
from rlctl.adapters.trinity.agents import (
    EVALUATION_TYPE,
    TYPE,
    has_agent,
    read_agents,
    shared_agent,
    workflow_of,
    write_agents,
)
from rlctl.adapters.trinity.batch import WholeSeconds
from rlctl.adapters.trinity.data import spelling_of_all
from rlctl.adapters.trinity.workflows import taught, teaches
from rlctl.common.messages.reasons import said


def _write_workflow(view: Writing) -> Iterator[Out]:
    """The default workflow: that of the default agent, or the form of one question and one answer."""
    config = view.config
    if config.algorithm.objective.choice in ("sft", "dpo") or config.run.mode == "train_only":
        return
    yield from write_agents(view)
    sources, shared = view.get("data.train"), shared_agent(config)
    used = (view.to("rollout.default_agent"), *((("data", "train", 0, "agent"),) if sources else ()))
    if workflow_of(shared):
        yield Flow(view.path(TYPE), workflow_of(shared), used, always=True)
    elif plays(config):
        return  # a warning of the file asks for a workflow that plays them
    elif not (sources and all(has_agent(config, source) for source in sources)):
        note = "one question, one answer"
        yield Flow(view.path(TYPE), spelling_of_all(view).workflow, used, "derived", note, always=True)


def _read_models(view: Reading) -> Iterator[Flow]:
    several = view.get("explorer.auxiliary_models")
    if isinstance(several, list) and not several:
        yield Flow(view.to("rollout.auxiliary_models"), [], (view.path("explorer.auxiliary_models"),))
    names = {
        "model_path": "path",
        "name": "name",
        "engine_num": "replicas",
        "tensor_parallel_size": "tensor_parallel_size",
        "max_model_len": "max_context_tokens",
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
        "max_context_tokens": "max_model_len",
    }
    first = 0 if taught(view.config) is None else 1
    for index, item in enumerate(view.get("rollout.auxiliary_models")):
        root, used = (*view.path("explorer.auxiliary_models"), index + first), ("rollout", "auxiliary_models", index)
        for field, key in names.items():
            if item[field] is not None:
                yield Flow((*root, key), item[field], ((*used, field),), same=True, always=True)
        for key, value in item["settings"].items():
            yield Flow((*root, key), value, ((*used, "settings"),), always=True)
        if item["base_url"] is not None:
            yield Inexpressible(((*used, "base_url"),), "Trinity serves auxiliary models itself")
        if item["engine"] != "auto":
            yield Flow((), None, ((*used, "engine"),), "derived", "Trinity serves auxiliary models with vLLM")


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


class DroppedShare(Same):
    """The share of stragglers that a step does without."""

    def write(self, value: Any, view: Writing) -> Any:
        if value and view.config.weight_sync.style == "fixed":
            raise InexpressibleError(
                "Trinity drops no stragglers with sync_style fixed; set explorer_driven or trainer_driven"
            )
        return value


EXPLORER: list[Rule] = [
    Key("explorer.max_timeout", "rollout.timeouts.response", convert=WholeSeconds()),
    Key("explorer.max_retry_times", "rollout.timeouts.retries"),
    Switch("explorer.dynamic_timeout.enable", "rollout.timeouts.dynamic"),
    Key("explorer.dynamic_timeout.ratio", "rollout.timeouts.dynamic.ratio"),
    Key(
        "explorer.over_rollout.ratio",
        "rollout.oversampling.ratio",
        convert=DroppedShare(),
        formula="with sync_style other than fixed",
    ),
    Key("explorer.over_rollout.wait_after_min", "rollout.oversampling.wait_after_minimum"),
    *[
        Dropped(f"rollout.oversampling.{name}", "Trinity's explorer does not refill batches")
        for name in ["additional_prompts", "generation_batch_prompts", "max_generation_batches"]
    ],
    Key("explorer.runner_per_model", "rollout.runners_per_engine"),
    CustomRule(
        "responses of a runner",
        (DialectKey("explorer.max_repeat_times_per_runner"),),
        ("rollout.split_groups",),
        lambda view: _read_repeat(view),
        lambda view: _write_repeat(view),
        "1 if each response of a group is a separate request",
        why="A number above 1 has no canonical form and is kept, and only a config that says it is written.",
    ),
    Key("explorer.runner_state_report_interval", "rollout.report_every", convert=WholeSeconds()),
    Tree("explorer.env_vars", "rollout.env_vars"),
    CustomRule(
        "workflow",
        (
            DialectKey(TYPE),
            DialectKey(EVALUATION_TYPE),
        ),
        (
            "rollout.default_agent",
            AGENTS,
            *(f"{AGENTS}[].{name}" for name in ("type", "name", "framework", "kind", "args")),
        ),
        read_agents,
        _write_workflow,
        "an agent, or one question and one answer; what a workflow implies is under rewards and data",
        by_key={
            **{
                f"buffer.explorer_input.{tasks}.default_workflow_type": AGENTS
                for tasks in ("taskset", "eval_tasksets.*")
            },
            **{
                f"buffer.explorer_input.{tasks}.workflow_args": f"{AGENTS}[].args"
                for tasks in ("taskset", "eval_tasksets.*")
            },
            TYPE: (AGENTS, "rollout.default_agent"),
            EVALUATION_TYPE: (AGENTS, "rollout.default_agent"),
        },
        why="The name of a workflow decides an agent, a form of the data and a reward.",
    ),
    CustomRule(
        "auxiliary models",
        (DialectKey("explorer.auxiliary_models"), DialectKey("explorer.auxiliary_models.*.**")),
        (
            "rollout.auxiliary_models",
            *(
                f"rollout.auxiliary_models[].{name}"
                for name in [
                    *("path", "name", "replicas", "tensor_parallel_size", "max_context_tokens", "settings"),
                    *("base_url", "api_key", "engine"),
                ]
            ),
        ),
        lambda view: _read_models(view),
        lambda view: _write_models(view),
        by_key={
            "explorer.auxiliary_models": "rollout.auxiliary_models",
            "explorer.auxiliary_models.*.model_path": "rollout.auxiliary_models[].path",
        },
        why="A list of mappings becomes a list of sections, the first of which may be the teacher.",
    ),
    *[
        Dropped(f"rollout.{name}", "Trinity's explorer saves responses in its own buffers", idle=True)
        for name in ("max_running_prompts", "log_evaluation_responses", "responses_folder", "evaluation_folder")
    ],
    Dropped("rollout.agent_workers", "Trinity's runners are explorer.runner_per_model", idle=True),
    *of_other_agents(*OF_STEPS, *OF_STATES),
    Key("trainer.enable_preview", "rollout.log_responses"),
]
