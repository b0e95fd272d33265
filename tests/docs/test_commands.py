"""Every command, file and snippet shown in README and docs is true: it is run, and the output shown is its output.

A page is one folder. Its blocks are taken in order: ``yaml``, ``python`` and ``toml`` blocks that start with ``# file: NAME``
become files, other ``python`` blocks are run, ``bash`` blocks are commands, ``console`` blocks are commands (``$ ``) with their
output, in which ``...`` stands for any lines, or for any part of one. A comment before a block says what is not usual in it:

    <!-- exit 3 -->                        the exit code of its commands
    <!-- parsed only: needs a cluster -->  options are parsed, files are planned, nothing is run
    <!-- not run: what another tool says -->

Run as a program it prints the outputs anew, and draws README's picture: ``python tests/docs/test_commands.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

from rlctl import cli
from rlctl.cli.reference import commands
from rlctl.config import presets

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"[|<>&;]|^cd |^[A-Z_]+=")
PIPED = re.compile(r"rlctl (?P<words>[^|<>&;]*?)(?: (?P<to>2>/dev/null|2>&1 >/dev/null))?(?: \| (?P<then>.*))?")
"""A plain ``rlctl`` command whose output goes on: it needs no process of its own."""
KINDS = {"bash", "console", "yaml", "python", "toml", "json", "lua", "text", ""}
WIDTH = "110"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    text: str
    mark: str
    line: int
    span: tuple[int, int]
    """Where its text is in the page."""

    @property
    def parsed_only(self) -> bool:
        return self.mark.startswith("parsed only: ")

    @property
    def exit_code(self) -> int:
        return int(self.mark.removeprefix("exit ")) if self.mark.startswith("exit ") else 0

    def commands(self) -> list[tuple[str, list[str]]]:
        """Commands with the lines shown after each."""
        if self.kind == "bash":
            return [(line, []) for line in joined(self.text) if line and not line.startswith("#")]
        found: list[tuple[str, list[str]]] = []
        for line in joined(self.text):
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


def joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("kind")) + 1
        found.append(Block(match["kind"], match["text"], match["mark"] or "", line, match.span("text")))
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(command: str) -> tuple[int, str]:
    """Run a command in the working folder; its exit code, and stdout before stderr."""
    if command.startswith("rlctl ") and not SHELL.search(command) and not install_here():
        return run_here(shlex.split(command)[1:])
    if (piped := PIPED.fullmatch(command)) and not install_here():
        code, out, err = streams_here(shlex.split(piped["words"]))
        shown = {"": out + err, "2>/dev/null": out, "2>&1 >/dev/null": err}[piped["to"] or ""]
        return run_shell(piped["then"], shown) if piped["then"] else (code, shown)
    return run_shell(command)


def run_shell(command: str, given: str = "") -> tuple[int, str]:
    """Run a command in a shell, with text on its standard input; its exit code, and stdout before stderr."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": WIDTH, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", command], input=given, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    return ended.returncode, ended.stdout + ended.stderr


def install_here() -> bool:
    """Make a ``pyproject.toml`` in the working folder known to a new process, as installing it would; whether there is one."""
    if not Path("pyproject.toml").exists():
        return False
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = Path(f"{project['name']}-{project['version']}.dist-info")
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    groups = project.get("entry-points", {})
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in items.items())
        for group, items in groups.items()
    ]
    (about / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    return True


def run_here(arguments: list[str]) -> tuple[int, str]:
    """The same for a plain ``rlctl`` command, in this process."""
    code, out, err = streams_here(arguments)
    return code, out + err


def streams_here(arguments: list[str]) -> tuple[int, str, str]:
    """An ``rlctl`` command in this process: its exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before, sys.argv = sys.argv, ["rlctl", *arguments]
    os.environ |= {"NO_COLOR": "1", "COLUMNS": WIDTH}
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main()
    finally:
        sys.argv = before
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


def matches(shown: list[str], output: str) -> bool:
    """Whether lines as shown are the output; ``...`` is any lines, or any part of a line."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n"
    return re.fullmatch(pattern, output if output.endswith("\n") or not output else f"{output}\n") is not None


def file_of(block: Block) -> Path | None:
    """The file that a block is, where its first line says so."""
    first = block.text.partition("\n")[0]
    return Path(first.removeprefix("# file: ")) if first.startswith("# file: ") else None


def parse(command: str) -> None:
    """Resolve a command's options without running it; plan what it would run."""
    words = shlex.split(re.split(r" [|>] ", command)[0], comments=True)
    if words[:1] == ["rlctl"]:
        parse_rlctl(words[1:])
    elif words[:1] == ["make"]:
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), command
    elif words[:2] == ["pip", "install"] or words[:3] == ["uv", "tool", "install"]:
        check_extras([word for word in words[2:] if word != "install"])
    elif words[1:3] == ["mcp", "add"]:  # a coding agent's command, with that of the server
        parse(shlex.join(words[words.index("--") + 1 :]))
    else:
        known = ("git", "cd", "ray", "python", "bash", "docker", "ssh", "trinity", "sbatch", "kubectl")
        assert words[0] in known, f"{command}: nothing checks this"


def parse_rlctl(words: list[str]) -> None:
    group, whole = get_command(cli.app), words
    while words and hasattr(group, "commands") and words[0] in group.commands:
        group, words = group.commands[words[0]], words[1:]
    if hasattr(group, "commands"):
        known = {name for option in group.params for name in option.opts}
        assert words, "a command is missing"
        assert set(words) <= known, f"rlctl has no command {words[:1]}"
        return
    context = group.make_context(group.name, list(words))
    if whole[:2] in (["presets", "show"], ["presets", "write"]):
        presets.text(context.params["name"])
    inputs = context.params.get("inputs") or []
    if group.name in ("launch", "try") and inputs and all(Path(item).is_file() or "=" in item for item in inputs):
        assignments = [word for item in context.params["assignments"] for word in ("--set", item)]
        code, output = run_here(["plan", *inputs, *assignments])
        assert code == 0, output


def check_extras(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = re.escape(project["urls"]["Documentation"].partition("/tree/")[0])
    pinned = [need for extra in project["optional-dependencies"].values() for need in extra]
    for word in words:
        if word in pinned or word in ("--index-url", "https://download.pytorch.org/whl/cpu"):
            continue  # the CPU build of the torch that the runtime wants
        match = re.fullmatch(rf"rlctl(?:\[(.*)\])?(?: @ git\+{repository})?|-e|\.(?:\[(.*)\])?", word)
        assert match, f"pip install {word}: only rlctl is installed in the docs, and what it pins"
        extras = [extra for group in match.groups() if group for extra in group.split(",")]
        assert set(extras) <= set(project["optional-dependencies"]), word


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a page."""
    monkeypatch.chdir(tmp_path)
    for variable in ("NO_COLOR", "COLUMNS"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_shows_is_true(page: Path, folder: Path) -> None:
    for block in blocks(page):
        assert block.kind in KINDS, f"{name(page)}:{block.line}: a block of kind {block.kind!r}"
        check(page, block, folder)


def check(page: Path, block: Block, folder: Path) -> None:
    where = f"{name(page)}:{block.line}"
    file = file_of(block)
    if block.kind == "python":
        compile(block.text, where, "exec")
    if file is not None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(block.text, encoding="utf-8")
    elif block.kind == "python" and not block.mark.startswith("not run: "):
        exec(compile(block.text, where, "exec"), {"__name__": "docs"})
    elif block.kind in ("bash", "console") and not block.mark.startswith("not run: "):
        check_commands(page, block, where)


def check_commands(page: Path, block: Block, where: str) -> None:
    typed = block.commands()
    if block.parsed_only:
        for command, _ in typed:
            parse(command)
        return
    for command, shown in typed:
        code, output = run(command)
        assert code == block.exit_code, f"{where}: `{command}` ends with {code}\n{output}"
        if block.kind == "console":
            assert matches(shown, output), f"{where}: `{command}` prints (make docs)\n{output}"


def test_the_examples_of_each_command_are_commands(folder: Path) -> None:
    page = folder / "cli.md"
    page.write_text(commands(), encoding="utf-8")
    examples = [command for block in blocks(page) for command, _ in block.commands()]
    assert len(examples) > 50
    for command in examples:
        parse(command)


def test_a_wrong_page_is_noticed(folder: Path) -> None:
    """The checks above can fail: on an output, an exit code, an option, a snippet."""
    page = folder / "docs" / "page.md"
    page.parent.mkdir()
    for wrong in (
        "```console\n$ rlctl version\nrlctl 9.9\n```",
        "<!-- exit 3 -->\n```bash\nrlctl version\n```",
        "<!-- parsed only: example -->\n```bash\nrlctl launch --nowhere\n```",
        "<!-- parsed only: example -->\n```bash\nmake nothing\n```",
        "```python\nassert 1 == 2\n```",
    ):
        page.write_text(wrong + "\n", encoding="utf-8")
        (block,) = blocks(page)
        with pytest.raises(BaseException):  # noqa: B017 - an assertion, or whatever refuses an option
            check(ROOT / "README.md", block, folder)


def test_an_ellipsis_stands_for_lines_or_a_part_of_one() -> None:
    assert matches(["a", "...", "d"], "a\nb\nc\nd\n")
    assert matches(["took ... s"], "took 12 s\n")
    assert not matches(["a", "d"], "a\nb\nd\n")
    assert not matches(["a"], "a\nb\n")


def printed(page: Path) -> Iterator[tuple[tuple[int, int], str]]:
    """The console blocks of a page whose output is another now, with their new text; run in the working folder."""
    for block in blocks(page):
        if block.kind != "console" or block.parsed_only or block.mark.startswith("not run: "):
            with contextlib.suppress(AssertionError):
                check(page, block, Path.cwd())
            continue
        lines = []
        for command, shown in block.commands():
            _, output = run(command)
            same = matches(shown, output)
            lines += [f"$ {command}", *(shown if same else [line.rstrip() for line in output.splitlines()])]
        text = "\n".join(lines) + "\n"
        if text != block.text.replace("\\\n", " "):
            yield block.span, text


def print_anew() -> None:
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            sys.path.insert(0, folder)
            changes = list(printed(page))
        text = before
        for (start, end), new in reversed(changes):
            text = text[:start] + new + text[end:]
        if text != before:
            page.write_text(text, encoding="utf-8")
            print(f"{name(page)}: {len(changes)} outputs printed anew")
    subprocess.run([sys.executable, "-m", "tests.docs.pictures"], cwd=ROOT, check=True)


if __name__ == "__main__":
    print_anew()
