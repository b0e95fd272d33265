"""ROLL: the templates of observations in rlctl's form, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import Formatter

from rlctl.common.records import record

INSTRUCTION = "{info[env_instruction]}\n"
"""What ROLL puts before the first observation of an environment that has an instruction."""
LENGTH = "max_response_length"
"""ROLL's field for the longest generation, which is a number in rlctl's template."""
FIELDS: Mapping[str, str] = {
    "observation": "observation",
    "turn_idx": "turn",
    "actions_left": "turns_left",
    "suffix": "info[suffix]",
}
"""Fields of a trajectory manager's template, and rlctl's."""
STEP_FIELDS: Mapping[str, str] = {
    "current_observation": "observation",
    "current_step": "turn",
    "step_count": "turns_done",
    "history": "history",
    "history_length": "history_length",
    "env_instruction": "info[env_instruction]",
}
"""Those of a step manager."""
HISTORY = "(step: {turn}, observation: {observation}, action: {action}, reward: {reward}), "
"""An earlier turn as ROLL's step manager writes it."""


@record
class Text:
    """A template with other fields, and the fields that have no counterpart."""

    text: str
    lost: tuple[str, ...] = ()


def _pieces(template: str) -> Iterator[tuple[str, str]]:
    """The texts of a template, braces doubled, each with the field after it; empty for none."""
    for literal, field, _, _ in Formatter().parse(template):
        yield literal.replace("{", "{{").replace("}", "}}"), field or ""


def _renamed(template: str, name: Callable[[str], str | None]) -> Text:
    texts: list[str] = []
    lost: list[str] = []
    for literal, field in _pieces(template):
        renamed = name(field) if field else ""
        if renamed is None:
            lost.append(field)
        texts += [literal, renamed or ""]
    return Text("".join(texts), tuple(lost))


def read_template(template: str, fields: Mapping[str, str], longest: int) -> Text:
    """A template of ROLL's in rlctl's form.

    Raises:
        ValueError: it is no template: a brace is open.
    """

    def name(field: str) -> str | None:
        if field == LENGTH:
            return str(longest)
        return f"{{{fields[field]}}}" if field in fields else None

    return _renamed(template, name)


def write_template(template: str, fields: Mapping[str, str]) -> Text:
    """A template of rlctl's in ROLL's form."""
    back = {own: theirs for theirs, own in fields.items()}
    return _renamed(template, lambda field: f"{{{back[field]}}}" if field in back else None)
