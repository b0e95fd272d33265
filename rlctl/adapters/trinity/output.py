"""Trinity: buffers, checkpoints, monitors and what surrounds a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    NO_KEY,
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
    Section,
    Tree,
    When,
    Writing,
    further_type,
    nothing,
)
from rlctl.adapters.engine.values import (
    Listed,
    Names,
    Off,
    Partly,
)
from rlctl.adapters.trinity.batch import supervised
from rlctl.adapters.trinity.keys import ACTOR, STORAGES, TC
from rlctl.common.messages.reasons import said

EXPERIENCES = "buffer.trainer_input.experience_buffer"
LABEL = "experience_buffer"
"""The name that most files give their buffer; it tells nothing."""


def _read_buffer(view: Reading) -> Iterator[Flow]:
    root = "buffer.trainer_input.experience_buffer"
    if supervised(view) or not view.written(root):
        yield Flow(("buffer", "type"), "memory", ())
        return
    kind = view.get(f"{root}.storage_type", "queue")
    name = {"queue": "memory", "sql": "sql", "file": "file"}.get(str(kind), "memory")
    yield Flow(("buffer", "type"), name, (view.path(f"{root}.storage_type"),))
    label = view.get(f"{root}.name")
    yield Flow(
        ("buffer", "label"), None if label in ("", LABEL) else label, (view.path(f"{root}.name"),), same=label != LABEL
    )
    field = {"memory": "log_path", "sql": "url", "file": "path"}[name]
    yield Flow(("buffer", field), view.get(f"{root}.path"), (view.path(f"{root}.path"),), same=True)


def _write_buffer(view: Writing) -> Iterator[Out]:
    if view.config.algorithm.objective.choice in ("sft", "dpo") or view.config.run.mode == "evaluate_only":
        yield Flow((), None, (("buffer", "type"), ("buffer", "label")))
        return
    root, buffer = view.path("buffer.trainer_input.experience_buffer"), view.get("buffer")
    kinds = {"memory": "queue", "sql": "sql", "file": "file"}
    yield Flow((*root, "name"), buffer["label"] or LABEL, (("buffer", "label"),), same=buffer["label"] is not None)
    yield Flow((*root, "storage_type"), kinds[buffer["type"]], (("buffer", "type"),))
    field = {"memory": "log_path", "sql": "url", "file": "path"}[buffer["type"]]
    if buffer[field] is not None:
        yield Flow((*root, "path"), buffer[field], (("buffer", field),), same=True)


def _read_auxiliary(view: Reading) -> Iterator[Flow]:
    root = "buffer.trainer_input.auxiliary_buffers"
    several = view.get(root)
    if not isinstance(several, Mapping):
        return
    for name, item in several.items():
        if not isinstance(item, Mapping):
            raise BadValueError(said("holds {item!r}; expected a mapping", item=item), key=(*view.path(root), name))
        place, to = (*view.path(root), name), ("buffer", "auxiliary", name)
        form = item.get("format") or {}
        kind = str(form.get("prompt_type", "messages"))
        yield Flow((*to, "path"), item.get("path") or "", ((*place, "path"),), same=True)
        yield Flow((*to, "format"), str(item.get("storage_type", "file")), ((*place, "storage_type"),), same=True)
        yield Flow(
            (*to, "prompt_type"), "text" if kind == "plaintext" else "messages", ((*place, "format", "prompt_type"),)
        )
        for key in ("prompt_key", "response_key", "messages_key"):
            if key in form:
                yield Flow((*to, key), form[key], ((*place, "format", key),), same=True)
        taken = ("path", "storage_type", "format")
        rest = {key: value for key, value in item.items() if key not in taken}
        more = {
            key: value
            for key, value in form.items()
            if key not in ("prompt_type", "prompt_key", "response_key", "messages_key")
        }
        if more:
            rest["format"] = more
        if rest:
            yield Flow((*to, "settings"), rest, tuple((*place, key) for key in rest))


def _write_auxiliary(view: Writing) -> Iterator[Out]:
    for name, item in view.get("buffer.auxiliary").items():
        root, used = (*view.path("buffer.trainer_input.auxiliary_buffers"), name), ("buffer", "auxiliary", name)
        yield Flow((*root, "storage_type"), item["format"], ((*used, "format"),), same=True, always=True)
        yield Flow((*root, "path"), item["path"], ((*used, "path"),), same=True, always=True)
        kind = "plaintext" if item["prompt_type"] in ("text", "raw") else "messages"
        yield Flow((*root, "format", "prompt_type"), kind, ((*used, "prompt_type"),), always=True)
        for key in ("prompt_key", "response_key", "messages_key"):
            if item[key] is not None:
                yield Flow((*root, "format", key), item[key], ((*used, key),), same=True, always=True)
        for key, value in item["settings"].items():
            inner = value.items() if key == "format" and isinstance(value, Mapping) else None
            if inner is None:
                yield Flow((*root, key), value, ((*used, "settings"),), always=True)
            for name_, one in inner or ():
                yield Flow((*root, "format", name_), one, ((*used, "settings"),), always=True)


MONITORS = ("tensorboard", "wandb", "mlflow", "swanlab")


MONITOR_ARGS = {
    "wandb": {"base_url": "base_url", "api_key": "api_key"},
    "mlflow": {"uri": "uri", "username": "username", "password": "password"},
    "swanlab": {"api_key": "api_key", "mode": "mode", "logdir": "folder"},
    "tensorboard": {},
}


def _read_monitor(view: Reading) -> Iterator[Flow]:
    kind = view.get("monitor.monitor_type")
    used = (view.path("monitor.monitor_type"),)
    yield Flow(("tracking", 0, "type"), "console", ())
    if kind not in MONITORS:
        yield Flow(("tracking", 1, "type"), further_type("tracking", str(kind), "trinity"), used)
        return
    yield Flow(("tracking", 1, "type"), kind, used)
    args = view.get("monitor.monitor_args")
    for key, value in (args or {}).items():
        field = MONITOR_ARGS[kind].get(key)
        place = (*view.path("monitor.monitor_args"), key)
        if field:
            yield Flow(("tracking", 1, field), value, (place,), same=True)
        elif kind == "wandb":
            yield Flow(("tracking", 1, "args", key), value, (place,), same=True)


def _write_monitor(view: Writing) -> Iterator[Out]:
    trackers = view.get("tracking")
    chosen = next((index for index, item in enumerate(trackers) if item["type"] in MONITORS), None)
    for index, tracker in enumerate(trackers):
        place = ("tracking", index)
        if tracker["type"] == "console":
            yield Flow((), None, (place, (*place, "type")), "mapped", "Trinity always logs to the console")
        elif index != chosen:
            kept = trackers[chosen]["type"] if chosen is not None else "tensorboard"
            yield Inexpressible(
                (place, (*place, "type")), said("Trinity supports one monitor; {kept} is kept", kept=kept), idle=True
            )
    if chosen is None:
        note = "Trinity requires a monitor. Wrote TensorBoard, which only writes files"
        yield Flow(view.path("monitor.monitor_type"), "tensorboard", (view.to("tracking"),), "derived", note)
        return
    tracker, place = trackers[chosen], ("tracking", chosen)
    name, used = tracker["type"], ((*place, "type"), ("tracking",))
    yield Flow(view.path("monitor.monitor_type"), name, used, always=name != "tensorboard")
    for key, field in MONITOR_ARGS[tracker["type"]].items():
        usual = {"mode": "cloud"}.get(field)
        if tracker[field] != usual:
            yield Flow(
                view.path(f"monitor.monitor_args.{key}"), tracker[field], ((*place, field),), same=True, always=True
            )
    for key, value in tracker.get("args", {}).items():
        yield Flow(view.path(f"monitor.monitor_args.{key}"), value, ((*place, "args"),), always=True)
    known = ("type", "args", *MONITOR_ARGS[tracker["type"]].values())
    for field, value in tracker.items():
        if field not in known and value not in (None, "online", "cloud"):
            yield Inexpressible(
                ((*place, field),),
                said("Trinity's {type} monitor has no {field}", type=tracker["type"], field=field),
                idle=True,
            )


class Kept(Off):
    """How many checkpoints are kept; all of them is null in 0.5, and 0 since."""

    def write(self, value: Any, view: Writing) -> Any:
        return value if value is not None or view.version < (0, 6) else self.sentinel


LEVELS = Names({"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error"})


def _read_plain(view: Reading) -> Iterator[Flow]:
    """Keys that say nothing beyond already the default, and the display of progress."""
    if view.get("trainer.trainer_type") == "verl":
        yield Flow(
            (), None, (view.path("trainer.trainer_type"),), "mapped", "Trinity's trainer for everything but Tinker"
        )
    elif view.get("trainer.trainer_type") == "tinker":
        yield Flow(view.to("train.engine.type"), "tinker", (view.path("trainer.trainer_type"),))
    for block in ("data_processor", "service"):
        if not view.get(block):
            yield Flow((), None, (view.path(block),), "mapped", "is empty")
    note = "a progress bar; results don't depend on it"
    inside = [
        *(f"explorer_input.{name}" for name in ("taskset", "tasksets", "eval_tasksets")),
        "trainer_input.experience_buffer",
    ]
    for name in inside:
        place = view.path(f"buffer.{name}")
        several = view.get(f"buffer.{name}")
        roots = [(*place, index) for index in range(len(several))] if isinstance(several, list) else [place]
        yield Flow((), None, tuple((*root, "enable_progress_bar") for root in roots), "mapped", note)
    mode, latest = view.get("mode"), "explorer.bench_on_latest_checkpoint"
    if mode != "bench":
        yield Flow((), None, (view.path(latest),), "dead", "Trinity reads it in mode bench only")
    elif view.get(latest):
        yield Flow((), None, (view.path(latest),), "mapped", "only the newest checkpoint is evaluated")


OUTPUT: list[Rule] = [
    CustomRule(
        "already the default",
        (DialectKey("trainer.trainer_type"), DialectKey("explorer.bench_on_latest_checkpoint")),
        (),
        _read_plain,
        nothing,
        why="It accounts for empty blocks and progress bars, whose places depend on the task sets of the text.",
    ),
    CustomRule(
        "experience buffer",
        (
            # 0.6.0 common/config.py, ExperienceBufferConfig
            DialectKey("buffer.trainer_input.experience_buffer.name", ""),
            # 0.6.0 common/config.py, ExperienceBufferConfig
            DialectKey("buffer.trainer_input.experience_buffer.storage_type", "queue", takes=STORAGES),
            # 0.6.0 common/config.py, ExperienceBufferConfig
            DialectKey("buffer.trainer_input.experience_buffer.path", None),
        ),
        ("buffer.type", "buffer.label", "buffer.log_path", "buffer.url", "buffer.path"),
        _read_buffer,
        _write_buffer,
        by_key={
            "buffer.trainer_input.experience_buffer.name": "buffer.label",
            "buffer.trainer_input.experience_buffer.storage_type": "buffer.type",
            "buffer.trainer_input.experience_buffer.path": ("buffer.log_path", "buffer.path", "buffer.url"),
        },
        why="One path is a log, a URL or a file by the kind of storage, and without rollouts there is no buffer.",
    ),
    # 0.6.0 common/config.py, ExperienceBufferConfig
    Key("buffer.trainer_input.experience_buffer.max_read_timeout", "buffer.read_timeout", 1800),
    # 0.6.0 common/config.py, ExperienceBufferConfig
    Key("buffer.trainer_input.experience_buffer.capacity", "buffer.capacity", 10000, Partly({10000: None})),
    # 0.6.0 common/config.py, ReplayBufferConfig; buffer/storage/queue.py: null leaves the arguments to the function
    When(
        (
            Key("buffer.trainer_input.experience_buffer.replay_buffer.enable", "buffer.replay.enabled", False),
            Key(
                "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn",
                "buffer.replay.priority",
                "linear_decay",
            ),
            Tree(
                "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn_args",
                "buffer.replay.priority_args",
                default=None,
            ),
            Key(
                "buffer.trainer_input.experience_buffer.replay_buffer.reuse_cooldown_time",
                "buffer.replay.cooldown",
                None,
            ),
        ),
        lambda view: view.get(f"{EXPERIENCES}.storage_type", "queue") != "file",
        lambda view: view.get("buffer.type") != "file",
        "Trinity replays experiences of a queue or a database, not of a file",
    ),
    CustomRule(
        "auxiliary buffers",
        (
            DialectKey("buffer.trainer_input.auxiliary_buffers"),
            DialectKey("buffer.trainer_input.auxiliary_buffers.**"),
        ),
        (
            "buffer.auxiliary",
            *(
                f"buffer.auxiliary{{}}.{name}"
                for name in ["path", "format", "prompt_key", "response_key", "messages_key", "prompt_type", "settings"]
            ),
        ),
        _read_auxiliary,
        _write_auxiliary,
        by_key={
            "buffer.trainer_input.auxiliary_buffers": "buffer.auxiliary",
        },
        why="Buffers have names of the user's, and settings that are split between two mappings.",
    ),
    Key("trainer.save_hf_checkpoint", "checkpoint.export"),
    Key(
        "trainer.save_strategy",
        "checkpoint.writers",
        convert=Names(
            {
                "unrestricted": "all",
                "single_thread": "one_thread",
                "single_process": "one_process",
                "single_node": "one_node",
            }
        ),
    ),
    Key(
        "trainer.max_checkpoints_to_keep",
        "checkpoint.keep_last",
        convert=Kept(0),
        # 0.5.2 trainer/verl/verl_config.py, Trainer
        also=(DialectKey(f"{TC}.trainer.max_actor_ckpt_to_keep", None),),
    ),
    # 0.5.2 trainer/verl/verl_config.py, Trainer
    Key(f"{TC}.trainer.max_critic_ckpt_to_keep", "checkpoint.keep_last_critic", None),
    # 0.5.2 trainer/verl/verl_config.py, Trainer
    Key(f"{TC}.trainer.del_local_ckpt_after_load", "checkpoint.delete_after_load", False),
    Dropped("checkpoint.delete_previous", "Trinity keeps a number of checkpoints", idle=True),
    # 0.5.2 trainer/verl/verl_config.py, Trainer
    Key(f"{TC}.trainer.default_hdfs_dir", "checkpoint.remote", None),
    Dropped("checkpoint.resume_path", "Trinity resumes only from the run's own folder", None),
    # 0.4.1 common/verl_config.py, Checkpoint; 0.6.0 trainer/verl/config.py, _build_checkpoint_config
    Key(
        f"{ACTOR}.checkpoint.save_contents",
        "checkpoint.save_contents",
        ["model", "optimizer", "extra"],
        Listed(empty=[]),
    ),
    # 0.4.1 common/verl_config.py, Checkpoint; 0.6.0 trainer/verl/config.py, _build_checkpoint_config
    Key(
        f"{ACTOR}.checkpoint.load_contents",
        "checkpoint.load_contents",
        ["model", "optimizer", "extra"],
        Listed(empty=[]),
    ),
    # 0.4.1 common/verl_config.py, Checkpoint; 0.6.0 trainer/verl/config.py, _build_checkpoint_config
    Key(f"{ACTOR}.checkpoint.async_save", "checkpoint.asynchronous", False),
    CustomRule(
        "monitor",
        (
            DialectKey("monitor.monitor_type"),
            DialectKey("monitor.monitor_args"),
            DialectKey("monitor.monitor_args.**"),
        ),
        (
            "tracking",
            *(
                f"tracking[].{name}"
                for name in ["folder", "mode", "api_key", "base_url", "args", "uri", "username", "password"]
            ),
        ),
        _read_monitor,
        _write_monitor,
        by_key={"monitor.monitor_type": "tracking[].type", "monitor.monitor_args": "tracking"},
        why="One monitor with arguments is one item of a list of trackers, each with its own fields.",
    ),
    Key(
        "monitor.enable_ray_timeline",
        "profiling.ray_timeline",
        convert=Names({False: None, True: True}, missing="Trinity names the file of Ray's timeline itself"),
    ),
    *[
        Dropped(f"profiling.{name}", "Trinity's only profiler is Ray's timeline", idle=True)
        for name in (
            "tool",
            "steps",
            "continuous",
            "folder",
            "roles",
            "roles{}.**",
            "controller_args",
            "worker_args",
            "peak_tflops",
        )
    ],
    Key(
        f"{TC}.trainer.device",
        "placement.device",
        write_when=lambda view: view.get("placement.device") != "auto",
    ),
    *[
        Dropped(f"placement.{name}", "Trinity places an explorer and a trainer")
        for name in ("roles{}.**", "cpus_per_worker")
    ],
    Dropped("placement.roles", "Trinity places an explorer and a trainer", {}),
    Key("log.level", "runtime.log_level", convert=LEVELS),
    Key("log.group_by_node", "runtime.logs_by_node"),
    Key("ignore_validator_suggestions", "runtime.device_memory_check", convert=Partly({True: False, False: True})),
    Key("cluster.ray_address", "runtime.ray.address"),
    *[
        Dropped(f"runtime.{name}", "Trinity passes only explorer.env_vars: set other variables where Ray starts")
        for name in ("env_vars", "env_vars.**", "role_env_vars", "role_env_vars.**")
    ],
    *[
        Dropped(f"runtime.{name}", "Trinity leaves it to Ray", idle=True)
        for name in (
            "log_folder",
            "log_every",
            "plugins",
            "ray.num_cpus",
            "ray.init_args",
            "ray.init_args.**",
            "ray.call_timeout",
            "ray.startup_timeout",
            "ray.collective_timeout",
        )
    ],
    Dropped("rlctl", "the schema's version"),
    *[
        Dropped(f"run.{name}", NO_KEY)
        for name in (
            "seed",
            "deterministic",
            "max_steps_this_session",
            "max_restarts",
            "on_end",
            "on_failure",
            "time_limit",
            "skip.rollout",
            "skip.folder",
        )
    ],
    # 0.6.0 common/config.py, DataJuicerServiceConfig
    Section(
        "service.data_juicer",
        (
            Key("service.data_juicer.server_url", "service.data_juicer.url", None),
            Key("service.data_juicer.auto_start", "service.data_juicer.auto_start", False),
            Key("service.data_juicer.port", "service.data_juicer.port", None),
            Dropped("service.data_juicer.python", "Trinity starts the service in its own Python", idle=True),
        ),
    ),
]
