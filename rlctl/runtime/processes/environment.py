"""What surrounds a worker: its environment variables, the folder it works in, its log, and plug-ins.

The controller puts all of it into variables, by role; a worker's process enters it before it imports anything else. So what the
process starts in turn, such as a reward's own processes, has the same surroundings.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.runtime.user_code import import_file, import_module, last_lines

FOLDER, LEVEL, PLUGINS, BY_NODE = "RLCTL_WORKING_FOLDER", "RLCTL_LOG_LEVEL", "RLCTL_PLUGINS", "RLCTL_LOGS_BY_NODE"
GENERATES = ("rollout", "reward", "agent", "auxiliary")
"""Roles that ``rollout.env_vars`` is for: they generate responses and score them."""
LEFT_ALONE = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
"""With it Ray doesn't set CUDA_VISIBLE_DEVICES, so that every actor of a machine sees all of its GPUs."""
ENGINE_GPUS = "RLCTL_ENGINE_GPUS"
"""The GPUs of an engine that is one program on several of them, as CUDA_VISIBLE_DEVICES has them."""
COPIED_EVERY_SECONDS = 5.0
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
    "NCCL_ALGO": "Ring",
    "PYTHONHASHSEED": "0",
}
"""Variables of ``run.deterministic``, which cuBLAS, FlashAttention, NCCL and Python read when they are loaded."""
_QUIET = {"debug": "debug", "info": "warning", "warning": "warning", "error": "error"}
"""What Transformers tells of by level: its notes are about its own code."""


def worker_environment(config: Config) -> dict[str, str]:
    """Variables of every worker; kernels use the cores that the placement gives them."""
    runtime = config.runtime
    passed = {name: value for name, value in os.environ.items() if name.startswith(("HF_", "TRANSFORMERS_"))}
    return {
        "OMP_NUM_THREADS": str(config.placement.cpus_per_worker),
        "TOKENIZERS_PARALLELISM": "false",
        FOLDER: str(Path.cwd()),
        LEVEL: runtime.log_level,
        PLUGINS: os.pathsep.join(runtime.plugins),
        BY_NODE: "1" if runtime.logs_by_node else "",
        "VLLM_LOGGING_LEVEL": runtime.log_level.upper(),
        "TRANSFORMERS_VERBOSITY": _QUIET[runtime.log_level],
        **(DETERMINISTIC if config.run.deterministic else {}),
        **passed,
        **runtime.env_vars,
    }


def variables_by_role(config: Config) -> dict[str, dict[str, str]]:
    """Further variables of the workers of some roles; a role's own stand over those of rollout."""
    found = {role: dict(config.rollout.env_vars) for role in GENERATES}
    for role, variables in config.runtime.role_env_vars.items():
        found[role] = found.get(role, {}) | dict(variables)
    return found


def enter(variables: Mapping[str, str], log: str) -> None:
    """Take on surroundings in a worker's process: output goes to ``log`` where its folder can be reached from here.

    Raises:
        RunError: a plug-in cannot be imported.
    """
    os.environ.update(variables)
    _show_assigned_gpus()
    with suppress(OSError):  # a machine without the controller's folder: paths there are absolute
        os.chdir(variables.get(FOLDER, "."))
    _write_output_to(_log_here(Path(log)))
    logging.basicConfig(level=variables.get(LEVEL, "warning").upper(), format="%(levelname)s %(name)s: %(message)s")
    import_plugins(variables.get(PLUGINS, "").split(os.pathsep))


def _show_assigned_gpus() -> None:
    """Let this process see only the GPUs that Ray assigned to it, if the cluster's setting leaves that to the process."""
    if not os.environ.get(LEFT_ALONE):
        return
    import ray

    if assigned := ray.get_gpu_ids():
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, assigned))


def _log_here(log: Path) -> Path:
    """The file of a log; with logs by node, in a folder of this node's."""
    if not os.environ.get(BY_NODE) or not log.name:
        return log
    import ray.util

    return log.parent / str(ray.util.get_node_ip_address()) / log.name


def _write_output_to(log: Path) -> None:
    try:
        log.parent.mkdir(exist_ok=True, mode=0o700)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return  # on a machine that does not share the run folder, Ray keeps the output in its own logs
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def import_plugins(plugins: Sequence[str]) -> None:
    """Import modules by name, and every Python file of folders: what they register is there from then on.

    Raises:
        RunError: one cannot be imported.
    """
    for plugin in filter(None, plugins):
        folder = Path(plugin).expanduser()
        if folder.is_dir():
            for file in sorted(folder.glob("*.py")):
                import_file(file, prefix="plugin", what=f"the plug-in {file} (runtime.plugins)")
            continue
        try:
            import_module(plugin)
        except (Exception, SystemExit) as error:
            raise RunError(
                said(
                    "runtime.plugins: {plugin} is not a folder, and importing it as a module failed:\n{error}",
                    plugin=plugin,
                    error=last_lines(error),
                ),
                hint=said(
                    "use a folder of Python files or an importable module; Python searches {names}",
                    names=", ".join(sys.path[-3:]),
                ),
            ) from error


@contextmanager
def copies_of_logs(logs: Path, folder: str | None, run: str) -> Iterator[None]:
    """Copy what is added to the logs of a run to another folder, under the run's name, now and then and at the end.

    Raises:
        RunError: that folder cannot be made.
    """
    if folder is None:
        yield
        return
    target = Path(folder).expanduser() / run
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            said("runtime.log_folder {folder} cannot be created: {strerror}", folder=folder, strerror=error.strerror)
        ) from error
    over = threading.Event()

    def keep_copying() -> None:
        while not over.wait(COPIED_EVERY_SECONDS):
            _copy_new(logs, target)

    thread = threading.Thread(target=keep_copying, name="log-copies", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _copy_new(logs, target)


def _copy_new(logs: Path, target: Path) -> None:
    """Append to each copy what its log has and it has not; a disk that is full holds up no run."""
    for log in sorted(path for path in logs.rglob("*.log") if path.is_file()):
        copy = target / log.relative_to(logs)
        with suppress(OSError):
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.exists() and log.stat().st_size < copy.stat().st_size:  # it was full, and a new log was started
                before = f"{log.name}.1"
                _append_new(log.with_name(before), copy)
                copy.replace(copy.with_name(before))
            _append_new(log, copy)


def _append_new(log: Path, copy: Path) -> None:
    with log.open("rb") as source, copy.open("ab") as into:
        source.seek(into.tell())
        into.write(source.read())
