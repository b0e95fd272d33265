"""On newer Pythons the base, the app, the language server and the MCP server install, and do what they do on this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.corpus import OWN

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


def interpreter(version: str) -> str:
    """The path of an interpreter of a version; skips where there is none that works."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), *map(str, kept)):
        if path and subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"Python {version} is not installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("rlctl-*.whl"))


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], check=True)


@pytest.fixture(scope="module", params=["3.13", pytest.param("3.12", marks=pytest.mark.soak)])
def programs(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and what needs no torch."""
    python = interpreter(request.param)
    folder = tmp_path_factory.mktemp("newer") / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    constraints = str(ROOT / "constraints.txt")
    pip("--python", str(folder / "bin" / "python"), "install", "-c", constraints, f"{wheel}[tui,lsp,mcp]")
    return folder / "bin"


def printed(programs: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [programs / "rlctl", *words], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


PAGE = """
import asyncio, sys
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp

async def go():
    app = RlctlApp(session=Session.open(sys.argv[1]))
    async with app.run_test(size=(120, 40)) as pilot:
        while type(app.screen).__name__ != "EditorScreen":
            await pilot.pause(0.1)
        print("opened")

asyncio.run(go())
"""


@pytest.mark.timeout(900)
def test_a_newer_python_gives_the_same_results(programs: Path) -> None:
    here = Path(sys.executable).parent
    for file, target in (("verl", "trinity"), ("trinity", "roll"), ("roll", "verl")):
        example = str(min((OWN / file).rglob("*.yaml")))
        for words in (
            ["convert", example, "--to", target],
            ["check", example],
            ["plan", example],
            ["explain", "ppo_mini_batch_size"],
        ):
            assert printed(programs, *words) == printed(here, *words)
    page = subprocess.run(
        [programs / "python", "-c", PAGE, str(ROOT / "presets" / "grpo-1node.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert page.stdout == "opened\n", page.stderr
    for server in ("lsp", "mcp"):  # each ends with its input
        assert printed(programs, server, "--help")[0] == 0
