"""What Trinity-RFT refuses with a verl older than 0.8, which has a trainer of its own there, and of an earlier run's files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.trinity.keys import ACTOR, CRITIC_C, MODEL, REF, TC
from rlctl.adapters.trinity.requirement_values import WITH_CRITIC, ranks, train_batch, trainer_devices, trains
from rlctl.adapters.trinity.train import strategy
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.column_types import column_types
from rlctl.planning.models import model_config

LEGACY = "trinity/trainer/verl_legacy"
FSDP = f"{LEGACY}/fsdp_workers.py, "
MEGATRON = f"{LEGACY}/megatron_workers.py, "
INPUT = "buffer.explorer_input"
SCHEDULES = ("constant", "cosine")


def _by_megatron(values: Values) -> bool:
    return trains(values) and strategy(values.view) == "megatron"


def _by_fsdp(values: Values) -> bool:
    return trains(values) and strategy(values.view) != "megatron"


def _mini_batch(values: Values) -> int:
    """Responses of a train step on one rank."""
    return train_batch(values) // ranks(values)


def _micro_batch(key: str, source: str, applies: Callable[[Values], object]) -> Requirement:
    micro = f"{key}.ppo_micro_batch_size_per_gpu"
    return Requirement(
        micro,
        lambda v: (
            trains(v)
            and applies(v)
            and v["trainer.use_dynamic_bsz"] is False
            and train_batch(v) % ranks(v) == 0
            and v.number(micro) > 0
            and _mini_batch(v) % v.number(micro)
        ),
        said(
            "a rank has {{own}} responses of a step, which {micro} ({{{micro}}}) does not divide: with a verl older than 0.8 the "
            "trainer stops",
            micro=micro,
        ),
        source,
        Remedy(micro, NEAREST),
        numbers={"own": _mini_batch},
        level=Level.WARNING,
    )


def _with_critic(values: Values) -> bool:
    return values["algorithm.algorithm_type"] in WITH_CRITIC


def _group_of_stages(values: Values) -> int:
    """Pipeline stages that share micro-batches in turns, if these are filled by tokens; else 0."""
    parts = values["trainer.megatron.virtual_pipeline_model_parallel_size"]
    turns = _by_megatron(values) and values["trainer.use_dynamic_bsz"] is not False and parts and int(parts) > 1
    return values.number("trainer.megatron.pipeline_model_parallel_size") if turns else 0


def _shards(values: Values) -> int:
    return values.number(f"{ACTOR}.fsdp_config.fsdp_size", -1)


def _profiled(values: Values) -> bool:
    profiler = values[f"{TC}.global_profiler"]
    if not isinstance(profiler, dict) or profiler.get("steps") is None or profiler.get("tool") != "nsys":
        return False
    options = ((profiler.get("global_tool_config") or {}).get("nsys") or {}).get("worker_nsight_options")
    return options is None


def _predicts_more(values: Values) -> bool:
    return _by_megatron(values) and bool(values[f"{MODEL}.mtp.enable"])


def _without_prediction(values: Values) -> bool:
    config = model_config(str(values["model.model_path"] or "")) or {}
    return bool(config) and not config.get("num_nextn_predict_layers")


def _old(
    key: str, refused: Callable[[Values], object], message: str, source: str, hint: str, **others: Any
) -> Requirement:
    return Requirement(key, refused, message, source, hint, level=Level.WARNING, **others)


def _of_old_trainers() -> Iterator[Requirement]:
    """Settings that the trainer for a verl older than 0.8 refuses."""
    yield _micro_batch(ACTOR, f"{FSDP}ActorRolloutRefWorker.__init__", _by_fsdp)
    yield _micro_batch(CRITIC_C, f"{FSDP}CriticWorker.__init__", lambda v: _by_fsdp(v) and _with_critic(v))
    size = f"{ACTOR}.fsdp_config.fsdp_size"
    yield _old(
        size,
        lambda v: _by_fsdp(v) and 0 < _shards(v) < trainer_devices(v) and trainer_devices(v) % _shards(v),
        said(
            "{size} ({{{size}}}) does not divide the {{trainer}} trainer GPUs: with a verl older than 0.8 Trinity refuses it",
            size=size,
        ),
        f"{LEGACY}/verl_config.py, veRLConfig._check_parallel_config",
        said("set {size} to -1", size=size),
        numbers={"trainer": trainer_devices},
    )
    micro = f"{REF}.log_prob_micro_batch_size_per_gpu"
    yield _old(
        micro,
        lambda v: (
            _by_megatron(v) and v.written(micro) and v[micro] is None and not v[f"{REF}.log_prob_micro_batch_size"]
        ),
        said("{micro} is null: with a verl older than 0.8 the reference on Megatron stops", micro=micro),
        f"{MEGATRON}ActorRolloutRefWorker.__init__",
        said("set {micro} to 1", micro=micro),
    )
    weights = f"{ACTOR}.load_weight"
    yield _old(
        weights,
        lambda v: _by_megatron(v) and v[weights] is False and v[f"{REF}.load_weight"] is not False,
        said(
            "{weights} is false, but the reference loads its weights: with a verl older than 0.8 it stops",
            weights=weights,
        ),
        f"{MEGATRON}ActorRolloutRefWorker._build_model_optimizer",
        said("remove {weights}", weights=weights),
    )
    bridge = f"{ACTOR}.megatron.use_mbridge"
    yield _old(
        bridge,
        lambda v: (
            v[bridge] is False
            and (_predicts_more(v) or (_by_megatron(v) and v[f"{ACTOR}.megatron.dtype"] == "float16"))
        ),
        said(
            "{bridge} is false, but float16 and multi-token prediction need it with a verl older than 0.8",
            bridge=bridge,
        ),
        f"{MEGATRON}MegatronWorker._init_hf_config_and_tf_config",
        said("remove {bridge}", bridge=bridge),
    )
    yield _old(
        f"{MODEL}.mtp.enable",
        lambda v: _predicts_more(v) and _without_prediction(v),
        said(
            "{model}.mtp.enable is true, but {{model.model_path}} has no layer that predicts further tokens",
            model=MODEL,
        ),
        f"{MEGATRON}MegatronWorker._init_hf_config_and_tf_config",
        said("set {model}.mtp.enable to false", model=MODEL),
    )
    stages = "trainer.megatron.pipeline_model_parallel_size"
    yield _old(
        stages,
        lambda v: _group_of_stages(v) > _mini_batch(v) > 0,
        "a rank has {own} responses of a step, fewer than its {stages} pipeline stages: micro-batches filled by tokens need one "
        "for each",
        f"{LEGACY}/utils.py, rearrange_micro_batches",
        "raise buffer.train_batch_size",
        numbers={"own": _mini_batch, "stages": _group_of_stages},
    )
    yield _old(
        f"{TC}.global_profiler",
        lambda v: trains(v) and _profiled(v),
        said("{section}.global_profiler profiles with nsys, and has no worker_nsight_options", section=TC),
        f"{LEGACY}/verl_trainer.py, VerlPPOTrainerWrapper.init_workers",
        said("set {section}.global_profiler.global_tool_config.nsys.worker_nsight_options", section=TC),
    )


def _schedules() -> Iterator[Requirement]:
    """FSDP has two schedules, of whatever release verl is."""
    for key, applies in (
        ("algorithm.optimizer.lr_scheduler_type", _by_fsdp),
        (f"{CRITIC_C}.optim.lr_scheduler_type", lambda v: _by_fsdp(v) and _with_critic(v)),
    ):
        yield Requirement(
            key,
            lambda v, key=key, applies=applies: (  # type: ignore[misc]
                applies(v) and v.written(key) and v[key] is not None and v[key] not in SCHEDULES
            ),
            said("{key} is {{{key}}}; FSDP takes constant or cosine", key=key),
            "verl/workers/config/optimizer.py, FSDPOptimizerConfig.__post_init__",
            said("set {key} to constant or cosine", key=key),
            when="load",
        )


def _job_folder(values: Values) -> Path | None:
    """Where an earlier run of the same name left its files; None if it is not continued."""
    if values["continue_from_checkpoint"] is False and values["mode"] != "bench":
        return None
    names = [str(values[name] or "") for name in ("project", "group", "name")]
    folder = Path(expanded(str(values["checkpoint_root_dir"] or "./checkpoints")), *names)
    return folder if folder.is_dir() else None


def _old_state(values: Values) -> bool:
    """Whether the explorer's state is of an old release, which kept one position, and several task sets are read now."""
    folder = _job_folder(values)
    several = values[f"{INPUT}.tasksets"]
    if folder is None or not isinstance(several, list) or len(several) < 2 or values["mode"] in ("bench", "serve"):
        return False
    file = folder / f"{values['explorer.name'] or 'explorer'}_meta.json"
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and "latest_task_index" in state


def _torn_checkpoint(values: Values) -> str:
    """A folder of an earlier run with the weights of some ranks and none of the first."""
    job = _job_folder(values)
    for folder in sorted(job.glob("global_step_*/actor")) if job is not None else ():
        held = any(folder.glob("model_world_size_*_rank_*.pt")) and not any(folder.glob("model_world_size_*_rank_0.pt"))
        if held and not (folder / "fsdp_config.json").exists() and not (folder / "model.safetensors").exists():
            return str(folder)
    return ""


def _without_workflow(values: Values) -> str:
    """A task set without a workflow: neither it nor the input names one, and no column of its rows does."""
    if values["mode"] not in ("both", "explore", "colocate") or values[f"{INPUT}.default_workflow_type"]:
        return ""
    several = values[f"{INPUT}.tasksets"] or [values[f"{INPUT}.taskset"]]
    for item in (each for each in several if isinstance(each, Mapping)):
        column = (item.get("format") or {}).get("workflow_key")
        if not item.get("path") or item.get("default_workflow_type"):
            continue
        if not column or column not in (_columns(str(item["path"])) or {column}):
            return str(item.get("name") or item["path"])
    return ""


def _columns(path: str) -> set[str]:
    """The columns of local data; empty if they are not known here."""
    place = expanded(path)
    files = [place] if place.is_file() else sorted(place.glob("*.*")) if place.is_dir() else []
    return set(next((types for file in files if (types := column_types(file))), {}))


ROWS: tuple[Requirement, ...] = (
    *_of_old_trainers(),
    *_schedules(),
    Requirement(
        f"{INPUT}.tasksets",
        _old_state,
        "the files of the run to continue are of an old release, which had one task set; several are read now",
        "trinity/buffer/task_scheduler.py, TasksetScheduler.__init__",
        "set continue_from_checkpoint to false, or keep one task set",
    ),
    Requirement(
        "checkpoint_root_dir",
        _torn_checkpoint,
        "{folder} has weights of some ranks, but not of the first: engines cannot load them",
        "trinity/common/models/utils.py, _infer_world_size_from_checkpoint",
        "remove the folder, or set continue_from_checkpoint to false",
        numbers={"folder": _torn_checkpoint},
        level=Level.WARNING,
    ),
    Requirement(
        f"{INPUT}.default_workflow_type",
        _without_workflow,
        "the task set {set} has no workflow: neither default_workflow_type nor a column that format.workflow_key names",
        "trinity/buffer/schema/formatter.py, TaskFormatter.format",
        "set default_workflow_type of the task set",
        numbers={"set": _without_workflow},
        since="0.5",
        when="generation",
    ),
)
