"""The fields of stages: each has the whole config's, where what it does not say itself is what the run says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlctl.config import Config, Stage, resolve_stages
from rlctl.config.chinese import in_words
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of, settings
from rlctl.documents import KeyPath
from rlctl.editing.fields import FieldView, dormant_in, field_at, keys, origin_of, values_of
from rlctl.editing.session import Session, tag_of

LEFT_OUT = ("rlctl", "stages")
"""Top keys that no stage has."""


class StageForm:
    """The fields of a session's stages, kept up to date: what was not changed is not asked again."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._of: tuple[Any, ...] = ()
        self._all: list[FieldView] = []
        self._known: dict[tuple[int, str], tuple[tuple[Any, ...], list[FieldView]]] = {}

    def views(self) -> list[FieldView]:
        """Every value of every stage; none where a stage says what does not fit, which is mended in its text."""
        session = self.session
        of = (session.config, session.file)
        if len(self._of) == 2 and all(a is b for a, b in zip(of, self._of, strict=True)):
            return self._all
        self._of, self._all = of, []
        if session.config.stages:
            stages, problems = resolve_stages(session.config)
            if not problems:
                self._all = [view for number, stage in enumerate(stages) for view in self._stage(number, stage)]
        return self._all

    def _stage(self, number: int, stage: Stage) -> list[FieldView]:
        said = self.session.config.stages[number]
        dormant = dormant_in(stage.config)
        found = [self._name(number, stage)]
        for top, info in fields_of(Config).items():
            if top in LEFT_OUT:
                continue
            base = getattr(self.session.config, info.attribute)
            marks = (
                getattr(stage.config, info.attribute),
                base,
                said.get(top),
                self._in_file(number).get(top),
                dormant,
            )
            known = self._known.get((number, top))
            if known is None or marks != known[0]:
                known = self._known[number, top] = (marks, self._section(number, stage, top, dormant))
            found += known[1]
        return found

    def _in_file(self, number: int) -> Mapping[str, Any]:
        """What the file's stage says; nothing where it has none."""
        stages = self.session.file.loaded.config.stages if self.session.file is not None else ()
        return stages[number] if number < len(stages) else {}

    def _name(self, number: int, stage: Stage) -> FieldView:
        path: KeyPath = ("stages", number, "name")
        loaded, file = self.session.loaded, self._in_file(number)
        view = field_at(keys()["run.name"], path, stage.name, f"stage{number + 1}", loaded, dormant=[])
        edited = self.session.file is not None and file.get("name") != stage.name
        return replace(view, help=in_words("The stage's name."), edited=edited)

    def _section(self, number: int, stage: Stage, top: str, dormant: list[str]) -> list[FieldView]:
        loaded, said, in_file = self.session.loaded, self.session.config.stages[number], self._in_file(number)
        base = values_of(self.session.config, top)
        found = []
        for setting in settings(stage.config, only=(top,)):
            key = keys().get(setting.pattern)
            if key is None:
                continue
            path = ("stages", number, *setting.path)
            view = field_at(key, path, setting.value, base.get(setting.path, setting.default), loaded, dormant=dormant)
            tag = (tag_of(setting.path),) if isinstance(setting.value, Choice) else ()
            here = _says(said, (*setting.path, *tag)) or (bool(tag) and isinstance(_at(said, setting.path), str))
            origin = view.origin if here else f"{in_words('as in the run')}: {origin_of(loaded, setting.path)}"
            edited = self.session.file is not None and _at(said, setting.path) != _at(in_file, setting.path)
            found.append(replace(view, origin=origin, changed=here, edited=edited))
        return found


def _at(said: Any, path: KeyPath) -> Any:
    """What a stage says at a key; None where it says nothing."""
    for part in path:
        said = said.get(part) if isinstance(said, Mapping) else None
    return said


def _says(said: Any, path: KeyPath) -> bool:
    """Whether a stage says a key, or an item of a list or mapping that it says as a whole."""
    for part in path:
        if not isinstance(said, Mapping):
            return said is not None
        if part not in said:
            return False
        said = said[part]
    return True
