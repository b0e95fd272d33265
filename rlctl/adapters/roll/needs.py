"""ROLL: what it asks of data and rewards that were made for another framework, told once for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlctl.adapters.engine.rules import Writing
from rlctl.adapters.roll.batch import DYNAMIC, A, keeps, longest
from rlctl.adapters.roll.data import ANSWER, SEEN, D, shows
from rlctl.adapters.roll.rewards import FALLBACK, domains
from rlctl.common.report import Finding, Level
from rlctl.config.sections.data import DataSource

ROWS = (".json", ".jsonl")
FILES = (*ROWS, ".parquet", ".csv", ".arrow")
"""What ROLL's loader opens; supervised training reads rows of JSON only."""
FILE = f"{D}.file_name"
SUPERVISED = ("sft", "dpo", "distill")
MORE = {"sandbox": ("id", "case_type", "test_cases", "test_case_function"), "judge": ("id",)}
"""Columns that a type of reward reads beside the answer."""


def needs(view: Writing, kind: str) -> list[Finding]:
    """What has to be done with the data before ROLL can start."""
    found = [*_micro(view)]
    if kind in ("agentic", "opd_agentic"):
        return found
    sources = [*view.config.data.train, *view.config.data.eval]
    endings = ROWS if kind in SUPERVISED else FILES
    columns = {"sft": _conversations, "dpo": _pairs, "distill": _conversations}.get(kind, _prompts)
    found += [*_files(sources, endings), *columns(view, sources)]
    return [*found, *(() if kind in SUPERVISED else _rewards(view, kind))]


def _warning(code: str, key: str, message: str, hint: str) -> Finding:
    return Finding(code, Level.WARNING, message, key, None, hint)


def _micro(view: Writing) -> Iterator[Finding]:
    """What micro-batches of tokens cost as sequences, which are counted as if each had the longest length."""
    micro = view.config.batch.micro_batch
    if micro.unit != "tokens" or keeps(view, DYNAMIC):
        return
    most = longest(view)
    each = max(1, micro.size // most)
    message = (
        f"micro-batches of {micro.size} tokens become at most {each} sequences of up to {most} tokens: results "
        f"don't change, but a GPU that took {micro.size} tokens at once takes {each} sequences, however short"
    )
    hint = (
        f"raise per_device_train_batch_size if responses are shorter, or set {DYNAMIC}, which changes optimizer steps"
    )
    yield Finding("micro-batches-in-sequences", Level.NOTE, message, f"{A}.training_args", None, hint)


def _files(sources: Sequence[DataSource], endings: Sequence[str]) -> Iterator[Finding]:
    unread = [source for source in sources if source.path and not source.path.endswith(tuple(endings))]
    if unread and "${" not in unread[0].path:
        parts = [part for part in (unread[0].subset, unread[0].split) if part]
        shown = f"'{unread[0].path}'" + (f" ({', '.join(parts)})" if parts else "")
        message = f"ROLL reads files here that end in {', '.join(endings)}; {shown} is none"
        yield _warning("data-files", FILE, message, "write its rows to such a file, and name that")


def _prompts(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    if shows(view):
        message = "images are read by start_rlvr_vl_pipeline.py only; start_rlvr_pipeline.py takes the same file and reads none"
        hint = f"start it so; its rows have the columns {', '.join(SEEN.values())}"
        yield _warning("start-script", f"{D}.image_max_pixels", message, hint)
        return
    shaped = [
        source
        for source in sources
        if source.answer_key != ANSWER or source.tag_key is None or source.prompt_type not in ("messages", "raw")
    ]
    if shaped:
        first = shaped[0]
        more = dict.fromkeys(column for reward in view.get("rewards") for column in MORE.get(reward["type"], ()))
        message = (
            f"ROLL reads of each row '{first.prompt_key}' (chat messages, as a list or as JSON text), "
            f"'{first.tag_key or 'tag'}' (which reward scores it), "
            + "".join(f"'{column}', " for column in more)
            + f"and '{ANSWER}' (what the reward compares with); '{first.path}' was made for another framework"
        )
        tags = [tag for reward in view.get("rewards") for tag in reward["applies_to"] or ()]
        where = (
            f"rows whose tag no reward includes are scored by {FALLBACK}"
            if FALLBACK in domains(view)
            else f"each row's tag is one of {', '.join(tags)}"
        )
        hint = f"rewrite the data with these columns; {where}"
        yield _warning("data-columns", FILE, message, hint)


def _conversations(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    shaped = [source for source in sources if source.messages_key is not None]
    if shaped:
        message = (
            f"ROLL reads one prompt and one response a row; '{shaped[0].path}' has conversations in "
            f"'{shaped[0].messages_key}'"
        )
        hint = "write a row for each response; prompt_key and response_key name its columns, 'instruction' and 'output' unasked"
        yield _warning("data-columns", FILE, message, hint)


def _pairs(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    shaped = [source for source in sources if source.prompt_key != "instruction"]
    if shaped:
        message = (
            f"ROLL's DPO reads the prompt as text from 'instruction'; '{shaped[0].path}' has it in "
            f"'{shaped[0].prompt_key}'"
        )
        yield _warning("data-columns", FILE, message, "rename the column; chosen and rejected are the responses' text")


def _rewards(view: Writing, kind: str) -> Iterator[Finding]:
    if not view.get("rewards") and kind == "rlvr":
        message = "ROLL wants a worker that scores, and the source names no reward"
        hint = f"name one: rewards.{FALLBACK}.worker_cls, and {D}.domain_interleave_probs.{FALLBACK}: 1.0"
        yield _warning("reward-missing", "rewards", message, hint)
