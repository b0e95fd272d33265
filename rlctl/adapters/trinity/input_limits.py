"""What Trinity-RFT refuses of task sets, buffers, workflows and pipelines of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.trinity.argument_limits import FUNCTIONS, INPUT, SELECTORS, VALIDATOR, mixes
from rlctl.adapters.trinity.requirement_values import ENGINE
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

TASKS = "data_processor.task_pipeline"
AUXILIARY = "explorer.auxiliary_models"
OPERATORS = (
    *(
        "reward_filter",
        "reward_std_filter",
        "dapo_dynamic_sampling",
        "mask_response_truncated",
        "reward_shaping_mapper",
    ),
    *("pass_rate_calculator", "data_juicer", "invalid_reward_filter"),
)
JUDGED = (
    *("math_ruler_workflow", "async_math_ruler_workflow", "rubric_judge_workflow", "on_policy_distill_workflow"),
    *("on_policy_distill_math_workflow", "agentscope_v1_react_search_workflow"),
)
"""Workflows that need a model of ``explorer.auxiliary_models``: a judge or a teacher."""
SERVED = (
    *(
        "agentscope_workflow_adapter",
        "agentscope_workflow_adapter_v1",
        "agentscope_react_workflow",
        "as_react_workflow",
    ),
    *("agentscope_react_math_workflow", "agentscope_v1_react_search_workflow", "email_search_workflow"),
    "agentscopev0_react_math_workflow",
)
"""Workflows that call the rollout engine by its OpenAI API."""
RECORDED = ("step_wise_alfworld_workflow",)
"""Workflows that take their samples from the engine's history."""


def tasksets(values: Values) -> list[Mapping[str, Any]]:
    """The task sets that a file names, those of evaluation too."""
    single = values[f"{INPUT}.taskset"]
    several = [*(values[f"{INPUT}.tasksets"] or []), *(values[f"{INPUT}.eval_tasksets"] or [])]
    return [item for item in (single, *several) if isinstance(item, Mapping)]


def workflows(values: Values) -> set[str]:
    """The workflows that a file names, as defaults or for a task set."""
    explores = values["mode"] != "train"
    named = [
        values[f"{INPUT}.default_workflow_type"],
        *(item.get("default_workflow_type") for item in tasksets(values)),
    ]
    return {str(name) for name in named if name} if explores else set()


def _of_workflows(
    key: str, names: Sequence[str], lacks: Callable[[Values], object], message: str, source: str, hint: str
) -> Requirement:
    def used(values: Values) -> str:
        return next(iter(sorted(workflows(values) & set(names))), "")

    return Requirement(key, lambda v: used(v) and lacks(v), message, source, hint, numbers={"workflow": used})


def _selectors(values: Values) -> list[Mapping[str, Any]]:
    return [item["data_selector"] for item in tasksets(values) if isinstance(item.get("data_selector"), Mapping)]


def _unknown_selector(values: Values) -> str:
    named = [str(item.get("selector_type") or SELECTORS[0]) for item in _selectors(values)]
    return next((name for name in named if name not in SELECTORS and "." not in name), "")


def _without_features(values: Values) -> bool:
    graded = [item for item in _selectors(values) if item.get("selector_type") == "difficulty_based"]
    return any(len(item.get("feature_keys") or ()) != 2 for item in graded)


def _unknown_operator(values: Values) -> str:
    operators = values["data_processor.experience_pipeline.operators"] or []
    named = [str(item.get("name")) for item in operators]
    return next((name for name in named if name not in OPERATORS and "." not in name), "")


def _overlong(values: Values) -> Iterator[Mapping[str, Any]]:
    """Arguments of rewards that punish long responses."""
    given = (item.get("reward_fn_args") for item in tasksets(values))
    return (item for item in given if isinstance(item, Mapping) and item.get("enable_overlong_penalty"))


def _is_wrong_penalty(arguments: Mapping[str, Any]) -> bool:
    longest, cache = arguments.get("max_response_length"), arguments.get("cache_length")
    return None in (longest, cache, arguments.get("penalty_factor")) or longest <= cache  # type: ignore[operator]


def _expert_data(values: Values) -> str:
    return str(values["algorithm.sample_strategy_args.sft_dataset_name"] or "sft_dataset")


def _without_expert_data(values: Values) -> bool:
    buffers = values["buffer.trainer_input.auxiliary_buffers"] or {}
    return mixes(values) and not isinstance(buffers.get(_expert_data(values)), Mapping)


def _buffer_without_path(values: Values) -> str:
    buffers = values["buffer.trainer_input.auxiliary_buffers"] or {}
    return next((name for name, item in buffers.items() if item is not None and not item.get("path")), "")


def _saves_nowhere(values: Values) -> bool:
    path = values["data_processor.experience_pipeline.input_save_path"]
    written = isinstance(path, str) and bool(values["data_processor.experience_pipeline.save_input"])
    return written and not path.endswith((".json", ".jsonl")) and "://" not in path


def _wrong_argument(values: Values) -> str:
    """The first argument of a task set's workflow that it refuses, as text."""
    for item in tasksets(values):
        given = item.get("workflow_args") or {}
        name, allowed = WORKFLOW_ARGUMENTS.get(str(item.get("default_workflow_type")), ("", ()))
        value = given.get(name)
        if name and (value not in allowed if value is not None and allowed else value is None and not allowed):
            return name
    return ""


def _teaches_by_sglang(values: Values) -> bool:
    return any(item.get("engine_type") == "sglang" for item in values[AUXILIARY] or [])


def _missing_input(values: Values) -> str:
    paths = [str(path) for path in values[f"{TASKS}.inputs"] or []]
    return next((path for path in paths if "${" not in path and not Path(path).is_file()), "")


def _prepares_nothing(values: Values) -> bool:
    """Whether Data-Juicer gets neither operators nor a file of its own, or no process."""
    operators = values["data_processor.experience_pipeline.operators"] or []
    given = [item.get("args") or {} for item in operators if item.get("name") == "data_juicer"]
    lacking = any(not (args.get("config_path") or args.get("operators")) or args.get("np", 4) <= 0 for args in given)
    prepares = bool(values[f"{TASKS}.inputs"])
    tasks = values[f"{TASKS}.operators"] or values[f"{TASKS}.config_path"]
    return lacking or (prepares and (not tasks or values.number(f"{TASKS}.num_process", 4) <= 0))


WORKFLOW_ARGUMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "agentscope_react_workflow": ("type", ("gsm8k",)),
    "as_react_workflow": ("type", ("gsm8k",)),
    "agentscope_v1_react_search_workflow": ("search_client_type", ("searxng", "tavily")),
    "rubric_judge_openai_workflow": ("judge_model_name", ()),
}
"""An argument that a workflow tests, and what it may be; anything, but set, for none."""
TAUGHT = ("on_policy_distill_workflow", "on_policy_distill_math_workflow")
TURNS = (
    *("alfworld_workflow", "RAFT_alfworld_workflow", "RAFT_reflect_alfworld_workflow", "sciworld_workflow"),
    *("webshop_workflow", "frozen_lake_workflow", "intercode_sql_workflow"),
)
"""Workflows that tokenize a whole conversation with the engine."""
STEPS = "trinity/common/workflows/step_wise_workflow.py"


ROWS: tuple[Requirement, ...] = (
    Requirement(
        "buffer.trainer_input.auxiliary_buffers",
        _without_expert_data,
        "algorithm.algorithm_type {algorithm.algorithm_type} trains on expert data too, but "
        "buffer.trainer_input.auxiliary_buffers has no buffer {buffer}",
        f"{FUNCTIONS}/sample_strategy/mix_sample_strategy.py, MixSampleStrategy",
        "add the buffer with its path, or name it in algorithm.sample_strategy_args.sft_dataset_name",
        numbers={"buffer": _expert_data},
    ),
    Requirement(
        "buffer.trainer_input.auxiliary_buffers",
        _buffer_without_path,
        "buffer.trainer_input.auxiliary_buffers.{buffer} has no path",
        f"{VALIDATOR}BufferConfigValidator._check_trainer_input",
        "set its path",
        numbers={"buffer": _buffer_without_path},
    ),
    Requirement(
        f"{INPUT}.eval_tasksets",
        lambda v: v["mode"] != "train" and any(not item.get("path") for item in tasksets(v)[1:]),
        "a task set of buffer.explorer_input.tasksets or eval_tasksets has no path",
        f"{VALIDATOR}BufferConfigValidator._fill_taskset_config",
        "set its path",
    ),
    Requirement(
        f"{INPUT}.eval_tasksets",
        lambda v: (
            v["mode"] != "train"
            and str(v["synchronizer.sync_style"]).lower() == "fully_async"
            and bool(v[f"{INPUT}.eval_tasksets"])
        ),
        "synchronizer.sync_style is fully_async, which takes no buffer.explorer_input.eval_tasksets",
        f"{VALIDATOR}BufferConfigValidator._check_explorer_input",
        "remove eval_tasksets, or set synchronizer.sync_style to explorer_driven",
    ),
    Requirement(
        f"{INPUT}.taskset.data_selector",
        lambda v: v["mode"] != "train" and _unknown_selector(v),
        said("a data_selector.selector_type is {{selector}}; expected one of {names}", names=", ".join(SELECTORS)),
        f"{VALIDATOR}BufferConfigValidator._check_explorer_input",
        "set it to one of these",
        numbers={"selector": _unknown_selector},
        level=Level.WARNING,
    ),
    Requirement(
        f"{INPUT}.taskset.data_selector",
        lambda v: v["mode"] != "train" and _without_features(v),
        "data_selector.feature_keys of a difficulty_based selector names other than two columns",
        "trinity/buffer/selector/selector.py, DifficultyBasedSelector.build_diff_estimator",
        "set feature_keys to the two columns of the difficulty",
    ),
    Requirement(
        "data_processor.experience_pipeline.operators",
        _unknown_operator,
        "data_processor.experience_pipeline.operators names {operator}, which Trinity does not register; only a plug-in could",
        "trinity/buffer/operators/experience_operator.py, create_operators",
        said("set one of {names}", names=", ".join(OPERATORS)),
        numbers={"operator": _unknown_operator},
        level=Level.WARNING,
    ),
    Requirement(
        f"{TASKS}.output",
        lambda v: (
            v["mode"] == "train"
            and bool(v[f"{TASKS}.inputs"])
            and v["algorithm.algorithm_type"] not in ("dpo", "sft")
            and not v[f"{TASKS}.output.path"]
        ),
        "data_processor.task_pipeline prepares tasks, but mode train has no task set to write them to",
        f"{VALIDATOR}BufferConfigValidator._check_data_processor",
        "set data_processor.task_pipeline.output.path",
    ),
    Requirement(
        f"{TASKS}.inputs",
        _missing_input,
        "data_processor.task_pipeline.inputs names {file}, which is not a file on this machine",
        "trinity/service/data_juicer/server/utils.py, _parse_task_pipeline_config",
        "correct the path: an input is a single local file",
        numbers={"file": _missing_input},
        level=Level.WARNING,
    ),
    Requirement(
        "data_processor.experience_pipeline.operators",
        _prepares_nothing,
        "Data-Juicer needs operators or a config_path, and at least one process",
        "trinity/service/data_juicer/server/utils.py, DJConfig.check_dj_config",
        "set operators of the data_juicer operator, or of data_processor.task_pipeline",
    ),
    Requirement(
        "data_processor.task_pipeline.output.path",
        lambda v: (path := v["data_processor.task_pipeline.output.path"]) and Path(path).exists(),
        "data_processor.task_pipeline.output.path {data_processor.task_pipeline.output.path} exists",
        f"{VALIDATOR}BufferConfigValidator._check_data_processor",
        "name another path, or remove the file",
    ),
    Requirement(
        f"{INPUT}.taskset.reward_fn_args",
        lambda v: any(map(_is_wrong_penalty, _overlong(v))),
        "reward_fn_args.enable_overlong_penalty needs penalty_factor, max_response_length and cache_length, and a cache_length "
        "below max_response_length",
        "trinity/common/rewards/dapo_reward.py, MathDAPORewardFn.compute_overlong_penalty",
        "set the three",
    ),
    Requirement(
        AUXILIARY,
        lambda v: v["mode"] != "train" and any(not item.get("model_path") for item in v[AUXILIARY] or []),
        "a model of explorer.auxiliary_models has no model_path",
        f"{VALIDATOR}ExplorerConfigValidator",
        "set its model_path",
    ),
    _of_workflows(
        AUXILIARY,
        JUDGED,
        lambda v: not v[AUXILIARY],
        "{workflow} calls a model of explorer.auxiliary_models, which names none",
        "trinity/common/workflows/workflow.py, Workflow.__init__",
        "add the judge or the teacher to explorer.auxiliary_models",
    ),
    _of_workflows(
        f"{ENGINE}.enable_openai_api",
        SERVED,
        lambda v: not v[f"{ENGINE}.enable_openai_api"] and v["mode"] != "serve",
        said("{{workflow}} calls the engine by its OpenAI API, but {engine}.enable_openai_api is false", engine=ENGINE),
        "trinity/common/models/model.py, ModelWrapper.get_openai_client",
        said("set {engine}.enable_openai_api to true", engine=ENGINE),
    ),
    _of_workflows(
        f"{ENGINE}.enable_history",
        RECORDED,
        lambda v: not v[f"{ENGINE}.enable_history"],
        said(
            "{{workflow}} takes its samples from the engine's history, but {engine}.enable_history is false",
            engine=ENGINE,
        ),
        STEPS,
        said("set {engine}.enable_history to true", engine=ENGINE),
    ),
    Requirement(
        "data_processor.experience_pipeline.input_save_path",
        _saves_nowhere,
        "data_processor.experience_pipeline.input_save_path {data_processor.experience_pipeline.input_save_path} is neither a "
        ".jsonl file nor the URL of a database",
        "trinity/buffer/pipelines/experience_pipeline.py, ExperiencePipeline._init_input_storage",
        "name a .jsonl file",
    ),
    Requirement(
        f"{INPUT}.taskset.workflow_args",
        _wrong_argument,
        "workflow_args.{argument} of a task set is not what its workflow takes",
        "trinity/common/workflows/workflow.py, Workflow.__init__",
        "set workflow_args.{argument} as the workflow describes it",
        numbers={"argument": _wrong_argument},
    ),
    _of_workflows(
        AUXILIARY,
        TAUGHT,
        _teaches_by_sglang,
        "{workflow} asks the teacher of explorer.auxiliary_models for log-probs, which engine_type sglang does not give",
        "trinity/common/models/sglang_model.py, SGLangRolloutModel.logprobs",
        "set engine_type of the teacher to vllm",
    ),
    _of_workflows(
        f"{ENGINE}.engine_type",
        TURNS,
        lambda v: v[f"{ENGINE}.engine_type"] == "sglang",
        "{workflow} tokenizes whole conversations with the engine, which engine_type sglang does not offer",
        "trinity/common/models/sglang_model.py, SGLangRolloutModel.convert_messages_to_experience",
        said("set {engine}.engine_type to vllm", engine=ENGINE),
    ),
)
