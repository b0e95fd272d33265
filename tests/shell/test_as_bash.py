"""Short scripts, by construct: the last call of ``trainer`` is the one that bash makes, or none where bash makes none."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from rlctl.common.errors import DocumentError
from rlctl.shell.text import plain, problem
from tests.shell.test_shell import as_bash, needs_bash, read

FAILURES = (
    "false; trainer a",
    "(( 0 )); trainer a",
    "i=0; (( i++ )); trainer a",
    "i=0; (( i += 1 )); trainer $i",
    "i=0; let i++; trainer a",
    "[ 1 = 2 ]; trainer a",
    "[[ a == b ]] && :; trainer a",
    "f() { [[ a == b ]] && :; }; f; trainer a",
    "f() { false; trainer b; }; f; trainer a",
    "f() { false; trainer b; }; f || true; trainer a",
    "f() { false; A=1; }; if f; then trainer b$A; fi",
    "f() { set +e; false; trainer b; }; f; false; trainer c",
    "false || true; trainer a",
    "true && false; trainer a",
    "! true; trainer a",
    "if false; then :; fi; trainer a",
    "while false; do :; done; trainer a",
    "for i in 1 2; do false; done; trainer a",
    "for i in 1 2; do [ $i = 2 ] && :; done; trainer a",
    "case a in a) false;; esac; trainer a",
    "{ false && :; }; trainer a",
    "(false && :); trainer a",
    "(exit 3); trainer a",
    "(set +e; false; true); trainer a",
    "bash -c 'exit 3'; trainer a",
    "bash -c 'false; exit 0'; trainer a",
    "false & trainer a",
    "true | false; trainer a",
    "false | true; trainer a",
    "set -o pipefail; false | true; trainer a",
    "A=$(false); trainer a",
    "A=$(false; echo b); trainer a$A",
    "export A=$(false); trainer a$A",
    "f() { local A=$(false); trainer a$A; }; f",
    "A=1 B=$(false); trainer a",
    "A=$(false) B=$(true); trainer a",
    "A=(1 $(false)); trainer a",
    "echo $(false); trainer a",
    "A=$(set -e; false; echo x); trainer a$A",
    "A=$(set -e; false; echo x) || true; trainer a$A",
    "shopt -s inherit_errexit; A=$(false; echo x); trainer a$A",
    "shift 99; trainer a",
    "return 1; trainer a",
    "command false; trainer a",
    "X=1 false; trainer a",
    "time false; trainer a",
    "{ false; } > /dev/null; trainer a",
    "set +e; false; trainer a",
)
"""Each after ``set -e``."""
STATUSES = (
    "for i in 1 2; do false; done && A=1; trainer a$A",
    "i=0; while (( i < 2 )); do (( i++ )); false; done || A=1; trainer a$A",
    "for i in 1 2; do false; continue; done || A=1; trainer a$A",
    "for (( i=0; i<2; i++ )); do false; done || A=1; trainer a$A",
    "if true; then false; fi && A=1; trainer a$A",
    "true | false && A=1; trainer a$A",
    "! false | true && A=1; trainer a$A",
    "! (( 0 )) && A=1; trainer a$A",
    "A=$(false) && B=1; trainer a$B",
    "if A=$(false); then B=1; else B=2; fi; trainer a$B",
    "f() { local x; x=$(g) || return 1; A=$x; }; g() { echo 5; return 3; }; f || A=no; trainer $A",
    'die() { echo "$*" >&2; exit 1; }; [ "$NODES" = 3 ] || die no; trainer a',
    "cat > c.yaml <<E && trainer a\nx\nE\n",
    "A=1; trainer a $?; (exit 0); B=$?; trainer b$B$?",
    "f() { return 0; }; f; trainer $?",
    "false || true; trainer $?; A=$(true); trainer $?$?",
    "if true; then :; fi; trainer $?; sleep 0 & trainer $?; wait",
    "i=0; while (( i < 3 )); do i=$((i+1)); set +e; trainer a$i; rc=$?; set -e; if (( rc == 0 )); then break; fi; done",
    "for i in 1 2 3; do true; if [ $? -ne 0 ]; then A=1; else break; fi; done; trainer b$A$i",
)
PATTERNS = (
    '[[ "axb" =~ "a.b" ]] && A=1; trainer x$A',
    "R='a.b'; [[ axb =~ $R ]] && A=1; [[ axb =~ \"$R\" ]] && B=1; trainer x$A y$B",
    "[[ v1x2 =~ ^v1\\.2 ]] && A=1; trainer x$A",
    '[[ v1.2 =~ ^v([0-9]+)\\.([0-9]+)$ ]] && trainer "${BASH_REMATCH[1]}" "${BASH_REMATCH[0]}"',
    "[[ abc =~ [[:alpha:]]+ ]] && A=1; [[ abc == [[:alpha:]]* ]] && B=1; trainer x$A y$B",
    'P=\'a*\'; [[ abc == $P ]] && A=1; [[ abc == "$P" ]] && B=1; [[ abc == a"*" ]] && C=1; trainer x$A y$B z$C',
    'case "a b" in "a "*) A=1;; *) A=2;; esac; case abc in a"*") B=1;; *) B=2;; esac; trainer $A $B',
    'X=\'a*b\'; P=\'*\'; trainer "${X//\\*/x}" "${X//\'*\'/x}" "${X//$P/x}" "${X//"$P"/x}"',
    'X=a/b/c; trainer ${X//\\//_} ${X////_} ${X///b/_} "${X//\\//\\\\/}"',
    "A=a; B=ab; trainer ${B/${A/a/b}/x}",
    "X=AbC; trainer ${X//[A-Z]/x} ${X//[[:upper:]]/x} ${X//[^a-z]/-}",
)
WORDS = (
    'A=(1 "2 3"); trainer "${A[@]+"${A[@]}"}" x',
    'A=(1 "2 3"); trainer ${A[@]:+--x "${A[@]}"} x',
    'A=(a b c); for i in "${!A[@]}"; do B+="$i=${A[$i]},"; done; trainer $B "${A[@]: -2}" "${@: -1}"',
    "A=7; local_() { local A=1 B=$A; trainer x$B; }; local_",
    "A=7; export A=1 B=$A; trainer $A $B",
    "A=$[1+2]; trainer $A",
    'A=${X:-["/a b"]}; B=${Y:-[1,\'2\']}; trainer k=$A "$B"',
    "f() { trainer a $1; }; time f b",
    "time trainer a",
    "trainer $\"hello\" $'a\\x41\\101\\u0041'",
    'X=`echo \\`echo a\\``; Y=`echo \\$HOME`; Z="`echo "a b"`"; trainer $X $Y "$Z"',
    "A=$(echo a # c )\n); trainer $A",
    'cat > f <<-E\n\tx \\"y\\" "z" \'$HOME\'\n\tE\ntrainer "$(<f)"',
    "A=1; readonly A; unset A 2>/dev/null; trainer x$A",
)
OUTPUTS = (
    'A=1; X=$(cat <<E\na $A "b"\n  c \\$A\nE\n); Y=$(cat <<\'E\'\na $A\nE\n); trainer "$X" "$Y"',
    'X=$(cat <<E\ntrainer a b\nE\n); eval "$X c"',
    'X=$(echo -n a; echo b); Y=$(printf a; printf b); Z=$(printf \'a\\n\'; echo b); trainer "$X" "$Y" "$Z"',
    "X=$(echo a > /dev/null); Y=$(echo a >&2); Z=$({ echo a; echo b; } > f); trainer x$X y$Y z$Z",
    "f() { echo log >&2; echo v; }; trainer $(f)",
    "f() { echo log > f; echo v; }; trainer $(f 2>/dev/null)",
    "X=$(printf -- '--%s=%s ' a 1 b 2); printf -v Y '%s,' a b; trainer $X ${Y%,}",
    "trainer $(basename / ) $(basename .c .c)",
)
EMPTY = (
    "A=$(false); if [ -z $A ]; then A=1; fi; trainer $A",
    'eval \'A=1; B="x y"\'; eval C=\\$A; trainer $A "$B" $C',
    'A=${U:-d} B=${U-e} C=${U:+f} D=${HOME:+g}; : ${E:=h}; trainer a=$U b="$U" $A $B x$C $D $E ${#U} $((U + 1)) ${U%x}y $U',
    'A=$U$U; trainer ${A:-z} "$A" p$A $A; [ -z $A ] && trainer ${A}q',
    "unset HOME; trainer x${HOME}y ${HOME:-z}",
    "set -u; trainer ${U:-d} ${U-e} x${U:+f} ${1+g}",
    'f() { trainer a$1 ${2:-b} "$*"; }; f',
)
PROCESSES = (
    "A=1; export B=2; trainer $(bash -c 'echo a=$A b=$B')",
    "A=1; trainer $(A=2 bash -c 'echo $A')",
    "f() { echo x; }; export -f f; trainer y$(bash -c 'f')",
    "set -u; trainer y$(bash -c 'echo ${Q}x$W')",
    "trainer $(bash -c 'echo $0 $1' a b) $(bash -c 'echo $0')",
)


@needs_bash
@pytest.mark.parametrize(
    "script",
    [*(f"set -e; {script}" for script in FAILURES), *STATUSES, *PATTERNS, *WORDS, *OUTPUTS, *EMPTY, *PROCESSES],
)
def test_a_script_starts_what_bash_starts(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reading = read(script, "-x", "8", "a b")
    started = [command for command in reading.commands if plain(command.words[0]) == "trainer"]
    words = started[-1].words if started else ()
    assert not any(problem(word) for word in words)
    ran: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # bash calls no trainer
        ran = as_bash(script, tmp_path, "-x", "8", "a b")
    assert [plain(word) for word in words] == ran


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("trainer x *.json", "files that match"),
        ("A=(data/*.parquet); trainer ${A[@]}", "files that match"),
        ("for f in conf/?.yaml; do A+=$f; done; trainer $A", "only running"),
        ("trainer $HOSTNAME", "bash sets"),
        ("f() { trainer ${FUNCNAME[0]}; }; f", "bash sets"),
        ("X=abc; trainer ${X/b/[&]}", "bash 5.2"),
        ("X=abc; trainer ${X^^[ab]}", "pattern"),
        ("A=([2]=x [5]=y); trainer ${A[0]}", "places"),
        ("[[ x == !(y) ]] && A=1; trainer $A", "only running"),
        ("[[ ab =~ (a|ab)b? ]] && A=1; trainer ${BASH_REMATCH[1]}", "regular expression"),
        ("f() { echo log >&2; }; X=$(f 2>&1); trainer $X", "printed as an error"),
        ("while read -r x; do A+=$x; done < list; trainer $A", "only running"),
    ],
)
def test_what_the_reader_does_not_model_is_unknown(script: str, why: str) -> None:
    words = read(script).commands[-1].words[1:]
    found = next(piece for word in words if (piece := problem(word)) is not None)
    assert why in found.problem


def test_files_are_looked_for_in_no_override() -> None:
    words = read("trainer a.b=[1,2] k=* '*.x' \"[a]\"; set -f; trainer a.b=[1,2] k=* '*.x' \"[a]\" *").commands
    assert [[plain(word) for word in command.words] for command in words] == [
        ["trainer", "a.b=[1,2]", "k=*", "*.x", "[a]"],
        ["trainer", "a.b=[1,2]", "k=*", "*.x", "[a]", "*"],
    ]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("A=1\ntrainer a \\ \n  b=1", 2),
        ("A=1\ntrainer a \\  # c\n  b=1", 2),
        ("A=1\nselect x in a b; do break; done", 2),
        ("trap 'A=1' DEBUG\ntrainer", 1),
        ("trap 'A=1' ERR\ntrainer", 1),
        ("A=1\ntrap 'python3 -m m' EXIT", 2),
        ("! ! true", 1),
        ("A=1\ntime { A=2; }", 2),
    ],
)
def test_what_would_change_the_rest_of_the_script_is_refused(script: str, line: int) -> None:
    with pytest.raises(DocumentError) as caught:
        read(script)
    assert caught.value.at is not None
    assert caught.value.at.line == line


def test_a_backslash_before_a_blank_may_be_in_quotes_and_comments() -> None:
    assert [plain(word) for word in read("# a \\ \n# b\ntrainer 'a \\ \nb'").commands[-1].words] == [
        "trainer",
        "a \\ \nb",
    ]


def test_a_script_that_a_failure_ends_says_which() -> None:
    reading = read("set -e\nfalse\ntrainer a")
    assert reading.commands == []
    assert reading.ended is not None
    assert reading.ended.line == 2
    assert reading.failed == "false"


def test_a_return_that_may_happen_is_an_assumption() -> None:
    reading = read("f() {\n  [ -f x ] && return\n  A=1\n}\nf\ntrainer $A")
    assert [at.line for at in reading.state.assumed.values()] == [2]


def test_the_name_of_a_sourced_file_is_known_in_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "env.sh").write_text('HERE=$(dirname "${BASH_SOURCE[0]}"); where() { echo "$BASH_SOURCE"; }\n')
    script = f"cd {tmp_path}; source lib/env.sh; trainer $HERE $(where) $(basename $BASH_SOURCE)"
    assert [plain(word) for word in read(script).commands[-1].words] == ["trainer", "lib", "lib/env.sh", "run.sh"]


STARTED = (
    'bash inner.sh --lr 5 "a b"',
    "bash -x inner.sh -- a",
    "bash -euo pipefail inner.sh --lr 5",
    "/bin/bash ./inner.sh -x a",
    './inner.sh --lr 5 "a b"',
    '"$PWD/inner.sh" a --lr',
    "LR=1 ./inner.sh a",
    "env LR=2 SIZE=3 bash inner.sh --lr",
    "env LR=4 ./inner.sh",
    "nohup bash inner.sh a --lr 5",
    "timeout 5 ./inner.sh a",
    "command ./inner.sh a",
    "bash -lc './inner.sh --lr 5'",
    "bash -c './inner.sh \"$@\"' x --lr 5",
    "(exec bash inner.sh --lr 5)",
    "exec ./inner.sh --lr 5",
)
"""Ways to start another script; each is given options, and variables by some."""


@needs_bash
def test_another_script_is_given_its_words_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "inner.sh"
    inner.write_text('#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" "${LR:-}" "$SIZE" >> out; echo >> out\n')
    inner.chmod(0o755)
    script = "export SIZE=8\n" + "\n".join(STARTED) + "\n"
    subprocess.run(["bash", "-c", script], capture_output=True, check=True, stdin=subprocess.DEVNULL)
    wanted = [line.split("\0")[:-1] for line in (tmp_path / "out").read_text().splitlines()]
    inner.write_text('trainer "${0##*/}" "$@" "${LR:-}" "$SIZE"\n')
    monkeypatch.setenv("PWD", str(tmp_path))
    reading = read(script.replace("$PWD", str(tmp_path)))
    assert [[plain(word) for word in command.words[1:]] for command in reading.commands] == wanted


def test_what_a_trap_on_errors_sets_is_lost_where_errors_end_the_script() -> None:
    assert read("set -e\ntrap 'code=$?; echo $code' ERR\ntrainer a").commands
