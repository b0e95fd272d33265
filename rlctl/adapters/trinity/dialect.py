"""The Trinity dialect. Its stages replace whole blocks, which is expanded on reading and kept to on writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.dialect import Detection, Dialect, File, TrainerProgram, replace_extensions, stage_parts
from rlctl.adapters.engine.one_engine import tell_engines, with_one_engine
from rlctl.adapters.engine.reading import Read
from rlctl.adapters.engine.resolvers import OMEGACONF
from rlctl.adapters.engine.rules import ABSENT, Inexpressible, split, version_of
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.engine.stages import joined_stages
from rlctl.adapters.engine.table import Table, joined
from rlctl.adapters.engine.tree import find, remove
from rlctl.adapters.engine.writing import ConfigWithOrigins, Written
from rlctl.adapters.trinity import (
    advice,
    algorithm,
    batch,
    critic,
    data,
    devices,
    engine,
    layout,
    losses,
    micro,
    model,
    notes,
    output,
    reference,
    rewards,
    rollout,
    sampling,
    task_pipeline,
    train,
)
from rlctl.adapters.trinity.batch import STYLES
from rlctl.adapters.trinity.experiences import OLD_SELECTOR
from rlctl.adapters.trinity.keys import REPLACED
from rlctl.adapters.trinity.memory import memory_terms
from rlctl.adapters.trinity.ranks import RANKS
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report import Finding, Origin
from rlctl.config import Config, Loaded
from rlctl.documents import Document, KeyPath
from rlctl.documents.paths import copied

BLOCKS = ("mode", "algorithm", "buffer", "data_processor", "explorer", "trainer")
"""What a stage may hold; each replaces the whole block of the base."""
CLIP: KeyPath = ("trainer", "grad_clip")
"""Decides in 0.5; 0.6 has it too, and clips by another key. Its default tells nothing."""
OLD = "0.4"
"""The release whose examples have names that 0.5 replaced: those of 0.5.2 have none of them."""
RULES = joined(
    algorithm.RULES,
    losses.LOSS,
    model.TOP,
    train.TRAINER,
    micro.MICRO,
    reference.REFERENCE,
    critic.CRITIC,
    devices.DEVICES,
    engine.ENGINE,
    sampling.SAMPLING,
    rollout.EXPLORER,
    output.OUTPUT,
    batch.RULES,
    data.RULES,
    task_pipeline.RULES,
    rewards.REWARD,
)


@record
class Trinity(Dialect):
    """Trinity-RFT, whose users write one YAML file, with stages or without."""

    def detect(self, document: Document, *, version: str = "", kind: str = "") -> Detection:
        """As any dialect, with the keys of stages counted as the base's; flat roles, old names and a clip tell the release."""
        if not version or version_of(version) >= (0, 6):
            document, moves = layout.wrapped(document)
            version = version or ("0.6" if moves else "")
        document = _flattened(document)
        taken = super().detect(document, version=version, kind=kind)
        shown = "" if version else _shown_release(document)
        if not shown:
            return taken
        older = super().detect(document, version=shown, kind=kind)
        return older if older.unknown <= taken.unknown else taken

    def replaced(self, document: Document, taken: Detection) -> KeyPath | None:
        return next(_old_names(document), None) if taken.version == OLD else None

    def read(
        self,
        document: Document,
        taken: Detection,
        *,
        environment: Mapping[str, str] | None,
        options: Mapping[str, str],
        restored: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """Read a file; one with stages becomes a config with stages, each with its blocks replaced whole."""
        document, moves = layout.wrapped(document) if version_of(taken.version) >= (0, 6) else (document, {})
        whole = super().read

        def one(part: Document, kept: Mapping[str, Mapping[str, Any]]) -> Read:
            read = whole(part, taken, environment=environment, options=options, restored=kept)
            if read.config is not None:
                version = version_of(taken.version)
                found = advice.on_read(read.config, part.values, version)
                if version < (0, 6) and read.config.run.mode in ("full", "train_only"):
                    table = self.tables[taken.kind]
                    optimizer = {
                        name: table.default_at(split(f"{advice.OPTIMIZER}.{name}"), version)
                        for name in REPLACED.values()
                    }
                    found += advice.on_optimizer(part.values, optimizer)
                read.report.findings += [replace(item, at=part.at(split(item.key))) for item in found]
            return read

        read = _read_stages(document, restored, one)
        return layout.as_written(read, moves) if moves else read

    def on_data(self, config: Config) -> list[Finding]:
        return list(advice.on_data(config))

    def write_one(self, given: ConfigWithOrigins, version: str, options: Mapping[str, str]) -> Written:
        """As any dialect; where nothing is explored, the explorer's defaults are left out."""
        whole = given.config
        given, other = with_one_engine(given, self.name)
        written = super().write_one(given, version, options)
        tell_engines(written, whole, given.config, self.name)
        written.findings += other
        if given.config.algorithm.objective.choice in ("sft", "dpo"):
            _forget_explorer(written)
        written.findings += advice.on_written(given, written.values, version_of(version))
        return written

    def write(self, loaded: Loaded, version: str, options: Mapping[str, str]) -> File:
        """Write a config; its stages become ``stages``, each with whole blocks."""
        parts = stage_parts(loaded)
        if len(parts) == 1:
            return super().write(loaded, version, options)
        written = []
        for index, name, given in parts:
            given = replace(given, config=replace_extensions(given.config, loaded.config))
            written.append((index, name, self.write_one(given, version, options)))
        return self._staged(written)

    def _staged(self, written: list[tuple[int | None, str, Written]]) -> File:
        base = copied(written[-1][2].values)
        _share(base, [part for _, _, part in written])
        stages: list[dict[str, Any]] = []
        comments = dict(written[-1][2].comments)
        for place, (_, name, part) in enumerate(written):
            blocks = {
                key: part.values[key] for key in BLOCKS if key in part.values and part.values[key] != base.get(key)
            }
            if "mode" in base and "mode" not in blocks and part.values.get("mode") != base["mode"]:
                blocks["mode"] = part.values.get("mode", "both")
            stages.append({"stage_name": name, **blocks})
            moved = {
                ("stages", place, *path): note for path, note in part.comments.items() if path and path[0] in blocks
            }
            comments.update(moved)
        values = self.ordered({**base, "stages": stages})
        return File(values, comments, [(index, part) for index, _, part in written])


def _read_stages(
    document: Document,
    restored: Mapping[str, Mapping[str, Any]],
    one: Callable[[Document, Mapping[str, Mapping[str, Any]]], Read],
) -> Read:
    """Each stage by itself, joined; a file without stages as it is."""
    stages = document.values.get("stages")
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        return one(document, restored)
    names = [str(stage.get("stage_name", f"stage{index + 1}")) for index, stage in enumerate(stages)]
    parts = [(name, one(stage_document(document, at), _of_stage(restored, at))) for at, name in enumerate(names)]
    return joined_stages(document, parts, stage_key=_stage_key)


def _forget_explorer(written: Written) -> None:
    idle = [
        entry for entry in written.origins if entry.key.startswith("explorer.") and entry.origin is Origin.DEFAULTED
    ]
    for entry in idle:
        written.origins.remove(entry)
        remove(written.values, tuple(entry.key.split(".")))


def _share(base: dict[str, Any], parts: list[Written]) -> None:
    """Blocks that stages share: the last stage's, with what only the others say, and the longest model length."""
    for part in parts[:-1]:
        for key, block in part.values.items():
            if key in BLOCKS or key not in base:
                if key not in BLOCKS:
                    base[key] = copied(block)
                continue
            _merge(base[key], block, (key,), base, part)


def _merge(here: Any, there: Any, path: KeyPath, base: dict[str, Any], part: Written) -> None:
    if isinstance(here, dict) and isinstance(there, dict):
        for key, value in there.items():
            if key in here:
                _merge(here[key], value, (*path, key), base, part)
            else:
                here[key] = copied(value)
        return
    if here == there:
        return
    if path == ("model", "max_model_len") and isinstance(here, int) and isinstance(there, int):
        base["model"]["max_model_len"] = max(here, there)
        return
    lost = Inexpressible(
        (),
        said(
            "Trinity's stages share {path}; wrote the last stage's {here!r}, not {there!r}",
            path=".".join(str(item) for item in path),
            here=here,
            there=there,
        ),
    )
    for fate in part.fates.values():
        if any(key == ".".join(str(item) for item in path) for key, _ in fate.targets) and not _named_by_stage(path):
            fate.lost = fate.lost or lost.reason


def _named_by_stage(path: KeyPath) -> bool:
    """Names of runs are told apart by the stage's name, which Trinity adds."""
    return path in (("name",), ("project",))


def stage_document(document: Document, index: int) -> Document:
    """The document of one stage: the base with the stage's blocks in place, each value where it was written."""
    stage = document.values["stages"][index]
    blocks = {key: value for key, value in stage.items() if key in BLOCKS and value is not None}
    values = {key: value for key, value in document.values.items() if key != "stages"} | blocks
    extra = {key: value for key, value in stage.items() if key not in BLOCKS and key != "stage_name"}
    values |= {f"stages.{key}": value for key, value in extra.items()}
    kept = {
        path: mark
        for path, mark in document.marks.items()
        if path[:1] != ("stages",) and path[:1] not in {(key,) for key in blocks}
    }
    own = {path[2:]: mark for path, mark in document.marks.items() if path[:2] == ("stages", index) and len(path) > 2}
    notes_kept = {path: note for path, note in document.comments.items() if path[:1] != ("stages",)}
    notes_own = {
        path[2:]: note for path, note in document.comments.items() if path[:2] == ("stages", index) and len(path) > 2
    }
    return replace(document, values=values, marks={**kept, **own}, comments={**notes_kept, **notes_own})


def _of_stage(restored: Mapping[str, Mapping[str, Any]], index: int) -> dict[str, Mapping[str, Any]]:
    """The kept keys of one stage; those of other dialects go to the first."""
    prefix = f"stages[{index}]."
    own = {
        key.removeprefix(prefix): value for key, value in restored.get("rlctl", {}).items() if key.startswith(prefix)
    }
    others = {name: keys for name, keys in restored.items() if name != "rlctl"} if index == 0 else {}
    return {**others, "rlctl": own} if own else others


def _stage_key(document: Document, index: int, key: KeyPath) -> KeyPath:
    """Where a key of a stage's document stands in the whole one."""
    stage = document.values["stages"][index]
    inside = bool(key) and key[0] in BLOCKS and stage.get(key[0]) is not None
    return ("stages", index, *key) if inside else key


def _shown_release(document: Document) -> str:
    """The release that a file shows although newer ones take its keys; empty if it shows none."""
    if next(_old_names(document), None) is not None:
        return OLD
    return "" if find(document.values, CLIP) in (ABSENT, None, 1.0) else "0.5"


def _old_names(document: Document) -> Iterator[KeyPath]:
    """The places of names and words that 0.5 replaced and still takes."""
    for path, value in document.leaves():
        old_style = path[-2:] == ("synchronizer", "sync_style") and str(value).lower() in STYLES.names
        if old_style or OLD_SELECTOR in path:
            yield path


def _flattened(document: Document) -> Document:
    """The document with the keys of stages beside those of the base, to count what is known."""
    stages = document.values.get("stages")
    if not isinstance(stages, list):
        return document
    values: dict[str, Any] = {key: value for key, value in document.values.items() if key != "stages"}
    for stage in stages:
        for key, block in stage.items() if isinstance(stage, dict) else ():
            if key in BLOCKS and key not in values:
                values[key] = block
    return replace(document, values=values)


TRINITY = Trinity(
    "trinity",
    ("0.4", "0.5", "0.6"),
    {"run": Table(RULES, notes.NOTES, schema("trinity", "run"), typed=True, resolvers=OMEGACONF)},
    (
        "mode",
        "project",
        "group",
        "name",
        "checkpoint_root_dir",
        "continue_from_checkpoint",
        "algorithm",
        "model",
        "cluster",
        "buffer",
        "explorer",
        "synchronizer",
        "trainer",
        "data_processor",
        "monitor",
        "service",
        "log",
        "stages",
    ),
    programs={"trinity": TrainerProgram("file", "run"), "trinity.cli.launcher": TrainerProgram("file", "run")},
    ranks=RANKS,
    memory=memory_terms,
)
