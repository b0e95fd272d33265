"""The config of a ported run: the source's, with the new files, columns and reward, in the target's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.report import Bucket, Entry, Report
from rlctl.common.report_lines import Line, Part, lines
from rlctl.config import Loaded, put
from rlctl.config.dump import to_plain
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath
from rlctl.documents.yaml_edit import edit_yaml
from rlctl.documents.yaml_read import read_yaml
from rlctl.porting.columns import LAYOUTS
from rlctl.translation.translate import Translation, translate_loaded

KEPT = ("name", "max_samples", "sampling", "responses_per_prompt", "evaluation_sampling")
"""Fields of a data source that hold for the new files too."""
COLUMNS = ("prompt_key", "prompt_type", "answer_key", "source_key", "tag_key", "extra_key")
SYSTEM = ("system_prompt", "system_prompt_key")
"""Fields that hold for the source's own files; the workflow for Trinity-RFT puts the system message first itself."""
REWARDS: Mapping[str, dict[str, Any]] = {
    "trinity": {"type": "external", "kind": "ported_run"},
    "roll": {"type": "external", "kind": "ported_worker.PortedRewardWorker"},
    "verl": {"type": "function", "path": "ported_function.py", "function": "compute_score", "signature": "verl"},
    "rlctl": {"type": "function", "path": "ported_function.py", "function": "compute_score", "signature": "rlctl"},
}
"""The reward of the ported run, as rlctl's config says it."""
DONE = ("data-columns",)
"""Findings on what a port does itself."""
ANCHOR = "${oc.env:PORTED_RUN,.}/"
"""Before paths: the folder of the port, which run.sh sets, because Ray's processes run elsewhere."""
_E: KeyPath = ("buffer", "explorer_input")


def with_new_rows(loaded: Loaded, target: str, *, ported: bool, mapped: bool = False) -> Loaded:
    """The config with the rows of the ported folder, and its reward if that is ported.

    Args:
        loaded: the source's config; of several sources of one kind the first stands for all, as their rows are one file.
        target: the framework.
        ported: whether the reward is.
        mapped: whether the new files are links to the source's, with its columns.
    """
    for kind, split in (("train", "train"), ("eval", "test")):
        sources = getattr(loaded.config.data, kind)
        if sources:
            loaded = put(loaded, ("data", kind), [_source(sources[0], target, split, mapped=mapped)], by="rlctl port")
    if not ported:
        return loaded
    shaping = loaded.config.algorithm.reward_shaping
    if shaping.overlong_penalty is not None and target in ("trinity", "roll"):  # the adapter subtracts it
        loaded = put(loaded, ("algorithm", "reward_shaping", "overlong_penalty"), None, by="rlctl port")
    first = loaded.config.rewards[0]
    kept = {"name": first.name, "workers": first.workers, "timeout": first.timeout}
    return put(loaded, ("rewards",), [{**REWARDS[target], **kept}], by="rlctl port")


def _source(source: DataSource, target: str, split: str, *, mapped: bool) -> dict[str, Any]:
    every = to_plain(source, sparse=True)
    kept = KEPT if not mapped else (*KEPT, *COLUMNS) if target == "trinity" else (*KEPT, *COLUMNS, *SYSTEM)
    plain = {key: value for key, value in every.items() if key in kept}
    layout = LAYOUTS[target]
    plain |= {} if mapped else {"prompt_key": layout.prompt, "answer_key": layout.answer}
    if target == "trinity":  # it opens a folder, and finds the split by the file's name
        return {"name": split, **plain, "path": "data", "split": split}
    return {**plain, "path": f"data/{split}.parquet"}


def written(loaded: Loaded, report: Any, target: str, options: Mapping[str, str], *, ported: bool) -> Translation:
    """The config in the target's format, with the ledger of the conversion.

    Raises:
        RunError: the target cannot express it.
    """
    options = {**options, "carried": "none", "format": "sh" if target.startswith("verl") else ""}
    made = translate_loaded(loaded, report, target, options=options)
    if made.text is None:
        [first, *_] = made.report.errors
        raise RunError(
            said("the config cannot be ported: {reason}", reason=first.message), at=first.at, hint=first.advice
        )
    made.report.findings[:] = [item for item in made.report.findings if item.code not in DONE]
    if ported:
        made.report.accounting[:] = [_with_reward(entry, report) for entry in made.report.accounting]
    if target.startswith(("verl", "rlctl")):
        return made
    document = read_yaml(made.text, "config.yaml")
    changes, gone = {path: ANCHOR + value for path, value in _paths(document.values)}, []
    if target.startswith("trinity") and ported:
        changes[(*_E, "default_workflow_type")] = "ported_run"
        gone = [(*_E, "default_reward_fn_type")]
    return Translation(edit_yaml(document, changes, delete=gone), made.report)


def _with_reward(entry: Entry, read: Report) -> Entry:
    """A key of the reward as what it is in a port: in the adapter, although the target's config has no key for it."""
    if not entry.loses:
        return entry
    fields = [field for each in read.accounting if each.key == entry.key for field, _ in each.targets]
    if not fields or not all(field.startswith("rewards[") for field in fields):
        return entry
    return replace(entry, bucket=Bucket.DERIVED, note="the adapter calls the reward with it")


def _paths(values: Any, at: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """The places of a config that name the new files or their folder."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _paths(value, (*at, key))
    elif isinstance(values, list):
        for place, value in enumerate(values):
            yield from _paths(value, (*at, place))
    elif isinstance(values, str):
        is_file = values.startswith("data/") and values.endswith(".parquet")
        if is_file or (at[-1] == "path" and values == "data"):
            yield at, values


def told(translation: Translation) -> Iterator[tuple[Part, str, str, str]]:
    """What the conversion changes: part, keys or finding, reason and advice, the gravest first."""
    for line in sorted(lines(translation.report), key=_harm):
        if line.part in (Part.DECIDE, Part.CHANGES):
            what = line.keys if line.finding is None else (line.finding.key or "")
            yield line.part, what, line.note, line.advice


def _harm(line: Line) -> int:
    if line.finding is not None:
        return line.finding.rank.place
    return min(entry.rank.place for entry in line.entries)
