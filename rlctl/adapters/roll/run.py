"""ROLL: what a run is called, where it is kept, who watches it, and its surroundings; the same keys in every pipeline.

Steps count from 0: step 0 is evaluated and never saved, and the last step is always saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import SwitchedKey, Switches
from rlctl.adapters.engine.conditions import negated
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, OtherEntries
from rlctl.adapters.engine.rules import (
    ABSENT,
    NO_KEY,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Same,
    Tree,
    When,
    Writing,
    further_type,
    is_further,
    own_name,
)
from rlctl.adapters.engine.values import Names, Off, interval, more_optimizer_steps, rows
from rlctl.adapters.roll.workers import MEGATRON, engine_written, strategy
from rlctl.common.messages.reasons import said, together
from rlctl.common.records import record
from rlctl.planning import arithmetic

NEVER = 1_000_000
"""ROLL has no word for never; an interval beyond any run stands for it."""
ROLES = {
    "actor_train": "policy",
    "actor_infer": "rollout",
    "reference": "reference",
    "critic": "critic",
    "train_env_manager": "environments",
    "val_env_manager": "evaluation_environments",
}
"""Worker blocks, and the roles whose variables they hold."""


def _read_total(view: Reading) -> Iterator[Flow]:
    steps = view.get("max_steps")
    endless = isinstance(steps, int) and steps <= 0
    yield Flow(view.to("schedule.total_steps"), None if endless else steps, (view.path("max_steps"),), same=not endless)


def steps_to_write(view: Writing) -> tuple[int | None, Provenance, str]:
    """The steps after which the run ends: the first of steps, optimizer steps and epochs, where these are known."""
    schedule = view.config.schedule
    steps = schedule.total_steps
    how: Provenance = "mapped"
    notes = []
    if schedule.total_optimizer_steps is not None:
        each = arithmetic.optimizer_steps_per_step(view.config)
        limit = -(-schedule.total_optimizer_steps // each)
        if steps is None or limit < steps:
            steps, how = limit, "derived"
            notes.append(
                said(
                    "{total_optimizer_steps} optimizer steps / {each} per step",
                    total_optimizer_steps=schedule.total_optimizer_steps,
                    each=each,
                )
            )
    count = rows(view.options)
    if schedule.total_epochs is not None and count is not None:
        limit = arithmetic.total_steps(view.config, count) or 1
        if steps is None or limit < steps:
            steps, how = limit, "derived"
            notes.append(
                said(
                    "{total_epochs} epochs of {count} rows in steps of {prompts_per_step}",
                    total_epochs=schedule.total_epochs,
                    count=count,
                    prompts_per_step=view.config.batch.prompts_per_step,
                )
            )
    return steps, how, together(notes)


def _write_total(view: Writing) -> Iterator[Out]:
    schedule = view.config.schedule
    used = view.to("schedule.total_steps")
    steps, how, note = steps_to_write(view)
    if schedule.total_epochs is not None:
        yield from _epochs(view, steps)
    if steps is None:
        if schedule.total_epochs is None:
            yield Inexpressible((used,), "ROLL stops after max_steps, 500 by default")
        else:
            yield Inexpressible((used,), "ROLL stops after 500 steps if max_steps is not set", idle=True)
        return
    limits = (used, view.to("schedule.total_optimizer_steps"), view.to("schedule.total_epochs"))
    places = limits if how == "derived" else (used,)
    yield Flow(view.path("max_steps"), steps, places, how, note, same=how == "mapped", always=True)
    yield from more_optimizer_steps(view, steps)


def _epochs(view: Writing, steps: int | None) -> Iterator[Out]:
    used = (view.to("schedule.total_epochs"),)
    epochs = view.config.schedule.total_epochs
    if rows(view.options) is not None:
        yield Flow((), None, used, "derived", "counted in max_steps")
    elif steps is None:
        reason = said(
            "ROLL counts only steps, and how many steps {epochs} epochs take depends on the number of training "
            "rows: state dataset_rows",
            epochs=epochs,
        )
        yield Inexpressible(used, said("{reason} (ROLL runs 500 steps if max_steps is not set)", reason=reason))
    else:
        yield Inexpressible(
            used,
            said(
                "ROLL counts only steps: it stops after {steps} steps, not after {epochs} epochs",
                steps=steps,
                epochs=epochs,
            ),
        )


TOTAL = CustomRule(
    "total steps",
    (DialectKey("max_steps"),),
    ("schedule.total_steps", "schedule.total_epochs", "schedule.total_optimizer_steps"),
    _read_total,
    _write_total,
    "the first of steps, optimizer steps and epochs, in steps",
    by_key={"max_steps": ("schedule.total_steps", "schedule.total_optimizer_steps")},
    why="One number of steps is written for limits in steps, in optimizer steps and in epochs.",
)


# Checkpoints


def _read_resume(view: Reading) -> Iterator[Flow]:
    value = view.get("resume_from_checkpoint")
    used = (view.path("resume_from_checkpoint"),)
    path = value if isinstance(value, str) else None
    note = ""
    if value is True and view.get("checkpoint_config.type") in (None, "file_system"):
        note = "ROLL does not find its latest checkpoint: it adds the time to checkpoint_config.output_dir"
    yield Flow(
        view.to("checkpoint.resume"),
        "path" if path else "auto" if value else "never",
        used,
        note=note,
        implied=not value,
    )
    yield Flow(view.to("checkpoint.resume_path"), path, used, same=path is not None)


def _finds_newest(view: Writing) -> bool:
    """Whether ROLL can find a checkpoint itself: its folders bear the time of their start, so only other storage tells it."""
    return view.get("checkpoint.resume") == "auto" and view.get("checkpoint.remote") is not None


def _write_resume(view: Writing) -> Iterator[Out]:
    kind, path = view.get("checkpoint.resume"), view.get("checkpoint.resume_path")
    used = (view.to("checkpoint.resume"), view.to("checkpoint.resume_path"))
    if kind == "path":
        yield Flow(view.path("resume_from_checkpoint"), path, (used[1],), same=True, always=True)
        yield Flow((), None, used[:1])
        return
    if path is not None:
        yield Inexpressible(used[1:], said("the path is ignored if checkpoint.resume is {kind}", kind=kind), idle=True)
    if kind == "auto" and not _finds_newest(view):
        reason = "ROLL does not find its latest checkpoint, because it adds the time to their folder: set resume_from_checkpoint"
        yield Inexpressible(used[:1], reason)
    yield Flow(view.path("resume_from_checkpoint"), _finds_newest(view), used[:1], always=True)


def _read_folder(view: Reading) -> Iterator[Flow]:
    folder = view.get("checkpoint_config.output_dir")
    used = (view.path("checkpoint_config.output_dir"),)
    yield Flow(view.to("checkpoint.folder"), folder, used, same=True, note="ROLL adds the time" if folder else "")
    kind = view.get("checkpoint_config.type")
    place = (view.path("checkpoint_config.type"),)
    if kind in (None, "file_system"):
        yield Flow((), None, place, "mapped", "a folder")
        yield Flow(view.to("checkpoint.remote"), None, ())
    else:
        yield Flow(view.to("checkpoint.remote"), str(kind), place)
    later = view.get("checkpoint_config.async_upload")
    resumes = view.get("resume_from_checkpoint") is True
    used = (view.path("checkpoint_config.async_upload"),)
    if view.written("checkpoint_config.async_upload"):
        yield Flow(view.to("checkpoint.asynchronous"), not resumes and later is not False, used)


def _write_folder(view: Writing) -> Iterator[Out]:
    folder, remote = view.get("checkpoint.folder"), view.get("checkpoint.remote")
    if remote is not None:
        note = "the kind of storage; ROLL itself knows file_system only"
        yield Flow(view.path("checkpoint_config.type"), remote, (view.to("checkpoint.remote"),), note=note, always=True)
    elif folder is not None:
        yield Flow(view.path("checkpoint_config.type"), "file_system", (view.to("checkpoint.folder"),), always=True)
    if folder is not None:
        used = (view.to("checkpoint.folder"),)
        yield Flow(view.path("checkpoint_config.output_dir"), folder, used, same=True, always=True)
    used = (view.to("checkpoint.asynchronous"),)
    later = view.get("checkpoint.asynchronous")
    if _finds_newest(view):
        if later:
            yield Inexpressible(used, "ROLL writes synchronously if it resumes automatically")
        return
    if folder is None and remote is None:
        if later:
            yield Inexpressible(used, "ROLL copies checkpoints only if checkpoint_config asks for it", idle=True)
        return
    yield Flow(view.path("checkpoint_config.async_upload"), later, used)


HF = "actor_train.training_args.save_hf_model"


class Export(Names):
    """Whether Megatron's checkpoints are saved in Hugging Face format as well; each of them, or none."""

    def write(self, value: Any, view: Writing) -> Any:
        if value == "last" and view.explicit("checkpoint.export"):
            return Computed(True, how="mapped", lost="ROLL exports every checkpoint or none. Wrote every checkpoint")
        return value != "never"


def _trains_megatron(view: Reading) -> bool:
    return strategy(view, "actor_train") in MEGATRON


def _writes_megatron(view: Writing) -> bool:
    return engine_written(view, "train.engine") == "megatron"


def _exported(view: Writing) -> Any:
    """What FSDP2's checkpoints hold; any value fits if the source sets none."""
    return "always" if view.explicit("checkpoint.export") else view.get("checkpoint.export")


_EXPORTED = "ROLL saves every checkpoint in Hugging Face format as well"
EXPORT: list[Rule] = [
    When(
        (Key(HF, "checkpoint.export", convert=Export({True: "always", False: "never"})),),
        _trains_megatron,
        _writes_megatron,
        "FSDP2 always saves in Hugging Face format as well",
    ),
    When(
        (
            FollowsFrom(
                "checkpoint.export",
                reads=lambda view: "always",
                writes=_exported,
                reason=_EXPORTED,
                note=_EXPORTED,
            ),
        ),
        negated(_trains_megatron),
        negated(_writes_megatron),
        "",
    ),
]
CHECKPOINT: list[Rule] = [
    interval("save_steps", "checkpoint.every", NEVER, always=True),
    Dropped("checkpoint.at_end", "ROLL always saves the last step", True, matters=True),
    CustomRule(
        "resume",
        (DialectKey("resume_from_checkpoint", words=True),),
        ("checkpoint.resume", "checkpoint.resume_path"),
        _read_resume,
        _write_resume,
        why="One key is a switch or a path, and what it finds depends on where the checkpoints are.",
    ),
    Key("max_ckpt_to_keep", "checkpoint.keep_last", convert=Off(0)),
    Dropped("checkpoint.keep_last_critic", "ROLL keeps this many for each role"),
    CustomRule(
        "checkpoint folder",
        (
            # 2026.8 configs/base_config.py, BaseConfig.__post_init__
            DialectKey("checkpoint_config.type", None),
            # 2026.8 configs/base_config.py, BaseConfig.__post_init__
            DialectKey("checkpoint_config.output_dir", None),
            DialectKey("checkpoint_config.async_upload", takes=bool),
        ),
        ("checkpoint.folder", "checkpoint.remote", "checkpoint.asynchronous"),
        _read_folder,
        _write_folder,
        by_key={
            "checkpoint_config.type": "checkpoint.remote",
            "checkpoint_config.output_dir": "checkpoint.folder",
            "checkpoint_config.async_upload": "checkpoint.asynchronous",
        },
        why="The kind of storage is null for a folder, and whether it copies later depends on how the run resumes.",
    ),
    *EXPORT,
    Dropped("checkpoint.save_contents", "ROLL saves weights, optimizer and counters"),
    Dropped("checkpoint.load_contents", "ROLL loads everything that it saved"),
    *[Dropped(f"checkpoint.{name}", NO_KEY) for name in ("delete_after_load", "delete_previous", "writers")],
]


# Trackers

KNOWN = {"wandb": "wandb", "swanlab": "swanlab", "tensorboard": "tensorboard"}
PROJECTS = ("wandb", "swanlab", "trackio")
"""Trackers that know projects."""
FIELDS = {
    "tensorboard": {"log_dir": "folder"},
    "swanlab": {"logdir": "folder", "mode": "mode"},
    "wandb": {"api_key": "api_key", "mode": "mode"},
}
NAMES = {"swanlab": "experiment_name"}
T = "tracker_kwargs"


def _read_tracker(view: Reading) -> Iterator[Flow]:
    kind, used = view.get("track_with"), (view.path("track_with"),)
    yield Flow(("tracking", 0, "type"), "console", used if kind in ("stdout", "", None) else ())
    args = view.get(T)
    args = dict(args) if isinstance(args, Mapping) else {}
    if kind in ("stdout", "", None):
        for key in args:
            yield Flow((), None, ((*view.path(T), key),), "dead", "the console takes no arguments")
        return
    name = KNOWN.get(str(kind)) or further_type("tracking", str(kind), "roll")
    yield Flow(("tracking", 1, "type"), name, used)
    for key, value in args.items():
        yield _argument(view, name, str(kind), key, value)


def _argument(view: Reading, name: str, kind: str, key: str, value: Any) -> Flow:
    used, to = ((*view.path(T), key),), ("tracking", 1)
    if key == "project" and kind in PROJECTS:
        return Flow(view.to("run.project"), value, used, same=True)
    field = FIELDS.get(name, {}).get(key)
    if field:
        return Flow((*to, field), value, used, same=True)
    if name == "swanlab" and key == "login_kwargs" and isinstance(value, Mapping) and set(value) == {"api_key"}:
        return Flow((*to, "api_key"), value["api_key"], ((*used[0], "api_key"),), same=True)
    if name == "wandb" or is_further("tracking", name):
        return Flow((*to, "args", key), value, used, same=True)
    if key == "experiment_name":
        return Flow((), None, used, "mapped", "the run's name, set by exp_name")
    return Flow((), None, used, "dead", said("{name} has no {key}", name=name, key=key))


def _write_tracker(view: Writing) -> Iterator[Out]:
    trackers = view.get("tracking")
    chosen = next((index for index, item in enumerate(trackers) if item["type"] != "console" and _is_known(item)), None)
    for index, item in enumerate(trackers):
        place = ("tracking", index)
        if item["type"] == "console" and chosen is not None:
            yield Flow((), None, (place, (*place, "type")), "mapped", "ROLL always logs to the console")
        elif index != chosen and item["type"] != "console":
            kept = trackers[chosen]["type"] if chosen is not None else "stdout"
            yield Inexpressible((place, (*place, "type")), said("ROLL supports one tracker; {kept} is kept", kept=kept))
    if chosen is None:
        used = tuple(("tracking", index, "type") for index in range(len(trackers))) or (view.to("tracking"),)
        yield Flow(view.path("track_with"), "stdout", used, always=True)
        yield from _project(view, "stdout")
        return
    item, place = trackers[chosen], ("tracking", chosen)
    kind = own_name(item["type"], "roll")
    yield Flow(view.path("track_with"), kind, ((*place, "type"),), always=True)
    yield from _project(view, kind)
    yield from _arguments(view, item, place)


def _is_known(item: Mapping[str, Any]) -> bool:
    return item["type"] in (*KNOWN, "trackio", "ml_tracker")


def _arguments(view: Writing, item: Mapping[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    fields = FIELDS.get(item["type"], {})
    root = view.path(T)
    for key, field in fields.items():
        if item[field] not in (None, "cloud", "online"):
            yield Flow((*root, key), item[field], ((*place, field),), same=True, always=True)
    for key, value in item.get("args", {}).items():
        yield Flow((*root, key), value, ((*place, "args"),), always=True)
    if item["type"] == "swanlab" and item["api_key"] is not None:
        yield Flow((*root, "login_kwargs", "api_key"), item["api_key"], ((*place, "api_key"),), same=True, always=True)
    if item["type"] in NAMES and view.explicit("run.name"):
        yield Flow((*root, NAMES[item["type"]]), view.get("run.name"), (view.to("run.name"),), always=True)
    handled = {"type", "args", "api_key", *fields.values()}
    for field, value in item.items():
        if field not in handled and value is not None:
            yield Inexpressible(
                ((*place, field),), said("ROLL's {type} tracker takes no {field}", type=item["type"], field=field)
            )


def _project(view: Writing, kind: str) -> Iterator[Out]:
    used = (view.to("run.project"),)
    if kind in PROJECTS:
        yield Flow(
            (*view.path(T), "project"), view.get("run.project"), used, same=True, always=view.explicit("run.project")
        )
    elif view.explicit("run.project"):
        yield Inexpressible(
            used, said("ROLL passes a project only to {projects}", projects=", ".join(PROJECTS)), idle=True
        )


TRACKING = CustomRule(
    "tracker",
    (DialectKey("track_with"), DialectKey(T, ABSENT), DialectKey(f"{T}.**")),
    (
        "run.project",
        "tracking",
        *(
            f"tracking[].{name}"
            for name in ("folder", "mode", "api_key", "base_url", "args", "uri", "username", "password")
        ),
    ),
    _read_tracker,
    _write_tracker,
    by_key={
        "track_with": "tracking[].type",
        T: ("run.project", "tracking"),
    },
    why="One tracker and its arguments are a list of trackers, each with its own fields, and the run's project.",
)


# Profiling, debugging and surroundings


TOOLS: Mapping[Any, tuple[bool | None, ...]] = {
    "torch": (True, None),
    "torch_memory": (False, True),
    None: (False, False),
}
"""What ``profiler_timeline`` and ``profiler_memory`` are for each tool."""
MOCKED = Names({"dump": "dump", "mock": "replay"})


def _uses_mock(view: Writing) -> bool:
    """Whether there is a folder of recorded responses that has an effect, or that the source names itself."""
    uses = view.get("run.skip.rollout") != "off" or view.explicit("run.skip.folder")
    return uses and view.get("run.skip.folder") is not None


class Text(Same):
    """The text of a value, as YAML has it."""

    def read(self, value: Any, view: Reading) -> Any:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)


@record
class Minutes:
    """ROLL counts the wait of a collective operation in minutes."""

    how: Provenance = "derived"
    note: str = "minutes in ROLL, seconds in rlctl"

    def read(self, value: Any, view: Reading) -> Any:
        return float(value) * 60 if isinstance(value, (int, float)) else ABSENT

    def write(self, value: Any, view: Writing) -> Any:
        if value % 60:
            low = int(value // 60)
            raise InexpressibleError(
                said(
                    "{value:g} s is not a whole number of minutes; use {value2} or {value3}",
                    value=value,
                    value2=low * 60,
                    value3=(low + 1) * 60,
                )
            )
        return int(value // 60)


@record
class Seconds:
    """Whole seconds there."""

    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return value

    def write(self, value: Any, view: Writing) -> Any:
        if value != int(value):
            raise InexpressibleError(
                said("ROLL takes whole seconds; {value} or {value2} would do", value=int(value), value2=int(value) + 1)
            )
        return int(value)


ENVIRONMENT: list[Rule] = [
    Switches(
        (DialectKey("profiler_timeline"), DialectKey("profiler_memory")),
        "profiling.tool",
        TOOLS,
        missing="ROLL profiles with torch only, not with {word}",
    ),
    Key("profiler_output_dir", "profiling.folder"),
    *[
        Dropped(f"profiling.{name}", "ROLL's profiler takes no such setting", idle=True)
        for name in (
            "peak_tflops",
            "steps",
            "continuous",
            "roles",
            "roles{}.**",
            "controller_args",
            "worker_args",
            "ray_timeline",
        )
    ],
    Tree("system_envs", "runtime.env_vars", entries=Text()),
    *[Tree(f"{block}.system_envs", f"runtime.role_env_vars.{role}", entries=Text()) for block, role in ROLES.items()],
    OtherEntries(
        "runtime.role_env_vars",
        tuple(ROLES.values()),
        "ROLL has no worker for {name}",
        tuple(DialectKey(f"{block}.system_envs") for block in ROLES),
    ),
    Key("logging_dir", "runtime.log_folder", note="ROLL adds the run's name"),
    Key("logging_steps", "runtime.log_every"),
    Key("rpc_timeout", "runtime.ray.call_timeout", convert=Seconds()),
    Key("actor_train.backend_timeout", "runtime.ray.collective_timeout", convert=Minutes()),
    *[Dropped(f"runtime.{name}", NO_KEY, idle=True) for name in ("log_level", "logs_by_node", "device_memory_check")],
    *[
        Dropped(f"runtime.{name}", NO_KEY)
        for name in (
            "plugins",
            "ray.address",
            "ray.namespace",
            "ray.num_cpus",
            "ray.init_args",
            "ray.startup_timeout",
        )
    ],
]
RUN: list[Rule] = [
    Dropped("rlctl", "the schema's version"),
    Key("exp_name", "run.name", ABSENT, always=True),
    Key("seed", "run.seed", always=True),
    Key("output_dir", "run.folder", always=True),
    Dropped(
        "run.mode",
        "ROLL's start script chooses the mode, not a key: start_*_rollout_pipeline.py only evaluates",
    ),
    Dropped("run.group", "ROLL's trackers have no group", idle=True),
    SwitchedKey(
        "rollout_mock.enable",
        "rollout_mock.mode",
        "run.skip.rollout",
        off="off",
        default="dump",
        silent=False,
        convert=MOCKED,
    ),
    Key("rollout_mock.dump_dir", "run.skip.folder", unset=None, write_when=_uses_mock),
    *[
        Dropped(f"run.{name}", NO_KEY)
        for name in (
            "deterministic",
            "max_steps_this_session",
            "max_restarts",
            "on_end",
            "on_failure",
            "time_limit",
        )
    ],
    TRACKING,
]
RULES: list[Rule] = [*RUN, *CHECKPOINT, *ENVIRONMENT]
"""What every pipeline has; ``TOTAL`` is apart, as SFT counts epochs."""
