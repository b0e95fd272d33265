"""The reference page of which keys a run supports, ignores or refuses, from ``rlctl/planning/support.py``.

python -m rlctl.planning.support_page
"""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.planning.deepspeed import SETTINGS
from rlctl.planning.support import (
    BY_ENGINE,
    NOTED_VALUES,
    ONLY_VALUES,
    REFUSED_VALUES,
    TABLE,
    UNTRIED,
    Row,
    Status,
    because,
)

_MEANINGS = {
    Status.HONOURED: "supported",
    Status.DESCRIPTIVE: "recorded; it does not affect results",
    Status.FRONT_END: "acts before the run starts",
    Status.NOTED: "not used",
    Status.REFUSED: "refused",
}


def support() -> str:
    """What a run does with each key, as Markdown."""
    return "\n".join([*_keys(), *_values(), *_deepspeed(), *_untried()]) + "\n"


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
        but = f"refused with {' and '.join(row.refused_on)}, " if row.refused_on else ""
        others = f"{but}{_MEANINGS[row.elsewhere]} with other engines: {row.reason}"
        return f"supported with {' and '.join(row.engines)}; {others}"
    return f"{_MEANINGS[row.status]}: {row.reason}" if row.reason else _MEANINGS[row.status]


def _values() -> Iterator[str]:
    yield from (
        "",
        "## Values of keys that are otherwise supported",
        "",
        "| key | value | in a run |",
        "| --- | --- | --- |",
    )
    for status, table in ((Status.NOTED, NOTED_VALUES), (Status.REFUSED, REFUSED_VALUES)):
        for key, values in table.items():
            for value, why in values.items():
                yield f"| `{key}` | `{value}` | {_MEANINGS[status]}: {because(why)} |"
    for (key, value), (engines, why) in BY_ENGINE.items():
        yield f"| `{key}` | `{value}` | supported with {' and '.join(engines)}; refused with other engines: {because(why)} |"
    for key, (known, why) in ONLY_VALUES.items():
        yield f"| `{key}` | all but {', '.join(f'`{value}`' for value in known)} | refused: {because(why)} |"


def _deepspeed() -> Iterator[str]:
    yield from (
        "",
        "## Settings of DeepSpeed",
        "",
        "ROLL's DeepSpeed strategies run as FSDP2. ZeRO's stage and offloading become keys of `train.engine`. The other",
        "settings, in `train.engine.source_args`, are used as follows. `auto` is always accepted.",
        "",
        "| setting | in a run |",
        "| --- | --- |",
    )
    for each in SETTINGS:
        meaning = "not used" if each.fits is None else "refused if it is set to anything else"
        yield f"| `{each.names}` | {meaning}: {because(each.why)} |"


def _untried() -> Iterator[str]:
    yield from ("", "## Not tested", "")
    yield from (f"- {each}" for each in UNTRIED)


if __name__ == "__main__":
    print(support(), end="")
