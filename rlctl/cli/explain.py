"""``rlctl explain``: one key, of the canonical config or of any dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, completion, layout, output
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, together, translated

if TYPE_CHECKING:
    from rlctl.adapters.engine.meanings import Meaning, Spelling
    from rlctl.config.explain import Explanation


def explain(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="A key, such as [b]train.optimizer.lr[/b], of rlctl or of any framework, or plain words.",
            autocompletion=completion.keys,
        ),
    ],
    *,
    json: arguments.Json = False,
) -> None:
    """Explain a key: what it does, its type, unit, range and default, and its name in each framework.

    For a key of rlctl's own config, shows whether `rlctl launch` supports it, and its name, default and conversion in each
    framework. For a framework's key, shows its meaning and rlctl's key for it; [bold]verl:data.train_batch_size[/bold] selects
    one framework. Keys are written as in a file, with or without list indices, or with the name of an option:
    [bold]algorithm.advantage<grpo>.epsilon[/bold]. For a section, lists its keys.

    [bold]Examples[/bold]

    [cyan]rlctl explain batch.mini_batch_responses[/cyan]

    [cyan]rlctl explain algorithm.advantage[/cyan]

    [cyan]rlctl explain data.train[0].path[/cyan]

    [cyan]rlctl explain actor_rollout_ref.rollout.n[/cyan]

    [cyan]rlctl explain gpu memory[/cyan]
    """
    from rlctl.adapters.engine.words import tools_with

    key = " ".join(names)
    found, theirs, words = known_as(key)
    if found is None and not theirs:
        _show_choice(key, words, json=json)
        return
    if json:
        output.data(whole(found, theirs))
        return
    shown = list(lines(found)) if found is not None else []
    if words and (tools := tools_with(key)):
        shown.insert(0, text("explain-of-tools", word=_escaped(key), tools=", ".join(tools)))
    for meaning in theirs:
        shown += [*([""] if shown else []), *meaning_lines(meaning)]
    output.show(*shown)


def known_as(key: str) -> tuple[Explanation | None, list[Meaning], list[str]]:
    """What a key is in rlctl's config, what it is in frameworks, and what it may mean as a word of another tool.

    Raises:
        ConfigError: nothing is called so; the hint names similar keys.
    """
    from rlctl.adapters.engine.meanings import meanings, nearest
    from rlctl.adapters.engine.words import canonical_for
    from rlctl.common.errors import ConfigError
    from rlctl.config.explain import explain as look_up

    try:
        return look_up(key), list(meanings(key)), []
    except ConfigError as error:
        theirs = list(meanings(key))
        words = [] if any(meaning.canonical for meaning in theirs) else canonical_for(key)
        if not theirs and not words:
            near = nearest(key)
            similar = said("similar keys: {names}", names=", ".join(near)) if near else ""
            hint = together([similar, error.hint])
            raise ConfigError(said("no framework has the key {key!r}", key=key), hint=hint) from None
    return look_up(_of_choice(words[0])) if len(words) == 1 else None, theirs, words


def whole(found: Explanation | None, theirs: list[Meaning]) -> dict[str, Any]:
    """What a key is, in rlctl's config and in frameworks, as plain data."""
    ours = as_data(found) if found is not None else {}
    return {**ours, "meanings": [meaning.as_data() for meaning in theirs]}


def _spans(meaning: Meaning) -> Iterator[str]:
    """The releases that have a key: those that follow each other as ``0.6-0.9``."""
    from rlctl.adapters import dialect

    every = dialect(meaning.dialect).versions
    for has, group in groupby(every, lambda release: release in meaning.releases):
        if has:
            releases = list(group)
            yield "-".join(dict.fromkeys((releases[0], releases[-1])))


def _of_choice(path: str) -> str:
    """The choice itself where a path ends in the key that chooses."""
    return re.sub(r"\.(name|type)$", "", path)


def _show_choice(word: str, paths: list[str], *, json: bool) -> None:
    """The keys that a word means in another tool, and those that it may mean here, a line each."""
    from rlctl.adapters.engine.words import options_of, tools_with

    if json:
        output.data({"word": word, "keys": paths})
        return
    known = options_of(word)
    for title, group in (
        (text("explain-of-tools", word=_escaped(word), tools=", ".join(tools_with(word))), known),
        (text("explain-may-be", word=_escaped(word)), [path for path in paths if path not in known]),
    ):
        if group:
            output.show(title, *map(_choice_line, group))


def _choice_line(path: str) -> str:
    from rlctl.config.explain import explain as look_up

    return f"  [bold]{_escaped(path)}[/]  {_escaped(_prose(look_up(_of_choice(path)).help).split('. ')[0])}"


def as_data(found: Explanation) -> dict[str, Any]:
    """An explanation as plain data, with the key's name in every dialect."""
    from dataclasses import asdict

    dialects = [spelling.as_data() for spelling in _spellings(found)]
    return asdict(found) | {"support": support(found.pattern), "dialects": dialects}


def _spellings(found: Explanation) -> list[Spelling]:
    """What a key is called in every dialect; of a choice, the key that chooses; of a section, its switch."""
    from rlctl.adapters.engine.meanings import canonical_paths, spellings

    path = _bare(found.pattern)
    if found.below and (switched := [item for item in spellings(path) if item.keys]):
        return switched
    paths = {
        path,
        *(f"{path}{suffix}.type" for suffix in ("", "[]", "{}") if found.options),
    }
    return [item for known in canonical_paths() if known in paths for item in spellings(known)]


def _bare(pattern: str) -> str:
    """A key's pattern without the names of options."""
    return re.sub(r"<[^<>]*>", "", pattern)


def meaning_lines(meaning: Meaning) -> Iterator[str]:
    """What a dialect's key means, and the canonical keys that it becomes."""
    from rlctl.adapters.engine.meanings import default_text
    from rlctl.config.chinese import in_words
    from rlctl.config.explain import explain as look_up

    releases = text("explain-releases", releases=", ".join(_spans(meaning))) if meaning.releases else ""
    yield f"[bold]{_escaped(meaning.key)}[/]  {meaning.dialect}: {', '.join(meaning.kinds)}{releases}"
    if default := default_text(meaning.default):
        yield from _facts({"default": translated(default)}, 2)
    yield from (line for note in meaning.notes for line in _facts({"note": translated(note)}, 2))
    if not meaning.canonical:
        yield f"  {text('explain-only', framework=meaning.dialect)}"
    for path in meaning.canonical:
        found = look_up(_of_choice(path))
        yield ""
        yield f"  {text('explain-is', key=f'[bold]{_escaped(path)}[/]')}"
        yield f"    {_escaped(_prose(found.help))}"
        facts = {"default": found.default, "unit": in_words(found.unit), "launch": launched(found.pattern)}
        yield from _facts(facts, 4)
        if len(meaning.canonical) == 1:
            yield from _elsewhere(found, but=meaning.dialect)


def _elsewhere(found: Explanation, *, but: str = "") -> Iterator[str]:
    """A key in every dialect: name, default, how the value changes; or why there is nothing."""
    from rlctl.adapters.engine.meanings import default_text

    spelled = [item for item in _spellings(found) if item.dialect != but]
    if not spelled:
        return
    yield ""
    yield f"  {text('explain-others' if but else 'explain-frameworks')}"
    width = max(len(item.dialect) for item in spelled)
    for place, item in enumerate(spelled):
        again = place > 0 and spelled[place - 1].dialect == item.dialect
        kinds = (
            f"({', '.join(item.kinds)}) "
            if again or sum(other.dialect == item.dialect for other in spelled) > 1
            else ""
        )
        names = ", ".join(
            f"{key.name} ({translated(default_text(key.default))})" if default_text(key.default) else key.name
            for key in item.keys[:6]
        )
        notes = translated(together(item.notes))
        told = f"{names}: {notes}" if names and notes else names or text("explain-nothing", notes=notes)
        yield f"    {'' if again else item.dialect:<{width}}  {_escaped(kinds + told)}"


def support(pattern: str) -> str:
    """What runs do with a key, with the reason where they refuse it; empty for a section."""
    from rlctl.planning.support import status_of

    try:
        row = status_of(pattern)
    except KeyError:
        return ""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


def launched(pattern: str) -> str:
    """The same in words."""
    status, _, reason = support(pattern).partition(": ")
    told = text(f"explain-status-{status.replace('_', '-')}") if status else ""
    return text("explain-because", status=told, reason=reason) if reason else told


def _facts(facts: Mapping[str, str], indent: int) -> Iterator[str]:
    """Facts with their titles in a column; those that are empty are omitted."""
    titles = {name: text(f"explain-{name}") for name in facts}
    width = max(9, *map(layout.cells, titles.values()))
    for name, fact in facts.items():
        if fact:
            yield f"{' ' * indent}{layout.padded(titles[name], width)} {_escaped(fact)}"


def lines(found: Explanation) -> Iterator[str]:
    """An explanation as lines of markup."""
    from rlctl.config.chinese import in_words

    yield f"[bold]{_escaped(found.pattern)}[/]"
    yield f"  {_escaped(_prose(found.help))}"
    yield ""
    facts = {
        "type": in_words(found.type),
        "default": found.default or text("explain-no-default"),
        "unit": in_words(found.unit),
        "range": in_words(found.range),
        "secret": text("explain-secret-how", expression="${oc.env:NAME}") if found.secret else "",
        "launch": launched(found.pattern),
        "set": "" if found.below or found.options else f"--set {found.path}=...",
    }
    yield from _facts(facts, 2)
    yield from _options(found)
    yield from _below(found.below)
    yield from _elsewhere(found)
    if found.also:
        yield ""
        yield f"  {text('explain-also')}"
        yield from (f"    {_escaped(pattern)}" for pattern in found.also)


def _options(found: Explanation) -> Iterator[str]:
    if not found.options:
        return
    yield ""
    yield f"  {text('explain-options')}"
    width = max(len(option.name) for option in found.options)
    for option in found.options:
        yield f"    {option.name:<{width}}  {_escaped(_prose(option.help))}"
        names = ", ".join(key.rsplit(">.", 1)[-1] for key in option.keys)
        if names:
            yield f"    {'':<{width}}  [dim]{_escaped(text('explain-with', names=names))}[/]"
        if support(option.pattern).startswith("refused"):
            yield f"    {'':<{width}}  [yellow]{text('explain-launch')}: {_escaped(launched(option.pattern))}[/]"


def _below(patterns: tuple[str, ...]) -> Iterator[str]:
    from rlctl.config.explain import explain as look_up

    if not patterns:
        return
    yield ""
    yield f"  {text('explain-keys')}"
    width = max(len(pattern.rsplit(".", 1)[-1]) for pattern in patterns)
    for pattern in patterns:
        inner = look_up(pattern)
        name = pattern.rsplit(".", 1)[-1]
        yield f"    {name:<{width}}  {_escaped(_prose(inner.help))}"


def _prose(text: str) -> str:
    return text.replace("``", "'")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
