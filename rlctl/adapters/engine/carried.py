"""The block at the end of a written file that keeps what only another dialect has, and that is put back on the way home.

# rlctl: kept so that converting back restores it; do not edit
# verl:
#   trainer.esi_redundant_time: 0
# as_written:
#   explorer.rollout_model.engine_num: 2
# rlctl: end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.secrets import is_secret
from rlctl.common.errors import DocumentError
from rlctl.documents import read_yaml, write_yaml

HEAD = "rlctl: kept so that converting back restores it; do not edit"
END = "rlctl: end"
AS_WRITTEN = "as_written"
"""Beside the dialects: values of the text, by its keys. A kept value overrules them until the user changes them."""


def block(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The comment lines that keep keys, by dialect; none for nothing. Secrets are left out."""
    values = {
        dialect: {key: value for key, value in keys.items() if not is_secret((key.rsplit(".", 1)[-1],))}
        for dialect, keys in kept.items()
    }
    values = {dialect: keys for dialect, keys in values.items() if keys}
    if not values:
        return []
    return [HEAD, *write_yaml(values, as_comment=True).rstrip("\n").split("\n"), END]


def kept_in(text: str) -> dict[str, dict[str, Any]]:
    """The keys that a text keeps, by dialect; nothing where the block is missing or was damaged."""
    shown = (line.strip() for line in text.splitlines())
    lines = _between([line.removeprefix("#").removeprefix(" ") for line in shown if line.startswith("#") or not line])
    if not lines:
        return {}
    try:
        values = read_yaml("\n".join(lines) + "\n", "kept keys").values
    except DocumentError:
        return {}
    return {str(dialect): dict(keys) for dialect, keys in values.items() if isinstance(keys, dict)}


def _between(comments: Sequence[str]) -> list[str]:
    if HEAD not in comments:
        return []
    start = comments.index(HEAD) + 1
    end = comments.index(END, start) if END in comments[start:] else len(comments)
    return list(comments[start:end])


def without_block(lines: Sequence[str]) -> tuple[str, ...]:
    """Comment lines less the block."""
    if HEAD not in lines:
        return tuple(lines)
    start = list(lines).index(HEAD)
    end = list(lines).index(END) + 1 if END in lines else len(lines)
    return (*lines[:start], *lines[end:])
