"""What ROLL refuses of the rows of training data: messages that a template does not take, columns that a pipeline reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.roll.requirement_values import is_rlvr
from rlctl.adapters.roll.user_limits import FALLBACK, FILES, D, data_paths, is_text_only, rows_of_training, tags_of
from rlctl.common.filenames import expanded
from rlctl.planning.column_types import column_types
from rlctl.planning.row_sample import row_sample

VALIDATED = "validation.data_args.file_name"
MOST = 2000
"""Rows whose messages are read."""
PLAIN = ("base", "empty")
"""Templates that write one message of a user and nothing else."""
REMOTE = "RemoteRewardSystemWorker"
REFERENCES = ("reward_ref_info", "ground_truth", "test_cases")
"""Columns of which ROLL's remote rewards need one."""


def _conversations(values: Values) -> Iterator[tuple[int, str, Any]]:
    """The number of a row, from 1, its template and its messages."""
    column = str(values[f"{D}.messages"] or "") if is_text_only(values) else ""
    sample = rows_of_training(values) if column else None
    by_tag = values["tag_to_template"] or {}
    usual, tag = str(values["global_template"] or values[f"{D}.template"] or ""), str(values[f"{D}.tag"] or "tag")
    for number, row in enumerate(sample.rows[:MOST] if sample is not None else (), 1):
        if row.get(column) is not None:
            yield number, str(by_tag.get(row.get(tag), usual)), row[column]


def _messages(found: Any) -> list[Any] | None:
    """Messages of a row, which may be JSON; None if they are text, and no JSON."""
    try:
        read = json.loads(found) if isinstance(found, str) else found
    except ValueError:
        return None
    return read if isinstance(read, list) else []


def _is_plain(found: Any) -> bool:
    messages = _messages(found)
    one = messages is None or (len(messages) == 1 and isinstance(messages[0], Mapping))
    return one and (messages is None or messages[0].get("role") == "user")


def _untaken(values: Values) -> str:
    """The first row whose template does not take its messages; empty for none."""
    rows = (number for number, template, found in _conversations(values) if template in PLAIN and not _is_plain(found))
    return str(next(rows, ""))


def _no_json(values: Values) -> str:
    """The first row whose messages are text, and no JSON; empty for none."""
    return next((str(number) for number, _, found in _conversations(values) if _messages(found) is None), "")


def _reads_images(values: Values) -> bool:
    written = any(values.written(f"{D}.image_{bound}_pixels") for bound in ("max", "min"))
    return is_rlvr(values) and (written or values.program.endswith("start_rlvr_vl_pipeline.py"))


def _untagged(values: Values) -> str:
    """A file of the pipeline for images that has no column of tags."""
    paths = data_paths(values) if _reads_images(values) else []
    return next((str(path) for path in paths if (columns := column_types(path)) and "tag" not in columns), "")


def _unreferenced(values: Values) -> str:
    """The domain that remote rewards score, if the rows have nothing to compare with."""
    rewards = (values["rewards"] or {}).items() if is_rlvr(values) else ()
    remote = [str(name) for name, each in rewards if str((each or {}).get("worker_cls") or "").endswith(REMOTE)]
    if not remote:
        return ""
    found = [columns for path in data_paths(values) if (columns := column_types(path))]
    return remote[0] if found and not any(set(REFERENCES) & set(columns) for columns in found) else ""


def _unscored(values: Values) -> str:
    """A tag of the evaluation data whose domain no reward scores."""
    rewards = values["rewards"] or {}
    names = files_of(values[VALIDATED]) if is_rlvr(values) and is_text_only(values) and rewards else []
    folder, tags = str(values["validation.data_args.dataset_dir"] or "."), tags_of(values)
    for name in names:
        own, below = expanded(str(name)), expanded(folder) / str(name)
        sample = row_sample(below if below.exists() else own, most=MOST)
        for row in sample.rows if sample is not None else ():
            domain = row.get("domain") or tags.get(str(row.get("tag")), FALLBACK)
            if "tag" in row and domain not in rewards:
                return str(row["tag"])
    return ""


ROWS: tuple[Requirement, ...] = (
    Requirement(
        f"{D}.template",
        _untaken,
        "row {row} has other messages than one of a user, and its template, base or empty, takes no others",
        "roll/datasets/chat_template.py, base_chat_template",
        "set actor_train.data_args.template to native, or leave one message of a user in each row",
        numbers={"row": _untaken},
    ),
    Requirement(
        f"{D}.messages",
        _no_json,
        "the column {actor_train.data_args.messages} of row {row} holds text that is not JSON; ROLL reads message lists there",
        "roll/pipeline/rlvr/rlvr_pipeline.py, get_encode_function",
        "write the messages as lists, or name a column of plain text in actor_train.data_args.prompt",
        numbers={"row": _no_json},
    ),
    Requirement(
        VALIDATED,
        _unscored,
        "no reward scores rows of the evaluation with the tag {tag}: none of rewards has it in tag_included, or is called as "
        "their domain",
        "roll/distributed/scheduler/user_defined_rollout_loop.py, query_filter",
        "add {tag} to tag_included of a reward, or remove these rows",
        numbers={"tag": _unscored},
        when="validation",
    ),
    Requirement(
        FILES,
        _untagged,
        "{file} has no column tag, by which the pipeline for images finds the domain of a row",
        "roll/pipeline/rlvr/rlvr_vlm_pipeline.py, RLVRVLMPipeline.__init__",
        "add the column tag with the names of tag_included of rewards",
        numbers={"file": _untagged},
        check_code="data-column",
    ),
    Requirement(
        "rewards",
        _unreferenced,
        "rows have neither reward_ref_info nor ground_truth nor test_cases; the remote reward of the domain {domain} needs one",
        "roll/pipeline/rlvr/rewards/remote_reward_system_worker.py, RemoteRewardSystemWorker._uniform_reward_ref_info_adaper",
        "add one of the columns",
        numbers={"domain": _unreferenced},
        check_code="data-column",
        when="rollout",
    ),
)
