"""verl: names, checkpoints, trackers, profiling and Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.conditions import always
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    SAME,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    Tree,
    Writing,
    further_type,
    own_name,
    split,
)
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.values import Listed, Names, interval
from rlctl.common.report import Finding, Level, finding

A = "actor_rollout_ref.actor"
TRACKERS = ("console", "tensorboard", "swanlab", "wandb", "mlflow")
RESUME = Names({"auto": "auto", "disable": "never", "resume_path": "path"})
OR_LATEST = Names(RESUME.names, fallback="auto")
"""verl's PPO takes any other word for the latest checkpoint; ``on_read`` warns of it."""
RESUME_MODE = "trainer.resume_mode"


class OrFalse(Same):
    """A text, for which false stands for none, as in the defaults of old releases."""

    def read(self, value: Any, view: Reading) -> Any:
        return None if value is False else value


def on_read(values: Mapping[str, Any]) -> Iterator[Finding]:
    """A warning of a word for resuming that verl does not name."""
    mode = find(values, split(RESUME_MODE))
    if isinstance(mode, str) and "${" not in mode and mode.lower() not in RESUME.names:
        yield finding("resume-latest", Level.WARNING, RESUME_MODE, mode=mode)


def _read_trackers(view: Reading) -> Iterator[Flow]:
    raw = view.get("trainer.logger")
    names = list(raw) if isinstance(raw, (list, tuple)) else [raw] if raw else []
    found = [{"type": name if name in TRACKERS else further_type("tracking", str(name), "verl")} for name in names]
    yield Flow(view.to("tracking"), found, (view.path("trainer.logger"),))


def _write_trackers(view: Writing) -> Iterator[Out]:
    trackers = view.get("tracking")
    names = [own_name(tracker["type"], "verl") for tracker in trackers]
    used = tuple(("tracking", index, "type") for index in range(len(names)))
    yield Flow(view.path("trainer.logger"), names, (view.to("tracking"), *used))
    for index, tracker in enumerate(trackers):
        for name, value in tracker.items():
            usual: tuple[Any, ...] = {"mode": ("cloud", "online")}.get(name, (None, {}, ""))
            if name != "type" and value not in usual:
                yield Inexpressible(
                    (("tracking", index, name),), "in verl, environment variables configure the trackers"
                )


def _saves(view: Reading) -> bool:
    every = view.get("trainer.save_freq")
    return isinstance(every, int) and every > 0


AT_END = FollowsFrom(
    "checkpoint.at_end",
    reads=_saves,
    writes=lambda view: view.get("checkpoint.every") is not None,
    note="follows from save_freq",
    reason=lambda view: (
        "verl saves at the end only if save_freq is set"
        if view.get("checkpoint.at_end")
        else "verl saves at the end if save_freq is set"
    ),
    formula="save_freq > 0",
)


def _contents(view: Reading) -> list[Any]:
    for key in (
        f"{A}.checkpoint.save_contents",
        f"{A}.checkpoint.contents",
        "checkpoint.save_contents",
        "trainer.checkpoint.save_contents",
    ):
        value = view.get(key)
        if isinstance(value, list):
            return value
    return []


EXPORT = FollowsFrom(
    "checkpoint.export",
    reads=lambda view: "always" if "hf_model" in _contents(view) else "never",
    writes=lambda view: "always" if "hf_model" in view.get("checkpoint.save_contents") else "never",
    note="hf_model is one of the contents",
    reason="verl writes the Hugging Face model with every checkpoint or with none",
    idle=always,
    formula="hf_model in save_contents",
)


def _has_folder(view: Writing) -> bool:
    return view.get("checkpoint.folder") is not None


def _folder(view: Writing) -> str:
    run = view.config.run
    return f"{run.folder}/{run.project}/{run.name}"


RUN_FOLDER: list[Rule] = [
    WriteOnly(
        "run.folder",
        _has_folder,
        lost="verl has no run folder; checkpoints go to trainer.default_local_dir",
        fills=True,
        formula="default_local_dir = folder/project/name",
    ),
    WriteOnly(
        "run.folder",
        lambda view: not _has_folder(view) and view.explicit("run.folder"),
        "verl writes to FOLDER/PROJECT/NAME",
        "trainer.default_local_dir",
        _folder,
        others=("run.project", "run.name"),
    ),
]
"""A run's folder holds its checkpoints, unless `checkpoint.folder` is set."""


def unread(why: str, *more: str) -> list[Rule]:
    """Entries for the sections of a config that only reinforcement learning reads, and for more."""
    sections = (
        *("algorithm", "rollout", "reference", "weight_sync", "buffer", "service", "profiling", "reward_loop"),
        *("placement", "checkpoint", "runtime", "critic", "rewards[]"),
    )
    whole = [Dropped("critic", why, None), Dropped("rewards", why)]
    return [*[Dropped(f"{section}.**", why, idle=True) for section in (*sections, *more)], *whole]


def checkpoint(root: str, *, asynchronous: Any = FROM_SCHEMA) -> list[Rule]:
    """What a checkpoint holds; ``asynchronous`` is the default of ``async_save`` where no schema has it."""
    return [
        Key(
            f"{root}.save_contents",
            "checkpoint.save_contents",
            convert=Listed(empty=[]),
            also=(DialectKey(f"{root}.contents"),),
        ),
        Key(f"{root}.load_contents", "checkpoint.load_contents", convert=Listed(empty=[])),
        # of SFT since 0.6.1: trainer/config/config.py, CheckpointConfig
        Key(
            f"{root}.async_save",
            "checkpoint.asynchronous",
            asynchronous,
            since="" if asynchronous is FROM_SCHEMA else "0.6",
        ),
    ]


def trainer(*, last: Rule = AT_END, each_epoch: str = "", resume: Names = RESUME) -> list[Rule]:
    """The ``trainer`` keys that PPO and SFT share.

    Args:
        last: what ``checkpoint.at_end`` is.
        each_epoch: the word of ``save_freq`` for once an epoch.
        resume: what a run continues from.
    """
    return [
        Key("trainer.project_name", "run.project", quiet=True),
        Key("trainer.experiment_name", "run.name", quiet=True),
        CustomRule(
            "trackers",
            (DialectKey("trainer.logger"),),
            (
                "tracking",
                *(
                    f"tracking[].{field}"
                    for field in [
                        "folder",
                        "mode",
                        "api_key",
                        "base_url",
                        "args",
                        "uri",
                        "username",
                        "password",
                    ]
                ),
            ),
            _read_trackers,
            _write_trackers,
            by_key={
                "trainer.logger": "tracking[].type",
            },
            why="A list of names becomes a list of sections, whose other fields are lost one by one.",
        ),
        interval("trainer.save_freq", "checkpoint.every", each_epoch=each_epoch),
        last,
        EXPORT,
        Key(RESUME_MODE, "checkpoint.resume", convert=resume),
        Key("trainer.resume_from_path", "checkpoint.resume_path", convert=OrFalse()),
        # 0.9.1 trainer/config/ppo_trainer.yaml: a folder named by the project and the run, for which null stands here
        Key("trainer.default_local_dir", "checkpoint.folder", None),
        Key("trainer.default_hdfs_dir", "checkpoint.remote"),
        Dropped("checkpoint.writers", "verl's processes write at the same time"),
    ]


GENERAL: list[Rule] = [
    Dropped("rlctl", "the schema's version"),
    Dropped("run.group", "verl has no groups of runs", idle=True),
    Dropped("run.seed", "verl has a separate seed for each part"),
    *RUN_FOLDER,
    *[
        Dropped(f"run.{name}", "verl leaves it to the launcher", idle=name.startswith("on_") or name == "max_restarts")
        for name in ["max_steps_this_session", "max_restarts", "on_end", "on_failure", "time_limit"]
    ],
    *[
        Dropped(f"runtime.{name}{below}", "verl uses the shell's environment variables")
        for name in ("env_vars", "role_env_vars")
        for below in ("", ".**")
    ],
    *[
        Dropped(f"runtime.{name}", "verl leaves it to Ray and Hydra", idle=name.startswith("log"))
        for name in ["log_level", "log_folder", "logs_by_node", "log_every", "plugins", "device_memory_check"]
    ],
    *[
        Dropped(f"runtime.ray.{name}", "verl leaves it to Ray", idle=True)
        for name in ["namespace", "call_timeout", "collective_timeout"]
    ],
]

RAY: list[Rule] = [
    Key(
        "ray_kwargs.timeline_json_file",
        "profiling.ray_timeline",
        also=(DialectKey("ray_init.timeline_json_file"),),
    ),
    Key(
        "ray_kwargs.ray_init.num_cpus",
        "runtime.ray.num_cpus",
        also=(DialectKey("ray_init.num_cpus"),),
    ),
]
MODES = Names({False: "full", True: "evaluate_only"}, "verl runs the full loop, or only evaluates")
RULES: list[Rule] = [
    *trainer(resume=OR_LATEST),
    *checkpoint(f"{A}.checkpoint"),
    Key("trainer.max_actor_ckpt_to_keep", "checkpoint.keep_last"),
    Key("trainer.max_critic_ckpt_to_keep", "checkpoint.keep_last_critic"),
    Key("trainer.del_local_ckpt_after_load", "checkpoint.delete_after_load"),
    # 0.3.0 and 0.9.1 trainer/ppo/ray_trainer.py, _save_checkpoint; no config has it since 0.4
    Key("trainer.remove_previous_ckpt_in_save", "checkpoint.delete_previous", ABSENT, until="0.3"),
    Key("trainer.val_only", "run.mode", convert=MODES),
    *GENERAL,
    Key(
        "skip.rollout.enable",
        "run.skip.rollout",
        convert=Names({False: "off", True: "dump"}),
        also=(
            DialectKey("actor_rollout_ref.rollout.skip.enable"),
            DialectKey("actor_rollout_ref.rollout.skip_rollout"),
        ),
    ),
    Key(
        "skip.rollout.dump_dir",
        "run.skip.folder",
        ABSENT,
        also=(
            DialectKey("actor_rollout_ref.rollout.skip.dump_dir", ABSENT),
            DialectKey("actor_rollout_ref.rollout.skip_dump_dir", ABSENT),
        ),
    ),
    Key("global_profiler.tool", "profiling.tool"),
    Key(
        "global_profiler.steps",
        "profiling.steps",
        convert=Listed(),
        also=(DialectKey("trainer.profile_steps"),),
    ),
    Key("global_profiler.profile_continuous_steps", "profiling.continuous"),
    Key("global_profiler.save_path", "profiling.folder", ABSENT),
    *[
        Key(
            f"actor_rollout_ref.{role}.profiler.{name}",
            f"profiling.roles.{canonical}.{field}",
            ABSENT,
            Listed(empty=[]) if name == "ranks" else SAME,
        )
        for role, canonical in (("actor", "policy"), ("ref", "reference"), ("rollout", "rollout"))
        for name, field in (("enable", "enabled"), ("all_ranks", "all_ranks"), ("ranks", "ranks"))
    ],
    *[
        Tree(f"actor_rollout_ref.{role}.profiler.tool_config", f"profiling.roles.{canonical}.args")
        for role, canonical in (("actor", "policy"), ("ref", "reference"), ("rollout", "rollout"))
    ],
    Tree("global_profiler.global_tool_config.nsys.controller_nsight_options", "profiling.controller_args"),
    Tree("global_profiler.global_tool_config.nsys.worker_nsight_options", "profiling.worker_args"),
    Tree("trainer.controller_nsight_options", "profiling.controller_args"),
    Tree("trainer.worker_nsight_options", "profiling.worker_args"),
    Dropped("profiling.roles", "verl sets profiling in each role's block", {}),
    Dropped("profiling.roles{}.discrete", "a key of the tool"),
    Dropped("profiling.peak_tflops", "verl uses its own table of devices"),
    Dropped("profiling.roles{}.args", "a key of the tool"),
    Dropped("profiling.roles{}.enabled", "verl has no such roles"),
    Dropped("profiling.roles{}.all_ranks", "verl has no such roles"),
    Dropped("profiling.roles{}.ranks", "verl has no such roles"),
    *RAY,
    # 0.6.1 trainer/main_ppo.py, run_ppo
    Key("ray_kwargs.ray_init.address", "runtime.ray.address", ABSENT, since="0.6", quiet=True),
    Tree("ray_kwargs.ray_init", "runtime.ray.init_args", but=("num_cpus", "address")),
    Key("trainer.ray_wait_register_center_timeout", "runtime.ray.startup_timeout"),
]
