"""What ROLL's pipelines refuse when they start: runs to continue, distillation, a pipeline that only answers, small batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.roll.requirement_values import (
    device_numbers,
    devices,
    is_agentic,
    is_rlvr,
    ranks,
    ranks_of,
    responses,
    setting,
    strategy,
)
from rlctl.common.filenames import expanded, is_folder
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

RESUME = "resume_from_checkpoint"
TRACKER = "latest_checkpointed_iteration.txt"
CHECKPOINT = "mcore_adapter/src/mcore_adapter/checkpointing.py"
TRANSFER = "roll/pipeline/distill/logits_transfer_group.py, LogitsTransferGroup"
ROLLOUT = "roll/pipeline/rlvr/rlvr_rollout_pipeline.py, RLVRRolloutPipeline.__init__"
DYNAMIC = "roll/utils/dynamic_batching.py, dynamic_batching_shard"
CONFIG = "actor_infer.strategy_args.strategy_config"


def _resumed(values: Values) -> Path | None:
    """The folder here that a run with Megatron continues from."""
    path = values[RESUME]
    if strategy(values, "actor_train") != "megatron_train" or not isinstance(path, str) or not is_folder(path):
        return None
    return Path(expanded(path))


def _without_weights(values: Values) -> bool:
    """Whether a folder has neither the file that names the newest weights nor weights that any number of ranks loads."""
    folder = _resumed(values)
    if folder is None:
        return False
    return not (folder / TRACKER).is_file() and not (folder / "iter_0000001" / "dist_model").is_dir()


def _iteration(values: Values) -> str:
    """What the file of the newest weights holds, if Megatron does not take it."""
    folder = _resumed(values)
    file = folder / TRACKER if folder is not None else None
    if file is None or not file.is_file() or (file.parent / "iter_0000001" / "dist_model").is_dir():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace").strip()
    return "" if text == "release" or (text.isdigit() and int(text) > 0) else text[:20] or "''"


def _only_answers(values: Values) -> bool:
    return values.program.endswith("start_rlvr_rollout_pipeline.py")


def _by_engine(values: Values, *names: str) -> bool:
    return _only_answers(values) and strategy(values, "actor_infer") in names


def _judged_by_megatron(values: Values) -> str:
    """A judge whose model Megatron would run."""
    for name, reward in (values["rewards"] or {}).items():
        given = reward if isinstance(reward, Mapping) else {}
        engine = str((given.get("strategy_args") or {}).get("strategy_name") or "")
        if given.get("judge_model_type") == "inference" and engine.startswith("megatron"):
            return str(name)
    return ""


def _distills(values: Values) -> bool:
    return values.written("student") and values.written("teacher") and not is_agentic(values) and not is_rlvr(values)


def _step_rows(values: Values) -> int:
    """Rows of a step of distillation."""
    arguments = "student.training_args"
    each = values.number(f"{arguments}.per_device_train_batch_size", 8)
    return each * values.number(f"{arguments}.gradient_accumulation_steps") * ranks_of(values, "student")


def _teacher_rows(values: Values) -> int:
    """Rows of a step that one rank of the teacher gets."""
    return _step_rows(values) // ranks_of(values, "teacher")


def _first_devices(values: Values, role: str, tensor: int = 0) -> list[int]:
    """The GPU of each data-parallel rank that holds logits: of the last stage, by its rank in the tensor-parallel group."""
    numbers, count = device_numbers(values, role), ranks_of(values, role)
    size = setting(values, role, "tensor_model_parallel_size") * setting(values, role, "context_parallel_size")
    start = len(numbers) - count * size
    return [numbers[start + rank * size + tensor] for rank in range(count)]


def _pairs(teachers: int, students: int) -> Iterator[tuple[int, int]]:
    """Ranks of the teacher and of the student that pass logits on."""
    for student in range(students):
        if teachers >= students:
            ratio = teachers // students
            yield from ((student * ratio + index, student) for index in range(ratio))
        else:
            yield student // (students // teachers), student


def _shares_gpu(values: Values) -> bool:
    """Whether NCCL alone would pass logits within one GPU, which it cannot."""
    if not (_distills(values) and values["logits_transfer_backend"] == "nccl-only"):
        return False
    if not all(strategy(values, role).startswith("megatron") for role in ("teacher", "student")):
        return False
    teacher, student = _first_devices(values, "teacher"), _first_devices(values, "student")
    pairs = list(_pairs(len(teacher), len(student)))
    if setting(values, "teacher", "tensor_model_parallel_size") > 1:
        second = _first_devices(values, "teacher", 1)
        return any(teacher[source] == student[target] == second[source] for source, target in pairs)
    shifts = range(len(teacher))
    return all(
        any(teacher[(source + shift) % len(teacher)] == student[target] for source, target in pairs) for shift in shifts
    )


def _shifted(values: Values) -> bool:
    """Whether NCCL alone passes logits, and rows are shifted by whole ranks of the teacher so that no GPU gets its own."""
    if not (_distills(values) and values["logits_transfer_backend"] == "nccl-only" and not _shares_gpu(values)):
        return False
    teacher, student = _first_devices(values, "teacher"), _first_devices(values, "student")
    if setting(values, "teacher", "tensor_model_parallel_size") > 1:
        return False
    return any(teacher[source] == student[target] for source, target in _pairs(len(teacher), len(student)))


def _reference_rows(values: Values) -> int:
    return values.number("reference.infer_batch_size", 16) * ranks_of(values, "reference")


def _validation_rows(values: Values) -> int:
    """Pairs of a step of DPO's validation."""
    each = values.number("actor_train.infer_batch_size", 16)
    steps = values.number("actor_train.training_args.gradient_accumulation_steps")
    return each * steps * ranks_of(values, "actor_train")


def _stages(values: Values) -> int:
    """Pipeline stages of a rank, if micro-batches are filled by tokens and each rank has several model parts; else 0."""
    config = "actor_train.strategy_args.strategy_config"
    filled = any(values[f"actor_train.use_dynamic_batching_in_{phase}"] for phase in ("train", "infer"))
    parts = values[f"{config}.virtual_pipeline_model_parallel_size"]
    stages = setting(values, "actor_train", "pipeline_model_parallel_size")
    return stages if filled and parts and stages > 1 else 0


def _rank_responses(values: Values) -> int:
    return responses(values) // ranks(values)


ROWS: tuple[Requirement, ...] = (
    Requirement(
        RESUME,
        _without_weights,
        said("{key} {{{key}}} has neither {file} nor iter_0000001/dist_model", key=RESUME, file=TRACKER),
        "roll/distributed/strategy/megatron_strategy.py, MegatronTrainStrategy.load_checkpoint",
        said("name a folder that ROLL wrote with Megatron in {key}", key=RESUME),
    ),
    Requirement(
        RESUME,
        _iteration,
        said("{file} in {key} holds {{text}}; expected the number of a step", key=RESUME, file=TRACKER),
        f"{CHECKPOINT}, read_metadata",
        said("write 1 into the file, as ROLL does"),
        numbers={"text": _iteration},
    ),
    Requirement(
        f"{CONFIG}.load_format",
        lambda v: _by_engine(v, "vllm", "sglang") and (v[f"{CONFIG}.load_format"] or "dummy") == "dummy",
        said("the pipeline that only answers loads no weights: {config}.load_format is dummy", config=CONFIG),
        ROLLOUT,
        Remedy(f"{CONFIG}.load_format", "auto"),
    ),
    Requirement(
        f"{CONFIG}.sleep_level",
        lambda v: _by_engine(v, "vllm") and v[f"{CONFIG}.sleep_level"] not in (None, 1),
        said("{config}.sleep_level is {{{config}.sleep_level}}; the pipeline that only answers takes 1", config=CONFIG),
        ROLLOUT,
        Remedy(f"{CONFIG}.sleep_level", 1),
    ),
    Requirement(
        "validation",
        lambda v: _only_answers(v) and not v.written("validation.data_args"),
        "validation has no data_args, and the pipeline that only answers reads its prompts there",
        ROLLOUT,
        "set validation.data_args",
    ),
    *(
        Requirement(
            f"{role}.device_mapping",
            lambda v, role=role: (  # type: ignore[misc]
                is_agentic(v) and v.written(f"{role}.device_mapping") and devices(v, role) == 0
            ),
            said("{role}.device_mapping names no GPU", role=role),
            "roll/pipeline/agentic/agentic_pipeline.py, AgenticPipeline._validate_partial_gpu_config",
            said("name the GPUs of {role} in {role}.device_mapping", role=role),
        )
        for role in ("actor_train", "actor_infer")
    ),
    Requirement(
        "rewards",
        _judged_by_megatron,
        "the judge {judge} is to run on Megatron, for which ROLL has no reward model",
        "roll/models/model_providers.py, default_reward_model_provider",
        "set its strategy_args.strategy_name to vllm",
        numbers={"judge": _judged_by_megatron},
    ),
    Requirement(
        "teacher.training_args.per_device_train_batch_size",
        lambda v: (
            _distills(v) and v.number("teacher.training_args.per_device_train_batch_size", 8) > _teacher_rows(v) > 0
        ),
        "a micro-batch of the teacher has {teacher.training_args.per_device_train_batch_size} rows, but a rank gets {rows} of a "
        "step",
        "roll/pipeline/distill/distill_worker.py, TeacherWorker.forward",
        Remedy("teacher.training_args.per_device_train_batch_size", NEAREST),
        numbers={"rows": _teacher_rows},
        when="update",
    ),
    Requirement(
        "logits_transfer_backend",
        _shares_gpu,
        "logits_transfer_backend is nccl-only, but teacher and student share GPUs so that logits would stay on one",
        f"{TRANSFER}.make_comm_plan",
        Remedy("logits_transfer_backend", "ipc+nccl"),
    ),
    Requirement(
        "logits_transfer_backend",
        lambda v: _shifted(v) and _step_rows(v) % ranks_of(v, "teacher"),
        "a step of {rows} rows is not divisible by the {ranks} ranks of the teacher, which nccl-only needs on shared GPUs",
        f"{TRANSFER}.apply_offset_by_dp",
        Remedy("logits_transfer_backend", "ipc+nccl"),
        numbers={"rows": _step_rows, "ranks": lambda v: ranks_of(v, "teacher")},
    ),
    Requirement(
        "reference.infer_batch_size",
        lambda v: (
            v.written("chosen_key") and v.written("validation.data_args") and _reference_rows(v) > _validation_rows(v)
        ),
        "the reference takes {reference} pairs at a time, more than the {step} of a step of validation",
        "roll/pipeline/dpo/dpo_pipeline.py, DPOPipeline.__init__",
        Remedy("reference.infer_batch_size", NEAREST, "actor_train.infer_batch_size"),
        numbers={"reference": _reference_rows, "step": _validation_rows},
    ),
    Requirement(
        "actor_train.strategy_args.strategy_config.pipeline_model_parallel_size",
        lambda v: is_rlvr(v) and _stages(v) > _rank_responses(v),
        "a rank has {own} responses of a step, fewer than its {stages} pipeline stages: micro-batches filled by tokens need one "
        "for each",
        DYNAMIC,
        Remedy("rollout_batch_size", NEAREST),
        numbers={"own": _rank_responses, "stages": _stages},
        when="update",
    ),
    Requirement(
        "actor_train.strategy_args.strategy_config.pipeline_model_parallel_size",
        lambda v: is_rlvr(v) and 0 < _stages(v) <= _rank_responses(v) and _rank_responses(v) % _stages(v),
        "a rank has {own} responses of a step, which its {stages} pipeline stages do not divide: a step of long responses stops "
        "the run",
        DYNAMIC,
        Remedy("rollout_batch_size", NEAREST),
        numbers={"own": _rank_responses, "stages": _stages},
        level=Level.WARNING,
        when="update",
    ),
)
