"""What Trinity-RFT refuses before it starts, read from the source of release 0.6.0."""

from __future__ import annotations

from functools import partial

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Requirements, Values
from rlctl.adapters.trinity import (
    argument_limits,
    engine_limits,
    folder_limits,
    ineffective,
    input_limits,
    legacy_limits,
    row_limits,
    user_limits,
)
from rlctl.adapters.trinity.batch import STYLES
from rlctl.adapters.trinity.keys import MODES
from rlctl.adapters.trinity.requirement_values import (
    ENGINE,
    PARALLEL,
    TRAINER,
    cluster_devices,
    engine_devices,
    explorer_devices,
    longest,
    own_devices,
    rank_devices,
    ranks,
    split_over,
    train_batch,
    trainer_devices,
    trains,
)
from rlctl.common.filenames import is_folder
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

FILES = (".parquet", ".json", ".jsonl", ".csv", ".arrow")
ALGORITHMS = (
    *(
        "cpt",
        "sft",
        "ppo",
        "grpo",
        "dapo",
        "reinforceplusplus",
        "rloo",
        "opmd",
        "asymre",
        "dpo",
        "topr",
        "cispo",
        "gspo",
    ),
    *(
        "sapo",
        "mix",
        "mix_chord",
        "raft",
        "sppo",
        "rec",
        "multi_step_grpo",
        "gigpo",
        "on_policy_distill",
        "jsd",
        "grpo_verl",
    ),
)
MONITORS = ("tensorboard", "wandb", "mlflow", "swanlab")
CONCURRENCY = ("sequential", "asynchronous", "multi-threading")
OFFLINE = ("sft", "dpo", "cpt")
VALIDATOR = "trinity/common/config_validator.py, "
INPUT = "buffer.explorer_input"
READERS = {
    **dict.fromkeys((f"{INPUT}.taskset", f"{INPUT}.tasksets", f"{INPUT}.eval_tasksets"), "TaskFileReader"),
    "buffer.trainer_input.experience_buffer": "ExperienceFileReader",
}
"""Where data is read from, and what reads it."""


WORKERS = "verl/workers/engine_workers.py, TrainingWorker.train_mini_batch"
IN_CONFIG = {"0.4": "trinity/common/config.py, Config.check_and_update"}
"""Where 0.4 checks what later releases have validators for."""
CHECKED_BY_05 = {"0.5": "trinity/trainer/verl/verl_config.py, veRLConfig._check_parallel_config"}


def _has_source(values: Values) -> bool:
    written = values["buffer.explorer_input.taskset"] or values["buffer.explorer_input.tasksets"]
    return bool(written) or bool(values["buffer.explorer_input.taskset.path"])


def _styles(values: Values) -> str:
    """The styles other than fixed, as the release calls them."""
    pairs = STYLES.names.items()
    return " or ".join(old if values.view.version < (0, 5) else new for old, new in pairs)


def _checked_devices(values: Values) -> int:
    """The trainer's GPUs, which 0.4 takes for those of a bench run too."""
    return cluster_devices(values) if values["mode"] == "bench" else trainer_devices(values)


def _single_files(values: Values, key: str) -> list[str]:
    """Paths of single data files: a folder may have such a name."""
    found = values[key] or {}
    sources = found if isinstance(found, (list, tuple)) else [found]
    usual = "file" if key.startswith(INPUT) else "queue"
    paths = [str(source.get("path") or "") for source in sources if source.get("storage_type", usual) == "file"]
    return [path for path in paths if path.endswith(FILES) and not is_folder(path)]


ROWS: tuple[Requirement, ...] = (
    Requirement(
        "trainer.max_token_len_per_gpu",
        lambda v: (
            v["mode"] in ("both", "train")
            and v["trainer.use_dynamic_bsz"] is not False
            and 0 < v.number("trainer.max_token_len_per_gpu", 0) * split_over(v) < longest(v)
        ),
        "trainer.max_token_len_per_gpu may be too small: {trainer.max_token_len_per_gpu} tokens x {split} GPUs a sequence is "
        "less than the longest sequence, {longest}. The trainer stops at the first sequence that is longer than the budget",
        "verl/utils/seqlen_balancing.py, rearrange_micro_batches",
        Remedy("trainer.max_token_len_per_gpu", NEAREST, "model.max_model_len"),
        numbers={"split": split_over, "longest": longest},
        level=Level.WARNING,
    ),
    Requirement(
        "mode",
        lambda v: v["mode"] not in MODES,
        said("mode is {{mode}}; expected one of {modes}", modes=", ".join(MODES)),
        f"{VALIDATOR}GlobalConfigValidator",
        Remedy("mode", tuple(MODES)),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "algorithm.algorithm_type",
        lambda v: v["algorithm.algorithm_type"] not in ALGORITHMS,
        "algorithm.algorithm_type is {algorithm.algorithm_type}, which Trinity does not register; only a plug-in could",
        f"{VALIDATOR}AlgorithmConfigValidator",
        Remedy("algorithm.algorithm_type", tuple(ALGORITHMS)),
    ),
    Requirement(
        "mode",
        lambda v: v["algorithm.algorithm_type"] in OFFLINE and v["mode"] in ("both", "explore"),
        "algorithm.algorithm_type {algorithm.algorithm_type} does not support mode {mode}",
        "trinity/algorithm/algorithm.py, check_config",
        Remedy("mode", "train"),
        since="0.4",
    ),
    Requirement(
        "buffer.trainer_input.experience_buffer.path",
        lambda v: (
            v["algorithm.algorithm_type"] in OFFLINE
            and v["mode"] == "train"
            and not v["buffer.trainer_input.experience_buffer.path"]
        ),
        "algorithm.algorithm_type {algorithm.algorithm_type} needs buffer.trainer_input.experience_buffer.path",
        "trinity/algorithm/algorithm.py, check_config",
        "set it to the training data",
        since="0.4",
    ),
    Requirement(
        "buffer.train_batch_size",
        lambda v: (
            not v["buffer.train_batch_size"]
            and (v["mode"] == "train" or v["algorithm.algorithm_type"] in ("sft", "dpo"))
        ),
        "buffer.train_batch_size is not set, which mode train, sft and dpo need",
        f"{VALIDATOR}BufferConfigValidator",
        "set buffer.train_batch_size",
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "model.max_model_len",
        lambda v: (
            v["model.max_model_len"] is None and None in (v["model.max_prompt_tokens"], v["model.max_response_tokens"])
        ),
        "model.max_model_len is not set, and cannot be computed: it needs max_prompt_tokens and max_response_tokens",
        f"{VALIDATOR}ModelConfigValidator._check_model_len",
        "set model.max_model_len",
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "model.max_model_len",
        lambda v: v["model.max_prompt_tokens"] + v["model.max_response_tokens"] > v["model.max_model_len"],
        "model.max_prompt_tokens + model.max_response_tokens ({model.max_prompt_tokens} + {model.max_response_tokens}) is more "
        "than model.max_model_len ({model.max_model_len})",
        f"{VALIDATOR}ModelConfigValidator._check_model_len",
        Remedy("model.max_model_len", NEAREST),
        since="0.5",
        older=IN_CONFIG,
    ),
    *(
        Requirement(
            f"{ENGINE}.{name}",
            lambda v, name=name: v[f"{ENGINE}.engine_type"] not in ("external", "tinker") and v[f"{ENGINE}.{name}"] < 1,  # type: ignore[misc]
            said("{engine}.{name} is {{{engine}.{name}}}; expected at least 1", engine=ENGINE, name=name),
            f"{VALIDATOR}ExplorerConfigValidator._validate_inference_parallel_config",
            Remedy(f"{ENGINE}.{name}", 1),
        )
        for name in PARALLEL
    ),
    Requirement(
        f"{ENGINE}.tensor_parallel_size",
        lambda v: (
            own_devices(v)
            and engine_devices(v) > v["cluster.gpu_per_node"]
            and engine_devices(v) % v["cluster.gpu_per_node"]
        ),
        "a rollout engine over several nodes needs a multiple of cluster.gpu_per_node ({cluster.gpu_per_node}) GPUs",
        f"{VALIDATOR}RayClusterConfigValidator._validate_multinode_inference_models",
        Remedy(f"{ENGINE}.tensor_parallel_size", NEAREST),
    ),
    Requirement(
        "cluster.gpu_per_node",
        lambda v: (
            own_devices(v) and v["mode"] in ("explore", "bench", "serve") and explorer_devices(v) > cluster_devices(v)
        ),
        "the explorer needs more GPUs than the cluster has ({cluster.node_num} x {cluster.gpu_per_node})",
        f"{VALIDATOR}RayClusterConfigValidator._set_gpu_allocation_info",
        Remedy(f"{ENGINE}.engine_num", NEAREST),
    ),
    Requirement(
        "cluster.gpu_per_node",
        lambda v: own_devices(v) and v["mode"] in ("both", "train") and trainer_devices(v) < 1,
        "the explorer takes all {cluster.node_num} x {cluster.gpu_per_node} GPUs: none are left for the trainer",
        f"{VALIDATOR}RayClusterConfigValidator._set_gpu_allocation_info",
        Remedy(f"{ENGINE}.engine_num", NEAREST),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        f"{ENGINE}.engine_num",
        lambda v: (
            own_devices(v)
            and v["mode"] in ("both", "train")
            and trainer_devices(v) > v["cluster.gpu_per_node"]
            and trainer_devices(v) % v["cluster.gpu_per_node"]
        ),
        "the GPUs that the explorer leaves for the trainer are not a whole number of nodes of {cluster.gpu_per_node} GPUs",
        f"{VALIDATOR}RayClusterConfigValidator._set_gpu_allocation_info",
        Remedy(f"{ENGINE}.engine_num", NEAREST),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        f"{ENGINE}.engine_num",
        lambda v: trains(v) and trainer_devices(v) % rank_devices(v),
        "the number of trainer GPUs ({trainer}) is not divisible by that of one data-parallel rank ({share})",
        WORKERS,
        Remedy(f"{ENGINE}.engine_num", NEAREST),
        numbers=TRAINER,
        older=CHECKED_BY_05,
    ),
    Requirement(
        "buffer.train_batch_size",
        lambda v: trains(v) and not trainer_devices(v) % rank_devices(v) and train_batch(v) % ranks(v),
        "a train batch of {batch} responses is not divisible by the {ranks} data-parallel ranks of {trainer} trainer GPUs",
        WORKERS,
        Remedy(f"{ENGINE}.engine_num", NEAREST),
        numbers=TRAINER,
        older=CHECKED_BY_05,
    ),
    Requirement(
        "buffer.train_batch_size",
        lambda v: (trains(v) or v["mode"] == "bench") and train_batch(v) % _checked_devices(v),
        "a train batch of {batch} responses is not divisible by the {trainer} trainer GPUs",
        "trinity/common/verl_config.py, veRLConfig.synchronize_config",
        Remedy(f"{ENGINE}.engine_num", NEAREST),
        numbers={**TRAINER, "trainer": _checked_devices},
        since="0.4",
        until="0.4",
    ),
    Requirement(
        "mode",
        lambda v: v["mode"] == "colocate",
        "Trinity has mode colocate since 0.5",
        IN_CONFIG["0.4"],
        Remedy("mode", "both"),
        since="0.4",
        until="0.4",
    ),
    Requirement(
        "synchronizer.sync_style",
        lambda v: str(v["synchronizer.sync_style"]).lower() in STYLES.names.values(),
        "Trinity has synchronizer.sync_style {synchronizer.sync_style} since 0.5",
        "trinity/common/constants.py, SyncStyle",
        "set it to {styles}, or to fixed",
        numbers={"styles": _styles},
        since="0.4",
        until="0.4",
    ),
    Requirement(
        "cluster.gpu_per_node",
        lambda v: own_devices(v) and v["mode"] == "colocate" and cluster_devices(v) != 1,
        "mode colocate is for one GPU, but the cluster has {cluster.node_num} x {cluster.gpu_per_node}",
        f"{VALIDATOR}RayClusterConfigValidator._set_gpu_allocation_info",
        Remedy("mode", "both"),
        since="0.5",
    ),
    Requirement(
        f"{ENGINE}.engine_num",
        lambda v: (
            own_devices(v)
            and v["mode"] == "colocate"
            and (
                v.number(f"{ENGINE}.engine_num") != 1 or engine_devices(v) != 1 or bool(v["explorer.auxiliary_models"])
            )
        ),
        "mode colocate takes one rollout engine of one GPU, and no auxiliary models",
        f"{VALIDATOR}RayClusterConfigValidator._set_gpu_allocation_info",
        Remedy("mode", "both"),
    ),
    Requirement(
        "explorer.over_rollout.ratio",
        lambda v: v["explorer.over_rollout.ratio"] >= 1.0,
        "explorer.over_rollout.ratio is {explorer.over_rollout.ratio}; expected less than 1",
        f"{VALIDATOR}ExplorerConfigValidator",
        "set it below 1",
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "synchronizer.sync_style",
        lambda v: (
            (v["explorer.over_rollout.ratio"] > 0 or v["explorer.over_rollout.return_partial_tasks"])
            and v["synchronizer.sync_style"] == "fixed"
        ),
        "explorer.over_rollout does not work with synchronizer.sync_style fixed",
        f"{VALIDATOR}ExplorerConfigValidator",
        "set synchronizer.sync_style to {styles}",
        since="0.5",
        older=IN_CONFIG,
        numbers={"styles": _styles},
    ),
    Requirement(
        "explorer.concurrent_mode",
        lambda v: v["explorer.concurrent_mode"] not in (None, *CONCURRENCY),
        said(
            "explorer.concurrent_mode is {{explorer.concurrent_mode}}; expected one of {concurrency}",
            concurrency=", ".join(CONCURRENCY),
        ),
        f"{VALIDATOR}ExplorerConfigValidator",
        Remedy("explorer.concurrent_mode", tuple(CONCURRENCY)),
        since="0.5",
    ),
    Requirement(
        "model.lora_configs",
        lambda v: not v["model.tinker.enable"] and len(v["model.lora_configs"] or []) > 1,
        "model.lora_configs has several adapters, but Trinity takes one",
        f"{VALIDATOR}ExplorerConfigValidator._validate_lora",
        "keep one",
    ),
    Requirement(
        "synchronizer.sync_interval",
        lambda v: v["synchronizer.sync_interval"] <= 0,
        "synchronizer.sync_interval is {synchronizer.sync_interval}; expected at least 1",
        f"{VALIDATOR}SynchronizerConfigValidator",
        Remedy("synchronizer.sync_interval", 1),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "monitor.monitor_type",
        lambda v: v["monitor.monitor_type"] not in MONITORS,
        said(
            "monitor.monitor_type is {{monitor.monitor_type}}; expected one of {monitors}", monitors=", ".join(MONITORS)
        ),
        f"{VALIDATOR}MonitorConfigValidator",
        Remedy("monitor.monitor_type", tuple(MONITORS)),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "buffer.explorer_input.taskset",
        lambda v: bool(v["buffer.explorer_input.taskset.path"]) and bool(v["buffer.explorer_input.tasksets"]),
        "buffer.explorer_input has both taskset and tasksets",
        f"{VALIDATOR}BufferConfigValidator._check_explorer_input",
        "keep one of them",
    ),
    Requirement(
        "buffer.explorer_input.taskset.path",
        lambda v: v["mode"] in ("both", "explore", "colocate") and not _has_source(v),
        "buffer.explorer_input names no taskset",
        f"{VALIDATOR}BufferConfigValidator._check_explorer_input",
        "set buffer.explorer_input.taskset.path",
        check_code="no-data",
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "buffer.explorer_input.taskset.path",
        lambda v: (
            v["mode"] in ("both", "explore", "colocate", "bench")
            and v.written("buffer.explorer_input.taskset")
            and not v["buffer.explorer_input.taskset.path"]
        ),
        "buffer.explorer_input.taskset has no path",
        f"{VALIDATOR}BufferConfigValidator._fill_taskset_config",
        "set buffer.explorer_input.taskset.path",
        check_code="no-data",
        since="0.5",
        older=IN_CONFIG,
    ),
    *(
        Requirement(
            key,
            partial(_single_files, key=key),
            said("{key} names a single file, but load_dataset takes a folder or a dataset's name", key=key),
            f"trinity/buffer/reader/file_reader.py, {reader}",
            "put each file into a separate folder, and name the folder",
            writer_code="data-files",
        )
        for key, reader in READERS.items()
    ),
    Requirement(
        "model.external_model.enable",
        lambda v: v["model.external_model.enable"] and v["mode"] != "bench",
        "model.external_model is for mode bench only, but mode is {mode}",
        f"{VALIDATOR}ModelConfigValidator._check_external_model",
        Remedy("mode", "bench"),
    ),
    Requirement(
        "trainer.save_hf_checkpoint",
        lambda v: (
            v["mode"] in ("train", "both", "colocate")
            and v["trainer.trainer_type"] == "verl"
            and v["trainer.save_hf_checkpoint"] not in ("last", "always", "never")
        ),
        "trainer.save_hf_checkpoint is {trainer.save_hf_checkpoint}; expected last, always or never",
        f"{VALIDATOR}TrainerConfigValidator",
        Remedy("trainer.save_hf_checkpoint", ("last", "always", "never")),
        since="0.5",
        older=IN_CONFIG,
    ),
    Requirement(
        "trainer.trainer_type",
        lambda v: v["mode"] in ("train", "both", "colocate") and v["trainer.trainer_type"] not in ("verl", "tinker"),
        "trainer.trainer_type is {trainer.trainer_type}; expected verl or tinker",
        f"{VALIDATOR}TrainerConfigValidator",
        Remedy("trainer.trainer_type", "verl"),
        since="0.5",
        older=IN_CONFIG,
    ),
)


def _is_checked(key: str) -> bool:
    """Whether Trinity's own schema holds a key: what is below these is free."""
    return not key.startswith(("trainer.trainer_config.", "data_processor.", "service."))


NULLABLE = frozenset(
    {
        *("rollout_correction", "task_selector", "explorer_output", "experience_buffer", "replay_buffer", "output"),
        *("task_pipeline", "rope_scaling", "lora_configs", "monitor_args", "data_juicer", "trainer_config"),
    }
)
"""The last parts of sections that may be null, besides arguments of functions."""


def _no_null(key: str) -> bool:
    last = key.rpartition(".")[2]
    is_free = key.startswith("trainer.trainer_config.") or last.endswith(("_fn_args", "strategy_args"))
    return not is_free and last not in NULLABLE


REQUIREMENTS = Requirements(
    "0.6.0",
    (
        *(*ROWS, *argument_limits.ROWS, *input_limits.ROWS, *engine_limits.ROWS, *ineffective.ROWS, *user_limits.ROWS),
        *(*legacy_limits.ROWS, *row_limits.ROWS, *folder_limits.ROWS),
    ),
    strict=_is_checked,
    no_null=(_no_null, "trinity/common/config.py, load_config"),
    older=("0.4", "0.5"),
)
