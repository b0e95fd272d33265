"""The wheel alone in a fresh environment, as ``pip install rlctl`` leaves it: what needs no extra works, the rest names its extra."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import tomllib
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

from rlctl.cli import doctor
from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.config import config_from
from rlctl.config.sections.output import WandbTracker
from rlctl.planning.arithmetic import Device
from rlctl.runs.record import Record, write_record
from rlctl.runs.requirements import TRACKERS, require_packages
from rlctl.translation.translate import read_many

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
pytestmark = pytest.mark.xdist_group("plain")  # one process, so that it is installed once

Rlctl = Callable[..., subprocess.CompletedProcess[str]]
Hint = Callable[[str], str]


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, timeout=300, cwd=ROOT)


def installed(folder: Path, requirement: str, *, over: Path | None = None) -> Path:
    """The folder of programs of a new environment with a requirement; packages of another environment are seen in it."""
    venv.create(folder, with_pip=False)
    if over is not None:
        (packages_of(folder) / "over.pth").write_text(f"{packages_of(over)}\n")
    pip("--python", str(folder / "bin" / "python"), "install", "--no-compile", "-c", "constraints.txt", requirement)
    return folder / "bin"


def packages_of(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), ".")
    return next(folder.glob("rlctl-*.whl"))


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and what it depends on."""
    return installed(tmp_path_factory.mktemp("plain") / "venv", str(wheel))


@pytest.fixture(scope="module")
def with_tui(plain: Path) -> Path:
    """The same with what the hint of ``rlctl tui`` installs, which is only what the extra adds."""
    refused = subprocess.run([plain / "rlctl", "tui"], capture_output=True, text=True, timeout=60, check=False)
    program, verb, requirement = shlex.split(refused.stderr.splitlines()[-1])
    assert (program, verb) == ("pip", "install")
    return installed(plain.parents[1] / "venv-tui", requirement, over=plain.parent)


@pytest.fixture(scope="module")
def hint(wheel: Path) -> Hint:
    """The command for extras of an rlctl that came from a file."""
    return lambda extras: f"pip install 'rlctl[{extras}] @ {wheel.as_uri()}'"


@pytest.fixture
def rlctl(plain: Path, tmp_path: Path) -> Rlctl:
    """Runs the installed ``rlctl`` in a folder with a config whose model and data exist."""
    (tmp_path / "model").mkdir()
    sizes = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
    shape = {"model_type": "llama", "intermediate_size": 96, "max_position_embeddings": 2048, **sizes}
    (tmp_path / "model" / "config.json").write_text(json.dumps(shape))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    (tmp_path / "train.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n' * 8)
    (tmp_path / "run.yaml").write_text(
        "rlctl: 1\n"
        "run: {name: small}\n"
        "model: {path: model}\n"
        "data: {train: [{path: train.jsonl}]}\n"
        "rewards: [{type: rule, rule: exact_match}]\n"
        "batch: {prompts_per_step: 8, responses_per_prompt: 4}\n"
        "schedule: {total_steps: 3}\n"
        "placement: {nodes: 1, devices_per_node: 1}\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [str(plain / "rlctl"), *words],
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "COLUMNS": "200"},
        )  # fmt: skip
        assert "bug in rlctl" not in ended.stderr + ended.stdout
        assert "Traceback" not in ended.stderr + ended.stdout
        return ended

    return run


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "run.yaml", "--to", "verl", "-o", "verl.yaml"],
        ["convert", "run.yaml", "--to", "trinity"],
        ["convert", "run.yaml", "--to", "roll"],
        ["check", "run.yaml"],
        ["plan", "run.yaml"],
        ["batch", "run.yaml"],
        ["diff", "run.yaml", "run.yaml"],
        ["set", "run.yaml", "schedule.total_steps=5"],
        ["explain", "train.optimizer"],
        ["schema"],
        ["presets", "list"],
        ["runs", "list"],
        ["cluster", "slurm", "run.yaml"],
        ["version"],
    ],
    ids=" ".join,
)
def test_what_needs_no_extra_works(rlctl: Rlctl, words: list[str]) -> None:
    ended = rlctl(*words)
    assert ended.returncode in (0, 3), ended.stderr
    assert ended.stdout or ended.stderr


def test_doctor_says_what_works_and_which_extra_brings_the_rest(rlctl: Rlctl, hint: Hint) -> None:
    lines = {line.split("  needs ")[0].strip(): line for line in rlctl("doctor").stdout.splitlines()}
    for name, extra in doctor.ABILITIES.items():
        if extra is None:
            assert f"yes  {name}" in lines
        else:
            assert lines[f"no   {name}"].endswith(f": {hint(extra)}")
    assert all(ability["available"] for ability in json.loads(rlctl("doctor", "--json").stdout)["abilities"][:1])


@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (["launch", "run.yaml"], "runtime"),
        (["launch", "run.yaml", "--set", "tracking=[{type: wandb}]"], "runtime,wandb"),
        (["launch", "run.yaml", "--set", "train.engine.type=megatron"], "megatron"),
        (["launch", "run.yaml", "--set", "runtime.ray.address=auto"], "runtime"),
        (["try", "run.yaml"], "runtime"),
        (["eval", "run.yaml", "--set", "data.eval=[{path: train.jsonl}]"], "runtime"),
        (["quickstart"], "runtime"),
        (["runs", "list", "--address", "http://localhost:1"], "runtime"),
        (["tui", "run.yaml"], "tui"),
        (["tui", "--web"], "web"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_needs_an_extra_names_the_command_that_installs_it(
    rlctl: Rlctl, words: list[str], extras: str, hint: Hint
) -> None:
    ended = rlctl(*words)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].strip() == hint(extras)


def test_a_run_of_another_machine_is_shown_and_not_resumed(rlctl: Rlctl, tmp_path: Path, hint: Hint) -> None:
    folder = tmp_path / "runs" / "small"
    (folder / "logs").mkdir(parents=True)
    assert rlctl("convert", "run.yaml", "--to", "rlctl", "-o", str(folder / "config.yaml")).returncode == 0
    plan = rlctl("plan", "run.yaml", "-o", str(folder / "plan.json"), "--cluster", "1x1:cpu")
    assert plan.returncode == 0, plan.stderr
    write_record(folder, Record("small", "failed", 1, "elsewhere", 1.0, ended=2.0))
    (folder / "events.jsonl").write_text("")
    assert "small" in rlctl("runs", "list").stdout
    assert rlctl("runs", "show", "small").returncode == 0
    for words in (["runs", "resume", "small"], ["export", "small"]):
        assert rlctl(*words).stderr.splitlines()[-1].strip() == hint("runtime")


def read_until(terminal: int, wanted: bytes | None) -> None:
    """Read what a program draws until something is there, or until it ends."""
    shown = b""
    while wanted is None or wanted not in shown:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown[-2000:]
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            assert wanted is None, shown[-2000:]
            return


def test_the_base_is_light(plain: Path) -> None:
    names = {path.name.partition("-")[0].lower() for path in packages_of(plain.parent).glob("*.dist-info")}
    assert "rich" in names
    assert not names & {"textual", "numpy", "torch", "ray", "pydantic", "aiohttp"}
    assert len(names) < 30, sorted(names)


@pytest.mark.usefixtures("rlctl")  # for its files
def test_the_app_opens(with_tui: Path, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TERM": "xterm-256color", "RLCTL_LANGUAGE": "en"}
    command = [str(with_tui / "python"), "-m", "rlctl", "tui", "run.yaml"]
    app = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path, env=env)
    os.close(terminal)
    try:
        read_until(controller, b"sampling")  # a line of the summary
        os.write(controller, b"\x11")
        read_until(controller, None)
        assert app.wait(60) == 0
    finally:
        app.kill()
        os.close(controller)


def test_nothing_outside_of_the_runtime_the_app_and_the_servers_needs_an_extra_to_be_imported(plain: Path) -> None:
    program = """
import importlib, pkgutil, rlctl
extra = ("rlctl.runtime.", "rlctl.tui.", "rlctl.cli.lsp.", "rlctl.cli.mcp.")
names = [m.name for m in pkgutil.walk_packages(rlctl.__path__, "rlctl.") if not m.name.startswith(extra)]
for name in names:
    if name != "rlctl.__main__":
        importlib.import_module(name)
print(len(names))
"""
    ended = subprocess.run(
        [str(plain / "python"), "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 200


def named(extra: str) -> set[str]:
    """The distributions of an extra in pyproject.toml, with those of extras that it includes."""
    found = set[str]()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        ours = requirement.name == "rlctl"
        found |= (
            {name for each in requirement.extras for name in named(each)} if ours else {canonical(requirement.name)}
        )
    return found


PAGES = {
    "docs/getting-started/first-run.md": ["quickstart/sft.yaml", "quickstart/grpo.yaml"],
    "docs/getting-started/first-gpu-run.md": ["grpo-1node.yaml"],
}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_installs_is_enough_for_what_it_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"pip install '(rlctl\[.*?\])", (ROOT / page).read_text(encoding="utf-8"))
    assert command
    brought = {name for extra in Requirement(command[1]).extras for name in named(extra)} | set(packages.base())
    monkeypatch.setattr(packages, "missing", lambda extra: tuple(sorted(named(extra) - brought)))
    device: Device = "cuda" if "vllm" in command[1] else "cpu"
    configs = [ROOT / "presets" / name for name in PAGES[page]]
    for config in configs:
        loaded, _ = read_many([config])
        assert loaded is not None
        require_packages(loaded.config, device)


def test_the_tables_are_those_of_the_project_after_a_fresh_setup() -> None:
    listed = set(PROJECT["optional-dependencies"]) - set(packages.NO_FEATURE)
    assert {extra: set(map(canonical, names)) for extra, names in packages.extras().items()} == {
        extra: named(extra) for extra in listed
    }
    assert set(map(canonical, packages.base())) == {
        canonical(each.name)
        for each in map(Requirement, PROJECT["dependencies"])
        if each.marker is None or each.marker.evaluate()
    }
    assert set(filter(None, doctor.ABILITIES.values())) == listed


def test_every_installed_package_of_an_extra_is_found_by_its_module() -> None:
    for extra, names in packages.extras().items():
        there = {name for name in names if packages.version_of(name)}
        assert there & set(packages.missing(extra)) == set()
        assert packages.unsuitable(extra) == ()


def test_a_version_that_rlctl_does_not_accept_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "version_of", lambda name: "2.50.0" if name == "ray" else None)
    able = doctor.ability_of("train", "runtime")
    assert not able.available
    assert able.missing == ("ray<2.61,>=2.60 (installed: 2.50.0)",)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ((), ""),
        (("runtime", "wandb"), "[runtime,wandb]"),
        (("vllm", "runtime"), "[vllm]"),
        (("tui", "web"), "[web]"),
        (("tui",), "[tui]"),
    ],
)
def test_one_command_installs_it_all(asked: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_recorded", lambda file: "")
    assert shlex.split(packages.install(*asked)) == ["pip", "install", f"rlctl{named}"]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, "pip install 'rlctl[tui]'"),
        (
            {"url": "https://github.com/rlctl/rlctl", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'rlctl[tui] @ git+https://github.com/rlctl/rlctl'",
        ),
        (
            {"url": "https://host/r", "vcs_info": {"vcs": "git", "commit_id": "a", "requested_revision": "v1"}},
            "pip install 'rlctl[tui] @ git+https://host/r@v1'",
        ),
        ({"url": "file:///a%20b/r", "dir_info": {"editable": True}}, "pip install -e '/a b/r[tui]'"),
        ({"url": "file:///r", "dir_info": {}}, "pip install '/r[tui]'"),
        ({"url": "https://host/r.whl", "archive_info": {}}, "pip install 'rlctl[tui] @ https://host/r.whl'"),
    ],
    ids=["index", "git", "revision", "editable", "folder", "file"],
)
def test_an_extra_is_installed_from_where_rlctl_came(origin: dict[str, object], command: str) -> None:
    text = json.dumps(origin) if origin else ""
    assert packages._command("[tui]", "pip\n", text) == command
    assert packages._command("[tui]", "uv", text) == f"uv {command}"


def test_a_tool_of_uv_is_installed_as_a_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert packages._command("[tui]", "uv", "") == "uv tool install 'rlctl[tui]'"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("numpy", "runtime"),
        ("textual.widgets", "tui"),
        ("textual_serve", "web"),
        ("vllm", "vllm"),
        ("PIL", "runtime"),
        ("no_such", None),
    ],
)
def test_a_module_is_of_the_smallest_extra_that_has_it(module: str, extra: str | None) -> None:
    assert packages.extra_of(module) == extra


def test_a_copy_that_is_not_installed_says_how_to_install_it(plain: Path, tmp_path: Path) -> None:
    for path in packages_of(plain.parent).iterdir():
        if not path.name.startswith("rlctl-"):  # its metadata
            (tmp_path / path.name).symlink_to(path)
    command = [str(plain / "python"), "-S", "-m", "rlctl", "tui"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.splitlines()[-1].strip() == f"pip install -e {tmp_path}"


@pytest.mark.parametrize(
    ("config", "device", "extras"),
    [
        ({}, "cpu", {"runtime"}),
        ({"rollout": {"engine": {"type": "auto"}}}, "cuda", {"runtime", "vllm"}),
        ({"rollout": {"engine": {"type": "vllm"}}}, "cpu", {"runtime"}),
        ({"train": {"engine": {"type": "megatron"}}}, "cpu", {"runtime", "megatron"}),
        ({"tracking": [{"type": name} for name in ("swanlab", "wandb", "mlflow", "tensorboard")]}, "cpu", {"runtime", *TRACKERS.values()}),
        ({"buffer": {"type": "sql", "url": "postgresql://u@h/d"}}, "cpu", {"runtime", "postgresql"}),
    ],
)  # fmt: skip
def test_what_a_config_needs(
    config: dict[str, object], device: Device, extras: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "missing", lambda extra: (f"all of {extra}",))
    with pytest.raises(MissingDependency) as refused:
        require_packages(config_from({"rlctl": 1, "model": {"path": "m"}, **config}), device)
    assert set(re.findall(r"all of (\w+)", refused.value.message)) == extras
    assert refused.value.hint == packages.install(*extras)


def test_a_config_that_is_only_tried_needs_no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's default is wandb, which a first ``rlctl try`` must not ask for."""
    loaded, _ = read_many([ROOT / "presets" / "quickstart" / "grpo.yaml"])
    assert loaded is not None
    tracked = replace(loaded.config, tracking=(WandbTracker(),))
    monkeypatch.setattr(packages, "missing", lambda extra: () if extra == "runtime" else (extra,))
    require_packages(tracked, "cpu", tracks=False)
    with pytest.raises(MissingDependency, match="tracking with wandb needs wandb"):
        require_packages(tracked, "cpu")


def test_an_import_that_an_extra_would_serve_is_no_bug_of_ours() -> None:
    refusal = packages.explained(ModuleNotFoundError("No module named 'torch.x'", name="torch.x"))
    assert refusal is not None
    assert refusal.hint == packages.install("runtime")
    assert packages.explained(ModuleNotFoundError("no", name="rlctl.nothing")) is None
    assert packages.explained(ModuleNotFoundError("no", name="megatron")) is not None
