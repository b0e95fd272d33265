"""The reference page of what a run honours and what it refuses, printed from the table of ``rlctl/support.py``.

python -m rlctl.support_page > docs/reference/support.md
"""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.support import ONLY_VALUES, REFUSED_VALUES, TABLE, Row, Status

_MEANINGS = {
    Status.HONOURED: "honoured",
    Status.DESCRIPTIVE: "recorded; it changes no number",
    Status.FRONT_END: "acts before the run starts",
}


def support_page() -> str:
    """The page, as Markdown."""
    return "\n".join([*_head(), *_keys(), *_values()]) + "\n"


def _head() -> Iterator[str]:
    yield "# What a run honours"
    yield ""
    yield "Every canonical key is in one row. `rlctl launch` refuses a config that sets a refused key to anything but its"
    yield "default, before it starts, and says why. All keys are translated between dialects, also those that no run honours."
    yield "A name that ends in `*` stands for the key and all below it, `<a|b>` for options of a choice."
    yield "Printed from `rlctl/support.py`."


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
    if row.vllm:
        return f"honoured where vLLM generates; refused where another engine does: {row.reason}"
    if row.status is not Status.REFUSED:
        return _MEANINGS[row.status]
    return (
        f"refused: {row.reason}"
        if row.numbers
        else f"refused where you write it, noted where a dialect's default sets it: {row.reason}"
    )


def _values() -> Iterator[str]:
    yield from ("", "## Values of keys that are otherwise honoured", "", "| key | value | why it is refused |")
    yield "| --- | --- | --- |"
    for key, values in REFUSED_VALUES.items():
        for value, reason in values.items():
            yield f"| `{key}` | `{value}` | {reason} |"
    for key, (known, reason) in ONLY_VALUES.items():
        yield f"| `{key}` | all but {', '.join(f'`{value}`' for value in known)} | {reason} |"


if __name__ == "__main__":
    print(support_page(), end="")
