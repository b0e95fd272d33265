"""Patterns and regular expressions by chance: what matches in bash matches here, and most of them are read."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from rlctl.common.errors import DocumentError
from rlctl.shell.run import read_script
from rlctl.shell.text import plain, problem
from tests.shell.test_shell import needs_bash

SCRIPTS = 1500
SUBJECTS = (
    *("Qwen2.5-7B", "a b", "a*b", "x.y", "", "7B", "[a]", "a-c"),
    *("ab/cd.tar.gz", "Model_70B-it", "a|b", r"\d", "A1"),
)
VALUES = ("7B", "*", "a?", ".", "[0-9]", "a", "")
PARTS = (
    *('"7B"', "'7B'", '"*"', "'a b'", "7B", "a", "b", "*", "?", "**", r"\*", r"\?", r"\.", ".", "-", '"."', "a\\ b"),
    *('"a "', "Q", "x", "_", '"$P"', "$P", "${P}", '"${P}B"', "${P%B}", "$(echo a)", '"$E"', "$E"),
    *("[a-z]", "[!0-9]", "[^a]", "[[:digit:]]", "[[:alpha:]_]", "[]a]", r"[a\]]", '["a-c"]', "[a'-'c]", "[.]"),
    *("[$P]", '["$P"]', "[[:alpha:]-_]", "[z-a]", "[a-c-e]", "[--a]"),
)
GROUPS = ("@(a|7B)", "?(a)", "*(a|b)", "+([0-9])", '@("7B"|x*)', "!(a)", "@($P|a)", "@(a|@(x|7)B)", r"@(\||b)")
EXPRESSIONS = (
    *("(7B|a)", "[0-9]+", "^", "$", "a+", ".*", "x?", "(a|b)*", "[[:alpha:]]+", '"."', r"\.", r"\*", "$P", '"$P"'),
    *("[^a]", "7B", "'+'", "a|b", "{1}", "[0-9]{1,2}", "-", "(a b)", "\\ ", r"\(", "[.]", '"a b"', "_", "b"),
)


class Made:
    """Statements by chance that set R by what a pattern matches."""

    def __init__(self, seed: int) -> None:
        self.made = random.Random(seed)

    def pattern(self, groups: bool = False) -> str:
        parts = [self.made.choice(PARTS) for _ in range(self.made.randint(1, 4))]
        if groups and self.made.random() < 0.25:
            parts.insert(self.made.randint(0, len(parts)), self.made.choice(GROUPS))
        return "".join(parts)

    def expression(self) -> str:
        return "".join(self.made.choice(EXPRESSIONS) for _ in range(self.made.randint(1, 4)))

    def condition(self, depth: int = 1) -> str:
        kind, subject = self.made.random(), self.made.choice(['"$S"', "$S", "${S}", '"${S##*/}"', "x$S", "${S:-a}"])
        if depth and kind < 0.25:
            a, b = self.condition(0), self.condition(0)
            return self.made.choice(
                [f"{a} && {b}", f"{a} || {b}", f"! {a}", f"( {a} || {b} ) && {a}", f"! ( {a} )", f"! {a} && {b}"]
            )
        if kind < 0.6:
            return f"{subject} {self.made.choice(['==', '=', '!='])} {self.pattern(groups=True)}"
        if kind < 0.85:
            return f"{subject} =~ {self.expression()}"
        return self.made.choice([f"-n {subject}", f"-z {subject}", subject, f"{subject} < b", f"{subject} > Q"])

    def statement(self) -> str:
        sets = f"S='{self.made.choice(SUBJECTS)}'; P='{self.made.choice(VALUES)}'; "
        kind = self.made.random()
        if kind < 0.5:
            return f"{sets}if [[ {self.condition()} ]]; then R=1; else R=2; fi"
        if kind < 0.6:
            return f'{sets}[[ $S =~ {self.expression()} ]]; R="${{BASH_REMATCH[0]}}"'
        if kind < 0.8:
            word = self.made.choice(['"$S"', "$S", "${S}b"])
            first = f"{self.pattern()}|{self.pattern()}) R=1 ;;"
            return f"{sets}case {word} in {first} ({self.pattern()}) R=2 ;; *) R=3 ;; esac"
        sign, quote = self.made.choice(["#", "##", "%", "%%", "/", "//", "/#", "/%"]), self.made.choice(['"', ""])
        by = self.made.choice(["/_", "/", '/"$P"', "/a b", ""]) if sign[0] == "/" else ""
        return f"{sets}R={quote}${{S{sign}{self.pattern()}{by}}}{quote}"


def as_bash(statements: list[str], folder: Path) -> list[str]:
    """What R is after each statement, empty if bash names an error; else it begins with ``=``."""
    lines = [
        f"(R=; {{ eval {quoted(statement)}; }} 2>error; [ -s error ] || printf '=%s' \"$R\"; exit 0); printf '\\0'"
        for statement in statements
    ]
    (folder / "all.sh").write_text("\n".join(lines))
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(["bash", "all.sh"], cwd=folder, env=environment, capture_output=True, check=True)
    return ran.stdout.decode().split("\0")[:-1]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@needs_bash
def test_patterns_by_chance_match_what_they_match_in_bash(tmp_path: Path) -> None:
    statements = [Made(seed).statement() for seed in range(SCRIPTS)]
    ran = as_bash(statements, tmp_path)
    assert len(ran) == SCRIPTS
    known, differing = 0, []
    for statement, wanted in zip(statements, ran, strict=True):
        try:
            word = read_script(f'{statement}\ntrainer "$R"', "run.sh", environment={}).commands[-1].words[1]
        except DocumentError as error:
            raise AssertionError(statement) from error
        if problem(word) is None and wanted:
            known += 1
            if plain(word) != wanted[1:]:
                differing.append(f"{statement}\n  read: {plain(word)!r}, bash: {wanted[1:]!r}")
    assert not differing, "\n".join(differing[:5])
    assert known > SCRIPTS * 0.85


@needs_bash
@pytest.mark.parametrize(
    "statement",
    [
        'M=Qwen2.5-0.5B; [[ "$M" == *"7B"* ]] && R=1',
        "M=Qwen2.5-7B; [[ $M == *\"7B\"* && ! $M =~ (^|/)'0.5B'$ ]] && R=1",
        'M=a/Qwen2.5-7B; case $M in *"0.5B"*) R=1;; *\'7B\'*|*"8B"*) R=2;; *) R=3;; esac',
        'M=x; if [[ -z "$M" || ( "$M" != *"y"* && -n "$M" ) ]]; then R=1; fi',
        "M='a b'; [[ $M == a\\ b ]] && R=1; [[ $M =~ (a b) ]] && R+=2",
        'M=7; [ "$M" = "$(echo "7")" ] && R=1',
        'M=x\n[[ "$M" == "x" &&\n  -n $M ]] && R=1',
    ],
)
def test_a_pattern_with_quoted_parts_is_one_pattern(statement: str, tmp_path: Path) -> None:
    word = read_script(f'{statement}\ntrainer "=$R"', "run.sh", environment={}).commands[-1].words[1]
    assert [plain(word)] == as_bash([statement], tmp_path)
