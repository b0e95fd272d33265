"""Hover, completion, hints and definitions of one analysed text, as plain texts and spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlctl.cli import explain
from rlctl.cli.lsp import defaults, keys
from rlctl.cli.lsp.analysis import Analysis
from rlctl.cli.lsp.texts import KeyAt, Span
from rlctl.common.errors import RlctlError
from rlctl.common.messages import text
from rlctl.common.messages.reasons import spoken, translated
from rlctl.common.report import Entry
from rlctl.config.chinese import in_words
from rlctl.planning.batch_table import Row, rows_by_stage

_MARKUP = re.compile(r"(?<!\\)\[/?[a-z ]*\]")
_FILE = re.compile(r"[\w./~@-]+\.(?:ya?ml|sh|py|jsonl?|parquet|csv)")


@dataclass(frozen=True, slots=True)
class Offer:
    """One completion."""

    name: str
    is_section: bool
    is_value: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """A text that an editor shows behind a line."""

    line: int
    text: str


def hover(analysis: Analysis, line: int, column: int) -> tuple[Span, str] | None:
    """What a key is, in Markdown: its meaning, unit and default, its name in other frameworks, and what it comes to here."""
    key = analysis.text.key_on(line, column)
    if key is None:
        return None
    told = _explained(keys.split_name(analysis.dialect)[0], key.name)
    here = [*_entry_lines(analysis, key), *(_row_line(row) for row in _rows(analysis) if row.line == line + 1)]
    lines = [*told, *([""] if told and here else []), *here]
    return (key.span, "\n".join(lines)) if lines else None


@lru_cache(maxsize=256)
def _explained(framework: str, name: str) -> tuple[str, ...]:
    """A key as ``rlctl explain`` says it."""
    if not name:
        return ()
    asked = name if framework == "rlctl" else f"{framework}:{name}"
    try:
        found, theirs, _ = explain.known_as(asked)
    except RlctlError:
        return ()
    if framework == "rlctl":
        lines = list(explain.lines(found)) if found is not None else []
    else:
        lines = [line for meaning in theirs for line in explain.meaning_lines(meaning)]
    return tuple(_markdown(lines))


def _markdown(lines: list[str]) -> Iterator[str]:
    """Lines of a terminal as Markdown: the first is a heading, indented ones keep their line."""
    for number, line in enumerate(lines):
        plain = _MARKUP.sub("", line).replace("\\[", "[").rstrip()
        if not plain:
            yield ""
        elif number == 0:
            yield f"**{_escaped(plain)}**\n"
        else:
            depth = (len(plain) - len(plain.lstrip())) // 2 - 1
            yield f"{'&nbsp;' * 2 * max(0, depth)}{_escaped(re.sub(r' {2,}', ': ', plain.strip()))}  "


def _escaped(content: str) -> str:
    return re.sub(r"([\\`*_<>#|])", r"\\\1", content)


def _entries(analysis: Analysis, key: KeyAt) -> list[Entry]:
    """What reading made of a key; an item of a list is known by its line."""
    name = key.name
    same = [entry for entry in analysis.report.accounting if re.sub(r"\[\d+\]", "", entry.key) == name]
    here = [entry for entry in same if entry.at is not None and entry.at.line == key.span.line + 1]
    return here or same[-1:]


def _entry_lines(analysis: Analysis, key: KeyAt) -> Iterator[str]:
    """What the value of a key comes to."""
    for entry in _entries(analysis, key)[:1]:
        for target, value in entry.targets[:4]:
            note = f" ({_escaped(entry.why)})" if entry.why else ""
            yield f"{spoken('here')}: `{target} = {value}`{note}  "
        if not entry.targets and entry.why:
            yield f"{spoken('here')}: {_escaped(entry.why)}  "


def _row_line(row: Row) -> str:
    formula = f" = {translated(row.formula)}" if row.formula else ""
    value = translated(row.value) if isinstance(row.value, str) else f"{row.value:,}"
    return f"{in_words(translated(row.name))}: {value} {in_words(row.unit)}{_escaped(formula)}  "


def _rows(analysis: Analysis) -> list[Row]:
    if analysis.loaded is None:
        return []
    with suppress(RlctlError, ValueError, ArithmeticError):
        return [row for _, rows in rows_by_stage(analysis.loaded, analysis.report) for row in rows]
    return []


def hints(analysis: Analysis) -> Iterator[Hint]:
    """What the batch comes to, behind the keys that decide it."""
    found = {row.name: row for row in _rows(analysis)}
    here = {name: row for name, row in found.items() if row.line and row.file == analysis.name and not row.default}
    step, steps = found.get("responses of a step"), found.get("optimizer steps of a step")
    prompts = here.get("prompts of a step")
    if prompts is not None and prompts.line and step is not None and steps is not None:
        counts = [spoken("{count} responses", count=f"{step.value:,}"), _optimizer_steps(steps)]
        yield Hint(prompts.line - 1, f"= {text('name-separator').join(counts)}")
    mini, share = here.get("mini-batch"), found.get("mini-batch on a replica")
    if mini is not None and mini.line and mini is not prompts:
        counts = [spoken("{count} responses", count=f"{mini.value:,}")]
        if share is not None:
            counts.append(spoken("{count} on each replica", count=share.value))
        yield Hint(mini.line - 1, f"= {text('name-separator').join(counts)}")


def _optimizer_steps(row: Row) -> str:
    if row.value == 1:
        return spoken("1 optimizer step")
    return spoken("{value} optimizer steps", value=f"{row.value:,}" if isinstance(row.value, int) else row.value)


def completions(analysis: Analysis, line: int, column: int) -> list[Offer]:
    """The keys or values of the text's release that fit at a place."""
    typed = analysis.text.typed(line, column)
    if typed is None:
        return []
    kind, name = analysis.kind, analysis.dialect
    if typed.key:
        key = ".".join(part for part in typed.key.split(".") if part != "*")
        return [Offer(value, False, is_value=True) for value in keys.values(name, kind, key)]
    known = keys.tree(name, kind)
    parent = tuple(part for part in typed.parent if part != "*")
    there = {
        key.path[-1]
        for key in analysis.text.keys
        if key.path[:-1] == typed.parent and key.span.line != line and "*" not in key.path
    }
    offered = [Offer(each, (*parent, each) in known) for each in known.get(parent, ()) if each not in there]
    return [offer for offer in offered if offer.name.startswith(typed.start[:1])]


def definition(analysis: Analysis, line: int, column: int) -> tuple[str, Span] | None:
    """Where what is at a place is defined: a variable, a node, an anchor, a file that is named, or the default of the key."""
    found = analysis.text.definition(line, column)
    if found is not None:
        return analysis.name, found
    content = analysis.text.lines[line] if line < len(analysis.text.lines) else ""
    for match in _FILE.finditer(content):
        if match.start() <= column <= match.end():
            return _file(analysis, match[0])
    item = re.match(r"^\s*-\s+([\w/.-]+)\s*$", content)
    if item is not None and (named := _file(analysis, f"{item[1]}.yaml")) is not None:
        return named
    key = analysis.text.key_on(line, column)
    return defaults.place_of(analysis, key.name, analysis.kind) if key is not None else None


def _file(analysis: Analysis, name: str) -> tuple[str, Span] | None:
    """A file next to the text, or below the working folder."""
    for folder in (Path(analysis.name).parent, Path()):
        path = folder / Path(name).expanduser()
        with suppress(OSError):
            if path.is_file():
                return str(path.resolve()), Span(0, 0, 0)
    return None
