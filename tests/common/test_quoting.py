"""What rlctl writes or prints for a shell: every text is one word that means exactly it, and no part of it is run."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlctl.common.filenames import fit, unfit
from rlctl.common.quoting import command, word
from rlctl.common.terminal import UNSEEN_IN_LINE, escaped, safe
from rlctl.shell.run import read_script
from rlctl.shell.text import plain

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "plain", "", " ", "a b", "it's", "it's !important", "a\ntouch MARK #", "'\ntouch MARK\n'", "$(touch MARK)", "`touch MARK`",
    "a;touch MARK", "a&touch MARK&", "|touch MARK", ">MARK", "~/x", "*", "?", "[a]", "{a,b}", "\\", "\\'", "\\\n", "#", "-n", "=ls",
    "k=a b", "k='a' b", "k=$(touch MARK)'", "'k=$(touch MARK)", "\t", "\r", "\x1b]0;x\x07", "\x9b31m", "\u202e\u200b", "a\u200cb", "x\u2028y",
    "\ufeff", "ä € 😀", "\U000e0041", "\x7f", "';touch MARK;'\n", "\\';touch MARK;#\u200b", "!!", "^a^b", "%1", "\x01f", "0\x010",
]  # fmt: skip


@pytest.mark.parametrize("lines", [False, True])
def test_bash_reads_a_word_as_it_was(tmp_path: Path, lines: bool) -> None:
    text = " ".join(word(each, lines=lines) for each in HOSTILE)
    for environment in ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}):
        ran = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, cwd=tmp_path, env=environment, timeout=30, check=True
        )  # fmt: skip
        assert ran.stdout.decode().split("\0")[:-1] == HOSTILE
    assert list(tmp_path.iterdir()) == []
    if not lines:
        assert UNSEEN_IN_LINE.search(text) is None


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_no_shell_runs_a_part_of_a_word(tmp_path: Path, shell: str) -> None:
    subprocess.run([shell, "-c", f": {command(HOSTILE)}"], cwd=tmp_path, timeout=30, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_text_is_a_word_too(tmp_path: Path) -> None:
    name = "\udcff\udce2x"
    assert word(name) == r"$'\xff\xe2x'"
    ran = subprocess.run(["bash", "-c", f"printf %s {word(name)}"], capture_output=True, timeout=30, check=True)
    assert ran.stdout == b"\xff\xe2x"


def test_a_script_with_such_words_is_read_as_bash_reads_it() -> None:
    for text in HOSTILE:
        for lines in (False, True):
            script = f"program {word(text, lines=lines)} {word('key=' + text, lines=lines)}\n"
            read = read_script(script, "run.sh", environment={}).commands[-1].words
            assert [plain(each) for each in read[1:]] == [text, f"key={text}"]


@pytest.mark.parametrize("text", HOSTILE)
def test_json_shows_every_character(text: str) -> None:
    shown = escaped(json.dumps({text: [text, "\ud800"]}, indent=1, ensure_ascii=False))
    assert json.loads(shown) == {text: [text, "\ud800"]}
    assert UNSEEN_IN_LINE.search(shown.replace("\n", "")) is None
    shown.encode()


def test_a_terminal_shows_every_character() -> None:
    assert safe("a\u200bb\u202ec\x9bd\x1b[31me\U000e0041") == "a\ufffdb\ufffdc\ufffdde\ufffd"
    for kept in ("👨\u200d👩", "می\u200cخواهم", "ä\n\tb"):
        assert safe(kept) == kept
    assert safe("ab\u200cc") == "ab\ufffdc"


@pytest.mark.parametrize(
    "name", ["", " ", "-x", "--", "/etc", "~x", "a/../b", "..", ".", "a\nb", "a\x1bb", "a\u202eb", "x" * 300, "a\ud800"]
)
def test_a_name_that_no_folder_should_have_is_refused_with_one_that_it_may_have(name: str) -> None:
    assert unfit(name)
    assert not unfit(fit(name))


@pytest.mark.parametrize("name", ["run", "a/b", "Qwen2.5-7B_grpo@lr=1e-6", "实验", "a..b", "it's a test", "x.y"])
def test_an_ordinary_name_is_kept(name: str) -> None:
    assert not unfit(name)
    assert fit(name) == name


COMMAND = re.compile(
    r"(?:\brlctl (?:runs |data |cluster |presets )?[a-z]+|\bpython|\bhf download|\bsbatch (?=\{)|\bkubectl apply -f)(?: --?[\w-]+(?: \S+)?)* \{(\w+)[^}]*\}"
)
"""A command with a value in it."""
SPEAKS = re.compile(
    r"rlctl (?:does|cannot|can|has|reads?|knows?|sends?|passes|parses|writes|is|chose|assumed|doesn't|here)\b"
)


def commands_in(tree: ast.AST) -> Iterator[tuple[int, ast.expr | None]]:
    """The values that are put into commands: of ``said`` and its kin, and of f-strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(first := node.args[0], ast.Constant):
            if isinstance(first.value, str) and not SPEAKS.search(first.value):
                for name in COMMAND.findall(first.value):
                    yield node.lineno, next((given.value for given in node.keywords if given.arg == name), None)
        elif isinstance(node, ast.JoinedStr):
            before = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                elif isinstance(part, ast.FormattedValue):
                    if COMMAND.search(f"{before}{{x}}") and not SPEAKS.search(before):
                        yield node.lineno, part.value
                    before = ""


def is_quoted(value: ast.expr | None) -> bool:
    if isinstance(value, ast.IfExp):
        return is_quoted(value.body) and is_quoted(value.orelse)
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("word", "quoting.word", "quoting.command")


FIXED = {
    "rlctl/cli/__init__.py",  # names of commands
    "rlctl/cluster/kuberay.py",  # a path of rlctl's
    "rlctl/tui/web.py",  # an address, in a sentence
}


def test_values_in_commands_are_quoted() -> None:
    loose, seen = [], 0
    for path in sorted((ROOT / "rlctl").rglob("*.py")):
        if "rlctl " in (text := path.read_text(encoding="utf-8")) or "python {" in text or "hf download" in text:
            for line, value in commands_in(ast.parse(text)):
                seen += 1
                name = path.relative_to(ROOT).as_posix()
                if not is_quoted(value) and name not in FIXED:
                    loose.append(f"{name}:{line}")
    assert not loose, "\n".join(loose)
    assert seen > 8


@pytest.mark.parametrize(
    "text",
    [
        'said("rlctl runs stop {name}", name=run.name)',
        'f"rlctl runs show {folder}"',
        'said("run python {path} to see", path=x)',
    ],
)
def test_a_loose_value_is_found(text: str) -> None:
    ((_, value),) = commands_in(ast.parse(text))
    assert not is_quoted(value)
