"""Reading a launch script: its last command is the one that bash itself would run, each word with the line it was written on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import DocumentError, Location
from rlctl.shell.arithmetic import evaluate
from rlctl.shell.run import ScriptReading, read_script
from rlctl.shell.text import literal, plain, problem, symbolic

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
ENVIRONMENT = {"HOME": "/home/me", "NODES": "2", "MODEL": "Qwen/Qwen3-8B"}


def read(script: str, *arguments: str, **given: str) -> ScriptReading:
    words = [literal(word, Location("command line")) or () for word in arguments]
    return read_script(script, "run.sh", arguments=words, environment=ENVIRONMENT, given=given)


def last(script: str, *arguments: str) -> list[str]:
    return [plain(word) for word in read(script, *arguments).commands[-1].words]


def as_bash(script: str, folder: Path, *arguments: str, seconds: float = 20, strict: bool = False) -> list[str]:
    """The words of the last call of ``trainer`` when bash runs the script.

    Raises:
        ValueError: strict, and bash names an error.
    """
    out = folder / "out"
    file = folder / "run.sh"
    file.write_text(f'trainer() {{ printf "%s\\0" trainer "$@" > {out}; }}\n{script}\n')
    environment = {**ENVIRONMENT, "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        ["bash", str(file), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left in the background too
    if strict and said:
        raise ValueError(said)
    return out.read_text().split("\0")[:-1]


SAME_AS_BASH = {
    "quotes": r"""trainer a='b c' "d e"f g\ h 'i"j' "k'l" "\$x \\ \a" '' "" """,
    "variables": 'A=1; B=\'x  y\'; trainer a=$A b=$B c="$B" d=${A}2 $UNSET e="$UNSET"',
    "defaults": 'trainer ${X:-a b} "${X:-a b}" ${HOME:-x} ${X-y} ${X:+z} ${HOME:+z} ${Y:=w} $Y',
    "empty is not unset": "X=; trainer a${X-u}b c${X:-d}e ${X+f} g${X:+h}i",
    "quotes in a default": "trainer ${X:-\"a b\"} ${X:-'c d'} \"${X:-e 'f'}\" ${X:-${Y:-g}}",
    "tilde": "A=~/a; B=x:~/b; C='~/c'; trainer ~ ~/x y~ a=~/z a.b=~/z \"~/q\" $A $B $C ${D:-~/d}",
    "arrays": 'A=(1 "2 3" x=$HOME); A+=(4); trainer "${A[@]}" ${A[@]} "${A[*]}" $A ${#A[@]} "${A[1]}" "p${A[@]}s" ${A[-1]}',
    "empty array": 'A=(); trainer x "${A[@]}" ${A[@]} "$@" y',
    "array over lines": "A=(\n  a=1  # one\n  # two\n  b='x y'\n\n  c=3\n)\ntrainer \"${A[@]}\"",
    "array slices": 'A=(1 2 3 4); trainer "${A[@]:1:2}" "${A[@]:2}" "${@:2}"',
    "array edits": 'A=(ab cb); trainer "${A[@]%b}" "${A[@]/b/x}"',
    "an item is set": "A=(1 2); A[1]=x; A[2]=y; trainer ${A[@]}",
    "appending": "A=x; A+=y; B=(1); B+=(2 3); trainer $A ${B[@]}",
    "cutting": "P=/a/b.tar.gz; trainer ${P%.*} ${P%%.*} ${P#*/} ${P##*/} ${P/a/A} ${P//a/A} ${P:1:3} ${P: -2} ${#P} ${P%/*}",
    "case of letters": "X=aBc; trainer ${X^} ${X^^} ${X,,} ${X,}",
    "patterns": "X=aXbXc; trainer ${X#*X} ${X##*X} ${X%X*} ${X%%X*} ${X//X/-} ${X/#a/1} ${X/%c/2} ${X//[ab]/.} ${X#?}",
    "indirect": "A=HOME; B=A; trainer ${!A} ${!B}",
    "arithmetic": "A=7; trainer $((A * 2 + 1)) $(( (A-1)/2 )) $((A % 4)) $((2**10)) a=$((1024 * 4)) $((A > 3 ? 1 : 0)) $((-7 / 2)) $(( $A + ${A} ))",
    "arithmetic in words": 'a=3; trainer x.$((a+1)).y="[$((a*2)),$a]"',
    "numbers are counted": "n=1; ((n++)); (( n += 3 )); trainer $n",
    "line continuations": "trainer a \\\n  b=1 \\\n  'c d' \\\n\n",
    "continued inside of a word": "X='{a:1,'\\\n'b:2}'\ntrainer \"$X\" a=\\\n1",
    "if": 'A=x; if [ "$A" = x ]; then B=1; elif [ "$A" = y ]; then B=2; else B=3; fi; trainer $B',
    "elif": "A=y; if [[ $A == x ]]; then B=1; elif [[ $A == y ]]; then B=2; else B=3; fi; trainer $B",
    "else": 'if [ -n "$UNSET" ]; then B=1; elif false; then B=2; else B=3; fi; trainer $B',
    "and or": '[ "$HOME" = x ] && A=1; [ "$HOME" = x ] || B=2; true && C=3; ! false && D=4; trainer "$A" "$B" $C $D',
    "conditions": '[ 3 -gt 2 ] && A+=a; [ -z "$U" ] && A+=b; [[ abc == a* ]] && A+=c; [[ abc =~ ^a.c$ ]] && A+=d; '
    "[ 1 -eq 1 -a 2 -eq 2 ] && A+=e; [ 1 -eq 2 -o 2 -eq 2 ] && A+=f; [[ -n x && ( a == b || c == c ) ]] && A+=g; "
    "[[ a < b ]] && A+=h; test x != y && A+=i; [ ! -n x ] || A+=j; (( 3 > 2 )) && A+=k; trainer $A",
    "nested conditions": 'if [ "${U:-1}" != 0 ] && { [ "$HOME" = x ] || [ "$NODES" = 2 ]; }; then L=(uv run); else L=(); fi; trainer "${L[@]}" x',
    "case": 'case $HOME in /root|/x) A=1 ;; /home/*) A=2 ;; *) A=3 ;; esac; case x in "x") B=1;; esac; trainer $A $B',
    "for": 'for x in a \'b c\' d; do A+=("$x=1"); done; for y in "${A[@]}"; do N+=x; done; trainer "${A[@]}" $N',
    "for with break": "for x in 1 2 3 4; do [ $x = 2 ] && continue; [ $x = 4 ] && break; A+=$x; done; trainer $A",
    "while": "i=0; while [ $i -lt 3 ]; do A+=$i; i=$((i+1)); done; until [ $i = 5 ]; do ((i++)); done; trainer $A $i",
    "arguments": 'trainer $# "$1" "$2" "$@" ${3:-none} "${@:2}"',
    "shift": 'a=$1; shift; trainer $a "$@" $#',
    "options of its own": 'while [[ $# -gt 0 ]]; do case "$1" in -x) X=$2; shift 2 ;; --) shift; break ;; *) R+=("$1"); shift ;; esac; done; trainer x=$X "${R[@]}" "$@"',
    "functions": 'f() { local v=$1; A+=("$v=$2"); }; function g { B=$#; }; f a 1; f "b c" 2; g x y z; trainer "${A[@]}" $B',
    "substitution": 'trainer $(echo a b) "$(echo a b)" $(basename /x/y.sh .sh) $(dirname /x/y/z) `echo q` "$(cd /tmp && pwd)" $(printf %s w) $(seq 3)',
    "substitution that decides": "A=$([ $NODES = 2 ] && echo two || echo other); trainer $A",
    "variables for one command": "A=1; A=2 true; A=3 trainer $A",
    "export": 'export A=1 B="x y"; declare C=3; readonly D=4; trainer $A "$B" $C $D',
    "subshells change nothing": "A=1; (A=2; cd /); { B=3; }; trainer $A $B",
    "local in a subshell": "A=1; f() { (declare A=2; local B=3; : $A); A=4; B=5; }; f; trainer $A $B",
    "unset": "A=1; unset A; trainer x${A:-gone}",
    "splitting a list in a variable": 'A="\n  a=1 \\\n  b=\'[1,2]\'   c=3"; trainer $A "${A}"',
    "comments": "# trainer no\ntrainer a#b '#c' d # e\n",
    "comments between words": "trainer a=1 `# one` \\\n  b=2 `# two $A `\\\n  c='a `# no` b' d `# at the end`\n",
    "ansi quotes": r"trainer $'a\tb' $'it\'s'",
    "a long list": "trainer " + " ".join(f"k{n}=${{V{n}:-{n}}}" for n in range(200)),
    "set": "set -euo pipefail; set -x; trainer a",
    "null command": "mkdir -p x; : ${A:=3}; trainer $A",
    "two assignments on a line": "A=1 B=2\nT=(x y)\ntrainer $A $B ${T[@]}",
    "two assignments on two lines": "A=1 \\\nB=2\n\nT=(x y) # c\nU=3\ntrainer $A $B ${T[@]} $U",
    "two assignments and a comment": "A=1 B=2 # of the group\nC=3\ntrainer $A $B $C",
    "two assignments before a command": "A=1 B=2\nA=7 C=8 trainer $A $B $C",
    "variables and slashes": 'A=x; B=$A/$A/b; C=a/$A/$A-$A/"$A"/$A.c D=$B/$A/d; trainer $B $C $D',
    "variables and slashes before a command": 'A=x; B=$A/$A/b C=$A-$A/"$(echo c\n)"/$A trainer $A\ntrainer $A $B$C',
    "two assignments before a pipeline": "A=1 B=2\nC=3\necho x | cat\ntrainer $A $B $C",
    "two assignments and a pipeline": "A=1 B=2\nC=3\necho x | trainer $A $B $C",
    "two assignments before a test": "A=1 B=2\nC=3\n[ $A = 1 ] && D=4\ntrainer $A $B $C $D",
    "two assignments before a loop": "A=1 B=2\nfor i in 1 2; do A=$A$i; done\ntrainer $A $B",
    "two assignments before a condition": "A=1 B=2\nif [ $A = 1 ]; then C=3; fi\ntrainer $A $B $C",
    "two assignments before a function": "A=1 B=2\nf() { C=3; }\nf\ntrainer $A $B $C",
    "two assignments and a redirect": "A=1 B=2\nC=3\ntrainer $A $B $C 2>&1",
    "two assignments before an export": "A=1 B=2\nexport C=3\ntrainer $A $B $C",
    "an export of variables and slashes": 'B=x; export A=$B:$B/b:$B/c/d E=$A; trainer "$A" "$E"',
    "two assignments before arithmetic": "A=1 B=2\nC=$((A + B))\n((D = C + 1))\ntrainer $A $B $C $D",
    "a backslash at the end of the last line": "trainer a \\\n  b \\",
    "a line that continues with nothing": "trainer a \\\n  b \\\n\n",
    "windows line ends": "A=1\r\ntrainer $A\r\n".replace("\r", ""),
}


@needs_bash
@pytest.mark.parametrize("case", SAME_AS_BASH, ids=str)
def test_the_command_is_the_one_that_bash_runs(case: str, tmp_path: Path) -> None:
    arguments = ("-x", "8", "a b", "k=v") if case != "arguments" else ("p q", "r=1")
    reading = read(SAME_AS_BASH[case], *arguments)
    words = reading.commands[-1].words
    assert not any(problem(word) for word in words)
    assert [plain(word) for word in words] == as_bash(SAME_AS_BASH[case], tmp_path, *arguments)


@needs_bash
def test_arithmetic_is_that_of_bash() -> None:
    made = random.Random(7)

    def expression(depth: int) -> str:
        if depth == 0 or made.random() < 0.2:
            return str(made.randint(0, 50)) if made.random() < 0.7 else made.choice(["a", "b", "$a"])
        if made.random() < 0.2:
            return f"({expression(depth - 1)})" if made.random() < 0.5 else f"-{expression(0)}"
        sign = made.choice(["+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "&", "|", "^"])
        return f"{expression(depth - 1)} {sign} {expression(depth - 1)}"

    texts = [expression(4) for _ in range(300)]
    script = "a=17; b=-3\n" + "".join(f"(echo $(( {text} ))) 2>/dev/null || echo error\n" for text in texts)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False).stdout.splitlines()
    assert len(ran) == len(texts)
    numbers = {"a": 17, "b": -3}
    for text, wanted in zip(texts, ran, strict=True):
        try:
            found = str(evaluate(text, numbers.__getitem__))
        except ValueError:
            found = "error"
        # bash looks at no number that && or || makes unimportant; here a division by zero is always one
        assert found == wanted or (found == "error" and ("&&" in text or "||" in text)), text


NAMES = ("a", "b", "c", "n", "i")
SCRIPTS = 150


class Made:
    """Scripts by chance, of everything that sets variables or decides what is run; some of it rlctl refuses to read."""

    def __init__(self, seed: int) -> None:
        self.made = random.Random(seed)
        self.functions = 0

    def name(self) -> str:
        return self.made.choice(NAMES)

    def value(self) -> str:
        name = self.name()
        return self.made.choice(
            [
                *(
                    str(self.made.randint(0, 9)),
                    "x",
                    "'p q'",
                    '"$a-$b"',
                    f"${name}",
                    f"${{{name}:-d}}",
                    f"${{{name}%?}}",
                ),
                *(
                    f'"${{{name}[@]}}"',
                    f"$(({self.number()}))",
                    f"$(echo {self.made.choice(['w', '$a'])})",
                    f"${{#{name}}}",
                ),
            ]
        )

    def number(self) -> str:
        return f"{self.made.choice(['n', 'i', '2', '3', 'n++'])} {self.made.choice('+-*')} {self.made.randint(1, 5)}"

    def setting(self) -> str:
        name, value, item = self.name(), self.value(), self.made.randint(0, 2)
        return self.made.choice(
            [
                *(f"{name}={value}", f"{name}+={value}", f"{name}=({value} {self.value()})", f"{name}+=({value})"),
                *(
                    f"{name}[{item}]={value}",
                    f"let n={item}+1",
                    f"let 'n += {item}' i=n",
                    f"(( n += {item} ))",
                    "((i++))",
                ),
                *(
                    "(( ++i ))",
                    f"(( n = i = {item} ))",
                    f"unset {name}",
                    f"unset '{name}[{item}]'",
                    f"declare -i n={item}+2",
                ),
                *(
                    f"export {name}={value}",
                    f"declare {name}={value}",
                    f"printf -v {name} %s {value}",
                    f"readonly r={item}",
                ),
                *(
                    f"set -- {value} {self.value()}",
                    "shift",
                    f"{name}=$1",
                    f"{name}=$#",
                    f"IFS={self.made.choice([':', '-', 'x'])}",
                ),
                *(
                    f"read {name} <<< {value}",
                    f"{name}=$(f1; echo $b)",
                    f"command printf -v {name} %s {item}",
                    f"unset -v {name}",
                ),
                *(
                    f"{name}=$(false)",
                    f"{name}=$(f1; (( i )))",
                    f"local_{name}=1 false",
                    f"set {self.made.choice('-+')}e",
                    f"set {self.made.choice('-+')}o pipefail",
                    f"set {self.made.choice('-+')}eo pipefail",
                ),
                *(
                    f"export {name}={value} i=${name}",
                    "unset r",
                    f"{name}=$(bash -c 'echo $a$0; exit 1' z)",
                    f"{name}=$({{ echo {item}; echo -n e >&2; printf '%s,' u $b; }})",
                    "[[ $b =~ ^(x|f)([a-z0-9]*) ]]",
                    f'{name}="${{{name}//"*"/{value}}}"',
                    f"{name}=${{{name}/[[:alpha:]]/_}}",
                ),
                *(
                    f"declare -u {name}={value}",
                    f"export -n {name}",
                    f"eval {name}={item}",
                    f"{name}={item} f1",
                    "f1 7 8",
                ),
            ]
        )

    def condition(self) -> str:
        return self.made.choice(
            ["[ $i = 2 ]", '[ -z "$a" ]', "(( n > 3 ))", "[[ $b == x* ]]", "true", "false", "f1 1", "! true", "(( i ))"]
        )

    def leave(self) -> str:
        return self.made.choice(["break", "continue", "break 2", "continue 2", "return", "return 1", "exit 3", ":"])

    def body(self, depth: int) -> str:
        return "; ".join(self.statement(depth - 1) for _ in range(self.made.randint(1, 3)))

    def statement(self, depth: int) -> str:
        if depth <= 0 or self.made.random() < 0.5:
            return self.setting()
        body, other, name = self.body(depth), self.body(depth), self.name()
        end = self.made.choice([";;", ";;", ";&", ";;&"])
        return self.made.choice(
            [
                f"if {self.condition()}; then {body}; else {other}; fi",
                f"{self.condition()} && {self.setting()}",
                f"{self.condition()} || {{ {body}; }}",
                f"for {name} in 1 {self.value()} 3; do {body}; {self.condition()} && {self.leave()}; {other}; done",
                f"for (( i=0; i<3; i++ )); do {body}; {self.condition()} && {self.leave()}; done",
                f"while (( i < 4 )); do (( i++ )); {self.condition()} && {self.leave()}; {body}; done",
                f"case ${name} in x*|1) {body} {end} *) {other} ;; esac",
                f"( {body}; {self.made.choice([':', 'exit', 'exit 1'])} ) && {self.setting()}",
                f"f2() {{ local {name}={self.value()} c; {body}; {self.condition()} && {self.leave()}; {other}; }}; f2 {self.value()}",
                f"{{ {body}; }}",
                f"{body} & wait",
                f"{body} | {{ {other}; }}",
                f"! {self.condition()} | {self.condition()} && {self.setting()}",
                f"if {{ {body}; }}; then {self.setting()}; fi",
                f"{name}=$({body}; echo $b) && {self.setting()}",
                f"while {self.condition()}; do {body}; break; done || {self.setting()}",
                f"bash -c '{name}=1; exit 2' || {self.setting()}",
                f". ./part.sh{self.made.choice(['', ' 7', ' $a u'])}",
            ]
        )

    def part(self) -> str:
        """A file that the script reads with ``source``."""
        return f"{self.body(2)}\n{self.condition()} && {self.made.choice(['return', 'return 2', 'break', 'exit'])}\n{self.body(2)}\n"

    def script(self) -> str:
        lines = ["a=1; b='x y'; n=2; i=0", "f1() { local a=$1; b=f$a; return ${2:-0}; }"]
        lines += [self.statement(3) for _ in range(self.made.randint(2, 6))]
        shown = " ".join(f'"${{{name}[*]-unset}}"' for name in NAMES)
        return "\n".join([*lines, f'trainer {shown} "$#" "$*" $a'])


@needs_bash
def test_scripts_by_chance_set_what_bash_sets_or_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is read, nothing differs; and most of what is not refused is known."""
    monkeypatch.chdir(tmp_path)
    known, differing = 0, []
    for seed in range(SCRIPTS):
        made = Made(seed)
        script = made.script()
        (tmp_path / "part.sh").write_text(part := made.part())
        try:
            reading = read(script)
        except DocumentError:
            continue
        if reading.state.assumed:
            continue  # a file that is read or not, as only running can tell: the assumption is reported
        words = list(reading.commands[-1].words if reading.commands else ())
        is_known = not any(problem(word) for word in words)
        known += is_known
        (tmp_path / "out").write_text("")
        try:
            ran = as_bash(script, tmp_path, seconds=1, strict=True)
        except subprocess.TimeoutExpired:
            continue  # a loop of which rlctl knows no turn may go on for ever
        except ValueError:
            continue  # bash names an error, and does something of its own
        pairs = zip(words[1 : len(NAMES) + 2], ran[1:], strict=False)
        if (
            [plain(word) for word in words] != ran
            if is_known
            else any(problem(word) is None and plain(word) != text for word, text in pairs)
        ):
            differing.append(
                f"--- {seed}\n{script}\npart.sh: {part}\nread: {[plain(word) for word in words]}\nbash: {ran}"
            )
    assert not differing, "\n".join(differing[:5])
    assert known > SCRIPTS / 20


def test_a_word_stands_where_its_value_was_written() -> None:
    words = read("A=1\nB=(\n  x=$A\n  y=2\n)\ntrainer \\\n  ${B[@]} \\\n  z=3\n").commands[-1].words
    assert [[piece.at.line for piece in word] for word in words] == [[6], [3, 1], [4], [8]]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("${MODEL}", "${oc.env:MODEL}"),
        ("$HOME/x", "${oc.env:HOME}/x"),
        ("${MODEL:-a/b}", "${oc.env:MODEL,a/b}"),
        ("${OTHER:-a b}", "${oc.env:OTHER,'a b'}"),
        ('"${OTHER:-a b}"', "${oc.env:OTHER,'a b'}"),
        ("${OTHER:-${MODEL:-c}}", "${oc.env:OTHER,${oc.env:MODEL,c}}"),
        ("~/x", "${oc.env:HOME}/x"),
        ("${MODEL##*/}", "Qwen3-8B"),
        ("$((NODES * 8))", "16"),
    ],
)
def test_what_the_environment_decides_stays_symbolic_where_it_can(written: str, text: str) -> None:
    words = read(f'X={written}\ntrainer "$X"').commands[-1].words
    assert symbolic(words[1]) == text
    assert words[1][0].names <= {"MODEL", "HOME", "NODES", "OTHER"}
    assert words[1][0].names


def test_a_variable_that_is_given_is_what_it_is() -> None:
    words = read("trainer ${MODEL:-x} ${NEW:-y}", MODEL="a b", NEW="z").commands[-1].words
    assert [symbolic(word) for word in words[1:]] == ["a", "b", "z"]


@pytest.mark.parametrize(
    "script",
    [
        "X=$(nvidia-smi -L | wc -l)\ntrainer x=$X",
        "X=$(python3 -c 'print(1)')\ntrainer x=$X",
        "if [ -f /etc/x ]; then X=1; fi\ntrainer x=$X",
        "X=1; command -v foo >/dev/null && X=2\ntrainer x=$X",
        "case $(hostname) in a) X=1;; esac\ntrainer x=$X",
        "for x in $(ls); do A+=($x); done\ntrainer x ${A[@]}",
        "trainer x=$RANDOM",
        "trainer x=${A@Q}",
        "trainer x={a,b}",
        "read X\ntrainer x=$X",
        "X=$(cat file)\ntrainer x=$X",
        "trainer x=$(( 1.5 * 2 ))",
        "declare -A M=([a]=1)\ntrainer x=${M[a]}",
        "for i in $(seq 1500); do :; done\ntrainer x=$i",
        "N=0\nfor i in {1..1200}; do N=$((N+1)); done\ntrainer x=$N",
        "N=0\nwhile (( N++ < $(nproc) )); do :; done\ntrainer x=$N",
        "X=$(exec echo y)\ntrainer x=$X",
        "set -- $(date) b; shift\ntrainer n=$#",
        "f() { X=2; }; X=1; command -v foo >/dev/null && Y=3 f\ntrainer x=$X",
    ],
)
def test_what_only_running_could_tell_is_not_guessed(script: str) -> None:
    words = read(script).commands[-1].words
    bad = [piece for word in words if (piece := problem(word)) is not None]
    assert bad
    assert bad[0].problem
    assert bad[0].at.line >= 1


@pytest.mark.parametrize(
    ("script", "line", "said"),
    [
        ("set -u\n\ntrainer $NOT_SET", 3, "NOT_SET is not set"),
        ("A=1\n: ${PLACE:?where to}\ntrainer", 2, "where to"),
        ('A=1\neval "B=$(x)"', 2, "eval"),
        ("A=1\nif [ -f x ]; then eval $A; fi", 2, "eval"),
        ("A=1\ntrainer 'x", 2, "cannot be read"),
        ("if true; then\n  trainer", 1, "bash script"),
        ("A=1\nif [ -f x ]; then\n  python3 -m m.a\nelse\n  python3 -m m.b\nfi", 2, "only running"),
        ("case $(x) in a) python3 m.py;; b) python3 m.py b=1;; esac", 1, "only running"),
        ("for i in $(x); do\n  python3 m.py\ndone", 1, "only running"),
        ("f() { python3 m.py $1; }\nif [ -f x ]; then f a; else f b; fi", 2, "only running"),
        ("while true; do A=1; done", 1, "turns"),
        ("A=1\nfor (( i=0; i<1200; i++ )); do :; done", 2, "turns"),
        ("A=1\ncase a in a) A=2 ;;& *) A=3 ;; esac", 2, ";;&"),
        ("A=1\ndeclare -n B=A\nB=2", 2, "declare -n"),
        ("f() {\n  local -n B=$1\n  B=2\n}\nif [ -f x ]; then f A; fi", 2, "local -n"),
        ("readonly A=1\n\nA=2", 3, "readonly"),
        ("f() { f; }\nf", 1, "calls itself"),
        ("A=xxxxxxxx\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do A=$A$A; done", 0, "too large"),
        ("A=(1)\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do A+=(${A[@]}); done", 0, "too large"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_line(script: str, line: int, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        read(script)
    assert caught.value.at is not None
    assert caught.value.at.line == line or not line


def test_all_that_a_script_wants_is_told_at_once_and_nothing_that_it_does_not() -> None:
    script = (
        "set -u\nA=${A:-$ONE}\nif [ $TWO = x ]; then exit 1; fi\n: ${THREE:?where to}\nB=${B:-}\n"
        "f() { echo $1; }\nf $MODEL\ntrainer $ONE $4 ${FIVE:-5} $B"
    )
    with pytest.raises(DocumentError, match="needs 4 values") as caught:
        read(script)
    assert "$ONE (line 2: set -u), $TWO (line 3: set -u), $THREE (line 4: where to), $4 (line 8)" in str(caught.value)
    assert caught.value.at == Location("run.sh", 2)
    arguments = "--env 1=VALUE --env 2=VALUE --env 3=VALUE --env 4=VALUE;"
    assert f"give --env ONE=VALUE --env TWO=VALUE --env THREE=VALUE {arguments}" in caught.value.hint
    assert [plain(word) for word in read(script, *"1234", ONE="1", TWO="2", THREE="3").commands[-1].words] == [
        "trainer", "1", "4", "5",
    ]  # fmt: skip


def test_a_check_that_ends_the_script_is_taken_for_passed() -> None:
    script = "[ -d data ] || { echo 'no data'; exit 1; }\nif [ ! -f x ]; then\n  echo no\n  exit 2\nfi\nwhich uv || exit 1\ntrainer a=1"
    assert last(script) == ["trainer", "a=1"]


def test_a_script_that_ends_itself_starts_nothing() -> None:
    reading = read('if [ "$#" -lt 2 ]; then\n  echo usage\n  exit 1\nfi\ntrainer $1')
    assert reading.commands == []
    assert reading.ended == Location("run.sh", 3)
    assert last('if [ "$#" -lt 2 ]; then\n  exit 1\nfi\ntrainer $1', "a", "b") == ["trainer", "a"]


def test_a_program_takes_the_place_of_the_script() -> None:
    assert last("A=1\nexec python -m m a=$A\nA=2\ntrainer a=$A") == ["exec", "python", "-m", "m", "a=1"]
    assert last("(exec python -m m)\ntrainer a=1") == ["trainer", "a=1"]
    assert last("exec > log 2>&1\ntrainer a=1") == ["trainer", "a=1"]


def test_a_file_that_the_script_writes_is_known() -> None:
    reading = read(
        "X=3\ncat > run.yaml <<EOF\nlr: $X\nname: \"a\"\nEOF\ncat > raw.yaml <<'EOF'\nlr: $X\nEOF\ntrinity run --config run.yaml"
    )
    here = Path.cwd()
    assert reading.state.files == {
        here / "run.yaml": 'lr: 3\nname: "a"\n',
        here / "raw.yaml": "lr: $X\n",
    }
    assert last("cat > a <<EOF\nx\nEOF\ntrainer b") == ["trainer", "b"]


def test_a_script_that_another_reads_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text('export LR=3\nf() { trainer lr=$LR "$@"; }\n')
    main = tmp_path / "run.sh"
    text = 'cd "$(dirname "$0")"\nsource ./env.sh\nf a=1\n'
    reading = read_script(text, str(main), environment=ENVIRONMENT)
    words = reading.commands[-1].words
    assert [plain(word) for word in words] == ["trainer", "lr=3", "a=1"]
    assert words[1][-1].at == Location(str(tmp_path / "env.sh"), 1)


def test_a_probe_for_an_npu_is_answered_no_and_that_is_told() -> None:
    reading = read("D=${D:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}\ntrainer $D")
    assert [plain(word) for word in reading.commands[-1].words] == ["trainer", "gpu"]
    assert list(reading.state.assumed.values()) == [Location("run.sh", 1)]


def test_a_secret_in_the_script_is_its_variable() -> None:
    reading = read_script(
        "export WANDB_API_KEY=abc123456\ntrainer key=$WANDB_API_KEY",
        "run.sh",
        environment={},
    )
    assert [symbolic(word) for word in reading.commands[-1].words] == ["trainer", "key=${oc.env:WANDB_API_KEY}"]
    assert reading.state.secrets == {"WANDB_API_KEY": "abc123456"}


HELD = "M=$(<model.txt); L=$(< lists/names); trainer a=$M \"b=$L\" c=`<model.txt` d=$(<'lists/names')"


def read_beside(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The words of the last command of a script in a folder, run from there."""
    (folder / "run.sh").write_text(script)
    monkeypatch.chdir(folder)
    return list(read_script(script, "run.sh", environment=ENVIRONMENT).commands[-1].words)


@needs_bash
def test_a_file_beside_the_script_is_read_as_bash_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "model.txt").write_text("org/model\n\n")
    (tmp_path / "lists" / "names").write_text("a b\n c\n")
    expected = as_bash(HELD, tmp_path)
    assert [plain(word) for word in read_beside(tmp_path, HELD, monkeypatch)] == expected
    assert "a=org/model" in expected


HUGE = "9" * 5000
TOO_LARGE = {
    "argument": (f"trainer x=${{{HUGE}:-4}}", ["trainer", "x=4"]),
    "shift": (f"set -- 7 8; shift {HUGE}; trainer $1", ["trainer", "7"]),
    "return": (f"f() {{ return {HUGE}; }}; f || X=6; trainer x=$X", ["trainer", "x=6"]),
}


@needs_bash
@pytest.mark.parametrize(("script", "expected"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_number_larger_than_the_shells_is_what_it_is_to_bash(
    script: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [plain(word) for word in read_beside(tmp_path, script, monkeypatch)] == expected == as_bash(script, tmp_path)


@pytest.mark.parametrize(
    "script",
    [f"for i in 1; do break {HUGE}; done", f"for i in 1; do continue {HUGE}; done", f"X=$(seq {HUGE})"],
    ids=["break", "continue", "seq"],
)
def test_a_number_larger_than_the_shells_that_bash_refuses_is_not_guessed(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = pytest.raises(DocumentError, match="cannot tell")
    with refused if script.startswith("for") else contextlib.nullcontext():
        assert any(problem(word) for word in read_beside(tmp_path, f"{script}\ntrainer $X", monkeypatch))


EMPTY_SUBSTITUTIONS = (
    "$(<a b)",
    "$(<a; echo b)",
    "$(<a; <b)",
    "$(<a 2>x)",
    "$(<a &)",
    "$( (<a) )",
    "$(3<a)",
    "$(<a;)",
    "$( # c\n<a\n)",
)


@needs_bash
@pytest.mark.parametrize("source", EMPTY_SUBSTITUTIONS)
def test_a_file_is_printed_only_by_a_redirection_that_is_alone(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "b").write_text("2\n")
    script = f"X=x{source.replace('<a b', '<a <b')}\ntrainer $X"
    assert [plain(word) for word in read_beside(tmp_path, script, monkeypatch)] == as_bash(script, tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "echo 5 > a",
        "echo 5 >> a",
        "echo 5 &> a",
        "cat >> a <<E\n1\nE",
        "cat > a <<E\n$(hostname)\nE",
        "cp b a",
        "echo 5 | tee a",
        "> a echo 5",
        "f() { echo 5 > a; }; f",
        "for i in 1; do echo $i; done > ./a",
        "(cd d; rm ../a)",
        "sed -i s/o/p/ a",
        "rm -rf d",
        "curl -o a http://x",
    ],
)
def test_a_file_that_a_command_may_change_is_unknown(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "a").write_text("old\n")
    (tmp_path / "d" / "a").write_text("old\n")
    name = "d/a" if command == "rm -rf d" else "a"
    (word,) = read_beside(tmp_path, f"{command}\nX=$(<{name}); trainer $X", monkeypatch)[1:]
    found = problem(word)
    assert found is not None
    assert "the script itself changes" in found.problem


def test_a_file_that_is_only_looked_at_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("7\n")
    script = "mkdir -p d; cat a; [ -f a ] && cp a d; sed s/7/8/ a\nX=$(<a); trainer $X"
    (word,) = read_beside(tmp_path, script, monkeypatch)[1:]
    assert plain(word) == "7"
    reading = read_script(script, "run.sh", environment=ENVIRONMENT)
    assert list(reading.state.assumed) == ["assumed that no command before this line changes 'a'"]


UNKNOWN_ARRAYS = {
    "read from a file": "mapfile -t A < f",
    "read from a line": "IFS=, read -ra A <<< a,b",
    "a gap": "A=(a b c); unset 'A[0]'",
    "an item far away": "A=(a b); A[7]=c",
    "an item at an unknown place": "A=(a b); A[$(hostname)]=c",
    "set under a condition": "A=(a b); if [ -f x ]; then A=(c); fi",
    "an item under a condition": "A=(a b); [ -f x ] && A[1]=c",
    "copied": 'mapfile -t B < f; A=("${B[@]}")',
    "arguments": 'mapfile -t B < f; set -- "${B[@]}"; A=("$@")',
    "appended": "mapfile -t A < f; A+=(c)",
}
ITEMS = (
    "${A[1]}",
    "${A[3]}",
    "${#A[@]}",
    "${#A[1]}",
    "${A[@]:1:1}",
    "${A[1]:-d}",
    "${A[1]+d}",
    "${A[1]:+d}",
    '"${A[@]}"',
    "${A[-1]}",
)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("case", UNKNOWN_ARRAYS, ids=str)
def test_no_item_of_an_array_that_is_not_known_is_empty(case: str, item: str) -> None:
    words = read(f"{UNKNOWN_ARRAYS[case]}\ntrainer {item}").commands[-1].words[1:]
    assert any(problem(word) for word in words)


def test_what_replaces_an_unknown_value_is_unknown() -> None:
    words = read("H=$(hostname); trainer ${H:+a} ${H+b}").commands[-1].words
    assert problem(words[1]) is not None
    assert plain(words[2]) == "b"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../model.txt", "outside"),
        ("/etc/hostname", "outside"),
        ("link.txt", "outside"),
        ("hf_token", "secret"),
        ("api_key.txt", "secret"),
        (".netrc", "secret"),
        ("url.txt", "password"),
        ("big.txt", "characters"),
        ("binary.txt", "cannot be read"),
        ("none.txt", "does not exist"),
        ("folder", "not a regular file"),
    ],
)
def test_a_file_that_may_not_be_read_is_unknown_and_never_empty(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (tmp_path / "model.txt").write_text("outside\n")
    (folder / "link.txt").symlink_to(tmp_path / "model.txt")
    for other in ("hf_token", "api_key.txt", ".netrc"):
        (folder / other).write_text("sesame\n")
    (folder / "url.txt").write_text("postgresql://me:sesame@host/db\n")
    (folder / "big.txt").write_text("x" * 100_000)
    (folder / "binary.txt").write_bytes(b"\0\1\2\3")
    (folder / "folder").mkdir()
    (word,) = read_beside(folder, f"X=$(<{name}); trainer $X", monkeypatch)[1:]
    found = problem(word)
    assert found is not None
    assert why in found.problem
    assert "sesame" not in found.problem


@pytest.mark.parametrize("command", ["git rev-parse HEAD", "curl -s http://x", "ulimit -n", "cat x.txt", "tee x"])
def test_what_a_program_prints_is_unknown_and_never_empty(command: str) -> None:
    assert problem(read(f"X=$({command} 2>/dev/null); trainer a=$X").commands[-1].words[1]) is not None


UNDECIDED = {
    "if [ -f x ]; then\n  python3 m.py a\nfi": ("a", "succeeds"),
    "if [ -f x ]; then echo python3 m.py; else python3 m.py a; fi": ("a", "fails"),
    "if [ -f x ]; then\n  :\nelif [ -f y ]; then\n  python3 m.py a\nelse\n  exit 1\nfi": ("a", "succeeds"),
    "[ -f x ] && python3 m.py a": ("a", "succeeds"),
    "[ -f x ] || python3 m.py a": ("a", "fails"),
    "case $(x) in\n  a) A=1; python3 m.py a$A;;\n  *) exit 1;;\nesac": ("a1", "$(x) in a)"),
    'L=(python3)\nif [ -f x ]; then "${L[@]}" m.py a; fi': ("a", "succeeds"),
    "f() { python3 m.py a; }\nif [ -f x ]; then f; fi": ("a", "succeeds"),
}


@pytest.mark.parametrize("script", UNDECIDED, ids=str)
def test_the_only_branch_that_starts_a_trainer_is_taken_and_that_is_told(script: str) -> None:
    reading = read(script)
    assert [plain(command.words[-1]) for command in reading.commands] == [UNDECIDED[script][0]]
    assert any(UNDECIDED[script][1] in told for told in reading.state.assumed)


@pytest.mark.parametrize(
    "loop",
    [
        "for i in 1 2 3; do N=$(ray status); if [ $N = 2 ]; then break; fi; sleep 1; done",
        "while true; do N=$(ray status); [ $N = 2 ] && break; sleep 1; done",
        "for (( N=0; N<3; N++ )); do if nc -z a 1; then break; fi; done",
    ],
)
def test_a_loop_that_waits_for_something_makes_unknown_what_it_sets(loop: str) -> None:
    words = read(f"A=1\n{loop}\ntrainer $A $N").commands[-1].words
    assert [problem(word) is not None for word in words] == [False, False, True]
    with pytest.raises(DocumentError, match="only running"):
        read(loop.replace("sleep 1", "python3 m.py").replace("; fi; done", "; fi; python3 m.py; done"))


def test_what_a_branch_that_is_not_taken_does_changes_nothing() -> None:
    reading = read("A=1; if [ -f x ]; then A=2; cd /; cat > f <<E\nE\nexit 1; else python3 m.py $A; fi; trainer $A")
    assert [[plain(word) for word in command.words] for command in reading.commands] == [
        ["python3", "m.py", "1"],
        ["trainer", "1"],
    ]
    assert reading.state.files == {}


def test_every_branch_after_a_condition_that_is_not_decided_is_unknown() -> None:
    words = read("if false; then :; elif [ -f x ]; then A=1; else A=2; B=2; fi\ntrainer x$A y$B").commands[-1].words
    assert [problem(word) is not None for word in words] == [False, True, True]


@pytest.mark.parametrize(
    "script",
    [
        "N=$(x)\ntrainer $N",
        "N=1\ntrainer $N",
        "if [ -f x ]; then N=1; fi\ntrainer $N",
        "read N\nfor i in a; do export N=2; done\nunset N\ntrainer $N",
        "N=(1 2)\ntrainer ${N[@]}",
        "f() { local N=3; trainer $N; }\nf",
        "trainer $N",
    ],
)
def test_a_variable_that_is_given_keeps_its_value_whatever_is_assigned(script: str) -> None:
    assert [plain(word) for word in read(script, N="8").commands[-1].words] == ["trainer", "8"]


def test_what_is_not_known_names_the_variable_that_decides_it() -> None:
    word = read("A=$(x)\nB=y$A\ntrainer $B").commands[-1].words[1]
    assert [sorted(piece.names) for piece in word if piece.problem] == [["A"]]
    with pytest.raises(DocumentError) as caught:
        read("D=$(x)\nif [ $D = a ]; then python3 m.py a; else python3 m.py b; fi")
    assert "--env D=VALUE" in caught.value.hint
    given = read("D=$(x)\nif [ $D = a ]; then python3 m.py a; else python3 m.py b; fi", D="b")
    assert [plain(word) for word in given.commands[-1].words] == ["python3", "m.py", "b"]


def test_what_nobody_set_is_known_from_what_is_empty() -> None:
    words = read('E=; trainer a=$U b=$E c=${U%x}d e=$((U+1)) $U "$1" ${U:-x}').commands[-1].words
    assert [sorted(piece.unset for piece in word if piece.unset) for word in words] == [
        [], [{"U"}], [], [{"U"}], [{"U"}], [{"1"}], [],
    ]  # fmt: skip
    assert [symbolic(word) for word in words[1:3]] == ["a=${oc.env:U}", "b="]
    assert list(read("trainer a $U $E").commands[-1].vanished) == ["U", "E"]


@pytest.mark.parametrize(
    "statement",
    [
        "source ~/miniconda3/etc/profile.d/conda.sh",
        '. "$(conda info --base)/etc/profile.d/conda.sh"',
        "[ -f .env ] && . .env",
        "if [ -f .env ]; then source .env; fi",
        'eval "$(conda shell.bash hook)"',
        'if [ -f x ]; then eval "$(conda shell.bash hook)"; fi',
        "source env.sh || exit 1",
        "if [ -f .env ]; then set -a; source .env; set +a; fi",
    ],
)
def test_a_file_that_is_not_there_is_assumed_to_change_nothing_and_may_set_what_is_not_set(statement: str) -> None:
    reading = read(f"set -e\nA=1\n{statement}\ntrainer $A $@")
    assert [plain(word) for word in reading.commands[-1].words] == ["trainer", "1"]
    assert [at.line for at in reading.state.unread.values()] == [3]
    assert any("changes no variable" in told for told in reading.state.assumed)


def test_a_file_next_to_the_script_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("A=7\n")
    script = "[ -f .env ] && . .env; if [ -d data ]; then B=1; fi; rm -f .env; [ -f .env ] && C=1; trainer $A x$B y$C"
    (tmp_path / "run.sh").write_text(script)
    words = read(script).commands[-1].words
    assert plain(words[1]) == "7"
    assert [problem(word) is not None for word in words] == [False, False, True, True]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("A=512; B=$(expr $A + 1024)", "1536"),
        ("B=$(expr 7 \\* 3)", "21"),
        ("B=$(expr -7 / 2)", "-3"),
        ("G=0,1,2,3; B=$(echo $G | tr ',' '\\n' | wc -l)", "4"),
        ("G=0,1,2,3; B=$(echo \"$G\" | awk -F',' '{print NF}')", "4"),
        ("B=$(echo a:b:c | cut -d: -f2)", "b"),
        ("B=$(echo ' a  b ' | xargs)", "a b"),
        ("B=$(echo a b | awk '{print $2}')", "b"),
    ],
)
def test_texts_go_through_filters(script: str, text: str) -> None:
    assert plain(read(f'{script}\ntrainer x="$B"').commands[-1].words[1]) == f"x={text}"


@pytest.mark.parametrize("command", ["hostname -i | awk '{print $1}'", "mktemp", "shuf -i 30000-31000 -n 1"])
def test_what_names_the_machine_is_assumed_and_said(command: str) -> None:
    reading = read(f"H=$({command})\ntrainer url=http://$H/x")
    assert problem(reading.commands[-1].words[1]) is None
    assert [command in said for said in reading.state.assumed] == [True]


@pytest.mark.parametrize("command", ["echo a | sed s/a/b/", "printf a | wc -l", "echo 1 | awk '{print $1 + 1}'"])
def test_other_filters_are_not_guessed(command: str) -> None:
    assert problem(read(f"H=$({command})\ntrainer x=$H").commands[-1].words[1]) is not None
