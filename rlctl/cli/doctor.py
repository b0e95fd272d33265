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
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rlctl.cli import arguments, layout, output
from rlctl.common import packages
from rlctl.common.errors import SandboxUnavailable
from rlctl.common.messages.reasons import spoken, translated
from rlctl.common.records import record

ABILITIES: Mapping[str, str | None] = {
    "convert, check, plan": None,
    "train and generate (FSDP2, Transformers engine)": "runtime",
    "generate with vLLM": "vllm",
    "train with Megatron-core": "megatron",
    "edit configs and watch runs in the terminal (rlctl tui)": "tui",
    "open the app in a browser (rlctl tui --web)": "web",
    "show findings of configs in an editor (rlctl lsp)": "lsp",
    "answer coding agents (rlctl mcp), call tools of MCP servers": "mcp",
    "track with SwanLab": "swanlab",
    "track with Weights & Biases": "wandb",
    "track with MLflow": "mlflow",
    "track with TensorBoard": "tensorboard",
    "keep buffers in PostgreSQL": "postgresql",
}
"""What can be done, and the extra that it takes; None takes no extra."""
SANDBOX = "run untrusted programs in the sandbox (--trace, code rewards)"


@record
class Ability:
    """One thing that this installation can do or not."""

    name: str
    available: bool
    missing: tuple[str, ...]
    hint: str


def doctor(*, json: arguments.Json = False) -> None:
    """Check the installation and show which features are available.

    It imports nothing heavy and contacts no server, so it also works if other commands fail.

    [bold]Examples[/bold]

    [cyan]rlctl doctor[/cyan]

    [cyan]rlctl doctor --json[/cyan]
    """
    listed = ("rlctl", *packages.base(), *(name for names in packages.extras().values() for name in names))
    versions = {package: packages.version_of(package) for package in dict.fromkeys(listed)}
    able = [*(ability_of(name, extra) for name, extra in ABILITIES.items()), sandbox_ability()]
    about = machine()
    if json:
        output.data({"machine": about, "packages": versions, "abilities": [asdict(ability) for ability in able]})
        return
    output.show(*_lines(about, versions, able))


def ability_of(name: str, extra: str | None) -> Ability:
    """What the installed packages make of an ability."""
    if extra is None:
        absent = tuple(package for package in packages.base() if packages.version_of(package) is None)
    else:
        absent = (*packages.missing(extra), *packages.unsuitable(extra))
    command = packages.install(extra) if extra else packages.install()
    return Ability(name, not absent, absent, command if absent else "")


def sandbox_ability() -> Ability:
    """Whether the sandbox works; found out by running a program in it."""
    from rlctl.sandbox import find_bwrap

    try:
        find_bwrap()
    except SandboxUnavailable as error:
        return Ability(SANDBOX, False, (error.message,), error.hint)
    return Ability(SANDBOX, True, (), "")


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


def _lacking(ability: Ability) -> str:
    """What an ability lacks, and how to get it."""
    from rich.markup import escape

    if not ability.missing:
        return ""
    missing = ", ".join(map(translated, ability.missing))
    needs = missing if ability.name == SANDBOX else spoken("needs {packages}", packages=missing)
    return f"  [dim]{escape(needs)}: {escape(translated(ability.hint))}[/]"


def _lines(about: dict[str, Any], versions: dict[str, str | None], able: list[Ability]) -> list[str]:
    from rich.markup import escape

    found = about["gpus"]
    shown = found if isinstance(found, str) else ", ".join(found) or spoken("none: runs use the CPU")
    facts = {
        "machine": spoken(
            "{system}, {cores} cores, {memory} GiB",
            system=about["system"],
            cores=about["cpu_cores"],
            memory=about["memory_gib"],
        ),
        "python": f"{about['python']}  {about['executable']}",
        "GPUs": shown,
        "compiler": about["c_compiler"] or spoken("none: on CPU, train.compile has no effect"),
    }
    lines = [f"[bold]{layout.padded(translated(name), 10)}[/] {escape(value)}" for name, value in facts.items()]
    lines.append("")
    words = [spoken(word) for word in ("yes", "no")]
    yes, no = (layout.padded(word, max(map(layout.cells, words))) for word in words)
    for ability in able:
        mark = f"[green]{yes}[/]" if ability.available else f"[yellow]{no}[/]"
        lines.append(f"  {mark}  {translated(ability.name)}{_lacking(ability)}")
    return [*lines, "", "  ".join(f"{name} {version}" for name, version in versions.items() if version)]
