"""Stages: parts of a run one after the other, each the base config with some keys changed.

Keys of the schema merge one by one. A list, a mapping of anything, and a choice with another name are one value: they replace
what was there. A stage that sets no ``model.path`` goes on from the weights of the stage before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlctl.common.errors import ConfigError
from rlctl.common.filenames import fit, unfit
from rlctl.common.messages.reasons import said
from rlctl.common.quoting import word
from rlctl.common.records import record
from rlctl.common.report import Finding, Level
from rlctl.config.build import build_config, config_from
from rlctl.config.dump import to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of, sections_in
from rlctl.config.root import Config
from rlctl.documents.paths import KeyPath


@record
class Stage:
    """A resolved stage of a run."""

    name: str
    config: Config
    """The whole config of this stage, without stages of its own."""
    continues: bool
    """Whether it goes on from the weights of the stage before."""


def merge(base: Any, change: Any, cls: type = Config) -> Any:
    """Put ``change`` over ``base``, both plain values of a section: sections and equal choices key by key, the rest whole."""
    fields = fields_of(cls)
    merged = dict(base)
    for key, item in change.items():
        held = _held(fields[key].type, base.get(key), item) if key in fields else None
        if held is None:
            merged[key] = item
        elif isinstance(item, Mapping):
            merged[key] = merge(base[key], item, held)
    return merged


def difference(base: Any, other: Any, cls: type = Config) -> Any:
    """The smallest change that ``merge`` turns ``base`` into ``other`` with; both whole sections as plain values."""
    fields = fields_of(cls)
    change: dict[str, Any] = {}
    for key, item in other.items():
        if key in base and base[key] == item:
            continue
        held = _held(fields[key].type, base.get(key), item) if key in fields else None
        change[key] = item if held is None else difference(base[key], item, held)
    return change


def _held(hint: Any, before: Any, after: Any) -> type | None:
    """The section that two values of a field both are; None where one replaces the other."""
    if not isinstance(before, Mapping):
        return None
    for held, suffix in sections_in(hint):
        if suffix:
            continue
        if not issubclass(held, Choice):
            return held if isinstance(after, Mapping) else None
        name = after.get(held.tag, before.get(held.tag)) if isinstance(after, Mapping) else after
        if name == before.get(held.tag):
            found = held.option(name)
            return found[1] if found is not None else None
    return None


def stages_of(config: Config) -> list[Stage]:
    """The stages of a config, resolved; a config without stages is one stage called ``main``.

    Raises:
        ConfigError: a stage has a key or value that the schema does not allow.
    """
    stages, findings = resolve_stages(config)
    if findings:
        raise ConfigError("\n".join(finding.message for finding in findings))
    return stages


def resolve_stages(config: Config) -> tuple[list[Stage], list[Finding]]:
    """``stages_of``, but with problems as findings located at their stage."""
    if not config.stages:
        return [Stage("main", config, continues=False)], []
    plain = to_plain(config)
    base = {key: item for key, item in plain.items() if key != "stages"}
    stages: list[Stage] = []
    findings: list[Finding] = []
    for index, change in enumerate(config.stages):
        body = {key: item for key, item in change.items() if key != "name"}
        built, problems = build_config(merge(base, body))
        findings += [_in_stage(problem, index) for problem in problems]
        if built is not None:
            continues = index > 0 and "path" not in body.get("model", {})
            stages.append(Stage(str(change.get("name", f"stage{index + 1}")), built, continues))
        if why := unfit(str(change.get("name", "stage"))):
            findings.append(_misnamed(str(change["name"]), why, index))
    return stages, findings


def _in_stage(problem: Finding, index: int) -> Finding:
    place = f"stages[{index}]"
    return replace(problem, message=f"{place}: {problem.message}", key=f"{place}.{problem.key}", at=None)


def _misnamed(name: str, why: str, index: int) -> Finding:
    """A name that cannot be that of the folder with the stage's checkpoints."""
    key = f"stages[{index}].name"
    message = said("{key} is {name}: {why}", key=key, name=word(name), why=why)
    return Finding("stage", Level.ERROR, message, key, hint=said("set {key} to {name}", key=key, name=fit(name)))


def combine(parts: Sequence[tuple[str, Config]]) -> Config:
    """Combine configs into one with a stage for each, in order; the last is the base that the others differ from.

    A part whose model is the first part's continues from the weights of the part before.
    """
    if len(parts) == 1:
        return parts[0][1]
    base = to_plain(parts[-1][1])
    first_model = parts[0][1].model.path
    stages = []
    for index, (name, part) in enumerate(parts):
        change = difference(base, to_plain(part))
        change.pop("stages", None)
        if index > 0:
            change = _without_path(change) if part.model.path == first_model else _with_path(change, part.model.path)
        stages.append({"name": name, **change})
    return config_from({**base, "stages": stages})


def _without_path(change: dict[str, Any]) -> dict[str, Any]:
    model = {key: item for key, item in change.get("model", {}).items() if key != "path"}
    rest = {key: item for key, item in change.items() if key != "model"}
    return {**rest, "model": model} if model else rest


def _with_path(change: dict[str, Any], path: str) -> dict[str, Any]:
    return {**change, "model": {**change.get("model", {}), "path": path}}


def stage_key(path: KeyPath) -> KeyPath:
    """The key inside a stage's own config of a path under ``stages``."""
    return path[2:] if path[:1] == ("stages",) else path
