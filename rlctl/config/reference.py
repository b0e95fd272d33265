"""The reference of the canonical config, made from the declarations: ``config.md`` and a page for each section in ``config/``.

    python -m rlctl.config.reference docs/reference

A section that occurs in several places is printed at the first and named at the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rlctl.config.explain import default_of, shown_default, shown_type
from rlctl.config.fields import Choice
from rlctl.config.inspect import KeyInfo, sections_in, summary_of, walk
from rlctl.config.root import SCHEMA_VERSION, Config

_HEAD = f"""# Config

Every key of a canonical file (schema version {SCHEMA_VERSION}), with its type, default, unit and range, and what it does.
`rlctl explain KEY` shows the same in the terminal, and `rlctl schema` prints it as a JSON Schema for editors.

`a[].b` is a key of each item of the list `a`, `a{{}}.b` of each value of the mapping `a`. `a<x>.b` belongs to one option of a
choice: in a file it is written `a: {{type: x, b: ...}}`.
"""
_TABLE = "| key | type | default | unit, range | what it is |\n| --- | --- | --- | --- | --- |\n"


def reference_pages() -> dict[str, str]:
    """The pages as Markdown, by their path: the index, and one for each section."""
    keys = list(walk(Config))
    seen: dict[type, str] = {}
    pages: dict[str, str] = {}
    index, alone = ["| section | what it sets |\n| --- | --- |\n"], [_TABLE]
    for key in (key for key in keys if "." not in key.pattern):
        below = [other for other in keys if re.match(re.escape(key.pattern) + r"[.\[{<]", other.pattern)]
        _repeats(key, seen, [])
        if not below:
            alone.append(_row(key, ""))
            continue
        path = f"config/{key.pattern}.md"
        index.append(f"| [`{key.pattern}`]({path}) | {_cell(_prose(key.help))} |\n")
        parts = [f"# `{key.pattern}`\n\n{_prose(key.help)}\n", *_groups(key, below, seen)]
        pages[path] = "\n".join(parts).rstrip() + "\n"
    return {"config.md": "\n".join([_HEAD, "".join(index), "".join(alone)]).rstrip() + "\n", **pages}


def write_pages(folder: Path) -> None:
    """Write the pages into a folder, and remove those of sections that no longer exist."""
    pages = reference_pages()
    (folder / "config").mkdir(exist_ok=True)
    for path in (folder / "config").glob("*.md"):
        if f"config/{path.name}" not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def _groups(top: KeyInfo, below: list[KeyInfo], seen: dict[type, str]) -> Iterator[str]:
    """The tables of one top-level section: its plain keys, then each option of each choice in it."""
    groups: dict[str, list[str]] = {"": [_row(top, "")]} if _is_choice(top) else {"": []}
    titles = dict(_option_titles([top, *below]))
    hidden: list[str] = []
    for key in below:
        if any(key.pattern.startswith(prefix) for prefix in hidden):
            continue
        note = _repeats(key, seen, hidden)
        groups.setdefault(_option(key.pattern), []).append(_row(key, note))
    shown = [option for option in titles if option in groups or not any(option.startswith(prefix) for prefix in hidden)]
    if groups[""]:
        yield _TABLE + "".join(groups[""])
    for option in shown:
        table = _TABLE + "".join(groups[option]) if option in groups else "No further keys.\n"
        yield f"## `{option}`\n\n{titles[option]}\n\n{table}"


def _is_choice(key: KeyInfo) -> bool:
    return any(issubclass(held, Choice) for held, _ in sections_in(key.info.type))


def _option(pattern: str) -> str:
    """The innermost option that a key belongs to: ``algorithm.advantage<grpo>``, or nothing."""
    return pattern[: pattern.rindex(">") + 1] if ">" in pattern else ""


def _option_titles(keys: list[KeyInfo]) -> Iterator[tuple[str, str]]:
    for key in keys:
        for held, suffix in sections_in(key.info.type):
            if issubclass(held, Choice):
                for name, cls in held.registry.items():
                    yield f"{key.pattern}{suffix}<{name}>", _prose(summary_of(cls))


def _repeats(key: KeyInfo, seen: dict[type, str], hidden: list[str]) -> str:
    """A link to where the keys of a section were printed before; remembers those that are printed here."""
    for held, suffix in sections_in(key.info.type):
        where = f"{key.pattern}{suffix}"
        first = seen.setdefault(held, where)
        if first != where:
            hidden += [f"{where}.", f"{where}<"]
            return f" Its keys are those of `{first}`."
    return ""


def _row(key: KeyInfo, note: str) -> str:
    info = key.info
    default = "must be set" if info.required else f"`{_cell(shown_default(default_of(key)))}`"
    limits = ", ".join(part for part in (info.unit, str(info.range) if info.range else "") if part)
    secret = " Secret: write it as `${oc.env:NAME}`." if info.secret else ""
    cells = [f"`{key.pattern}`", _cell(shown_type(info)), default, limits, f"{_cell(_prose(key.help))}{secret}{note}"]
    return "| " + " | ".join(cells) + " |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
