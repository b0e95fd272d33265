"""ROLL: what it asks of data and rewards that were made for another framework, told once for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlctl.adapters.engine.rules import Writing
from rlctl.adapters.roll.batch import DYNAMIC, A, keeps, longest
from rlctl.adapters.roll.data import ANSWER, SEEN, D, shows
from rlctl.adapters.roll.rewards import FALLBACK, domains
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
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


def _columns(expected: str, found: str, advice: str) -> Finding:
    return finding("data-columns", Level.WARNING, FILE, framework="ROLL", expected=expected, found=found, advice=advice)


def _micro(view: Writing) -> Iterator[Finding]:
    """What micro-batches of tokens cost as sequences, which are counted as if each had the longest length."""
    micro = view.config.batch.micro_batch
    if micro.unit != "tokens" or keeps(view, DYNAMIC):
        return
    most = longest(view)
    each = max(1, micro.size // most)
    yield finding(
        "micro-batches-in-sequences",
        Level.NOTE,
        f"{A}.training_args",
        tokens=micro.size,
        each=each,
        longest=most,
        dynamic=DYNAMIC,
    )


def _files(sources: Sequence[DataSource], endings: Sequence[str]) -> Iterator[Finding]:
    unread = [source for source in sources if source.path and not source.path.endswith(tuple(endings))]
    if unread and "${" not in unread[0].path:
        shown = ", ".join(dict.fromkeys(map(_shown, unread)))
        yield finding(
            "data-files",
            Level.WARNING,
            FILE,
            advice="write its rows to such a file, and name that file",
            framework="ROLL",
            endings=", ".join(endings),
            path=shown,
        )


def _shown(source: DataSource) -> str:
    """A data set with what picks its rows: those of training and evaluation are often one data set."""
    parts = [part for part in (source.subset, source.split) if part]
    return f"'{source.path}'" + (f" ({', '.join(parts)})" if parts else "")


def _prompts(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    if shows(view):
        yield finding("start-script", Level.WARNING, f"{D}.image_max_pixels", columns=", ".join(SEEN.values()))
        return
    shaped = [
        source
        for source in sources
        if source.path
        and (source.answer_key != ANSWER or source.tag_key is None or source.prompt_type not in ("messages", "raw"))
    ]
    if shaped:
        first = shaped[0]
        more = dict.fromkeys(column for reward in view.get("rewards") for column in MORE.get(reward["type"], ()))
        expected = (
            said(
                "the columns '{prompt_key}' (chat messages, as a list or as JSON text), '{tag_key}' (which "
                "reward scores the row), ",
                prompt_key=first.prompt_key,
                tag_key=first.tag_key or "tag",
            )
            + "".join(f"'{column}', " for column in more)
            + said("and '{answer}' (what the reward compares with)", answer=ANSWER)
        )
        tags = [tag for reward in view.get("rewards") for tag in reward["applies_to"] or ()]
        where = (
            said("rows whose tag no reward includes are scored by {fallback}", fallback=FALLBACK)
            if FALLBACK in domains(view)
            else said("each row's tag is one of {tags}", tags=", ".join(tags))
        )
        found = said("'{path}' has another framework's columns", path=first.path)
        yield _columns(expected, found, said("rewrite the data with these columns; {where}", where=where))


def _conversations(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    shaped = [source for source in sources if source.messages_key is not None]
    if shaped:
        yield _columns(
            "one prompt and one response from each row",
            said(
                "'{path}' has conversations in '{messages_key}'",
                path=shaped[0].path,
                messages_key=shaped[0].messages_key,
            ),
            "write one row for each response; prompt_key and response_key name its columns ('instruction' and 'output' "
            "by default)",
        )


def _pairs(view: Writing, sources: Sequence[DataSource]) -> Iterator[Finding]:
    shaped = [source for source in sources if source.prompt_key != "instruction"]
    if shaped:
        yield _columns(
            "the prompt of DPO as text from the column 'instruction'",
            said("'{path}' has it in '{prompt_key}'", path=shaped[0].path, prompt_key=shaped[0].prompt_key),
            "rename the column; chosen and rejected are the responses' text",
        )


def _rewards(view: Writing, kind: str) -> Iterator[Finding]:
    if not view.get("rewards") and kind == "rlvr":
        yield finding("reward-missing", Level.WARNING, "rewards", domain=FALLBACK, data=D)
