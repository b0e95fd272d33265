"""The reference page of all messages: each code of a finding, what it means, what it says and what to do about it.

python -m rlctl.checks.messages_page > docs/reference/messages.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlctl.checks.problem import LEVELS
from rlctl.common.messages import catalogue, code_of, has, in_language

INTRODUCTION = """# Messages

Every finding of rlctl has a code, in brackets at the end of its line: `error: model.path is not set [no-model]`. An error stops
`rlctl launch`; a warning deserves a second look; a note is worth knowing. `<name>` stands for a value of your config.

<!-- python -m rlctl.checks.messages_page -->
"""
SECTIONS = {"What `rlctl check` finds": True, "Reading and converting": False}
"""The title of each section, and whether it is that of the checks."""
_VARIABLE = re.compile(r"\$(\w+)")


def page() -> str:
    """The page as Markdown."""
    codes: dict[str, list[str]] = {}
    for id_ in catalogue("en"):
        codes.setdefault(code_of(id_), []).append(id_)
    parts = [INTRODUCTION]
    for title, checks in SECTIONS.items():
        parts.append(f"## {title}\n")
        for code, ids in codes.items():
            if (code in LEVELS) is checks and has(f"{code}.about"):
                parts.append("\n".join(_entry(code, ids)) + "\n")
    return "\n".join(parts)


def _entry(code: str, ids: Sequence[str]) -> Iterator[str]:
    level = f" ({LEVELS[code]})" if code in LEVELS else ""
    yield f"### `{code}`\n"
    yield f"{_shown(f'{code}.about').rstrip('.')}{level}.\n"
    for id_ in ids:
        advice = _shown(f"{id_}.hint") if has(f"{id_}.hint") else ""
        yield f"- {_quoted(_shown(id_))}" + (f"<br>{_quoted(advice)}" if advice.strip("<>") else "")


def _shown(name: str) -> str:
    """A text with ``<variable>`` for its values."""
    entry = catalogue("en")[name.partition(".")[0]]
    return in_language("en", name, **{variable: f"<{variable}>" for variable in _VARIABLE.findall(entry)})


def _quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
