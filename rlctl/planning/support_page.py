"""The reference page of what a run honours, what it does not use and what it refuses, from ``rlctl/planning/support.py``.

python -m rlctl.planning.support_page > docs/reference/support.md
"""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.planning.support import NOTED_VALUES, ONLY_VALUES, REFUSED_VALUES, TABLE, UNTRIED, Row, Status, because

_MEANINGS = {
    Status.HONOURED: "honoured",
    Status.DESCRIPTIVE: "recorded; it does not affect results",
    Status.FRONT_END: "acts before the run starts",
    Status.NOTED: "not used",
    Status.REFUSED: "refused",
}


def support_page() -> str:
    """The page, as Markdown."""
    return "\n".join([*_head(), *_keys(), *_values(), *_untried()]) + "\n"


def _head() -> Iterator[str]:
    yield "# What a run honours"
    yield ""
    yield "Every canonical key is in one row. All keys are translated between dialects, also those that no run honours."
    yield ""
    yield "- *refused*: `rlctl launch` does not start a run that sets it to anything but its default, and says why."
    yield "- *not used*: no number hangs on it, only speed, memory, or what is kept beside the numbers. The run starts; `rlctl"
    yield "  check` and `launch` warn before, where you wrote it, `plan.json` and `events.jsonl` list it, and `--strict` does not"
    yield "  start. Where only a dialect's own default sets it, it is a note."
    yield ""
    yield "A name that ends in `*` stands for the key and all below it, `<a|b>` for options of a choice."
    yield "Printed from `rlctl/planning/support.py`."


def _keys() -> Iterator[str]:
    section = None
    for row in TABLE:
        name = row.under.split(".")[0].split("[")[0].split("<")[0] or "the whole"
        if name != section:
            section = name
            yield from ("", f"## {name}", "", "| keys | in a run |", "| --- | --- |")
        yield f"| {_names(row)} | {_meaning(row)} |"


def _names(row: Row) -> str:
    prefix = f"{row.under}." if row.under else ""
    return " ".join(f"`{prefix}{name}`".replace("|", "\\|") for name in row.names.split())


def _meaning(row: Row) -> str:
    if row.elsewhere is not None:
        but = f"refused where {' or '.join(row.refused_on)} does, " if row.refused_on else ""
        told = f"{but}{_MEANINGS[row.elsewhere]} where another engine does: {row.reason}"
        return f"honoured where {' or '.join(row.engines)} generates; {told}"
    return f"{_MEANINGS[row.status]}: {row.reason}" if row.reason else _MEANINGS[row.status]


def _values() -> Iterator[str]:
    yield from (
        "",
        "## Values of keys that are otherwise honoured",
        "",
        "| key | value | in a run |",
        "| --- | --- | --- |",
    )
    for status, table in ((Status.NOTED, NOTED_VALUES), (Status.REFUSED, REFUSED_VALUES)):
        for key, values in table.items():
            for value, why in values.items():
                yield f"| `{key}` | `{value}` | {_MEANINGS[status]}: {because(why)} |"
    for key, (known, why) in ONLY_VALUES.items():
        yield f"| `{key}` | all but {', '.join(f'`{value}`' for value in known)} | refused: {because(why)} |"


def _untried() -> Iterator[str]:
    yield from ("", "## What no test has run", "")
    yield from (f"- {each}" for each in UNTRIED)


if __name__ == "__main__":
    print(support_page(), end="")
