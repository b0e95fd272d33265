"""Operators on training data: rows are dropped, changed, sorted and cut once, before a run.

    data.train[i] ──▶ operator 1 ──▶ operator 2 ──▶ ... ──▶ priority ──▶ a Parquet file in the cache

The file is named by a hash of the rows, the operators and the code that they call, so it is made again only when one of these
changes. Beside it are the rows in and out of each operator, and some of the rows that each dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as remembered
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import RunError
from rlctl.common.filenames import expanded, is_file
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import replacing, write_whole
from rlctl.config import to_plain
from rlctl.config.sections.data import (
    AlphanumericFilter,
    Data,
    DataOperator,
    DataSource,
    DuplicateFilter,
    ExternalDataOperator,
    FunctionDataOperator,
    LanguageFilter,
    LengthFilter,
    PassRateFilter,
    Priority,
    QualityFilter,
    RepetitionFilter,
    SpecialCharacterFilter,
)
from rlctl.config.sections.execution import DataJuicer
from rlctl.config.sections.rollout import AuxiliaryModel
from rlctl.runtime.data.quality import judge_of, ratings
from rlctl.runtime.data.sources import load_source, require_column, source_name
from rlctl.runtime.juicer.client import CONFIG_PATH, Service, service_of
from rlctl.runtime.remote.files import cache
from rlctl.runtime.user_code import PACKAGE, last_lines, load_object

if TYPE_CHECKING:
    from datasets import Dataset

VERSION = 1
"""Of what operators compute: another one when a result changes, so that cached files of before are not used."""
SHOWN = 3
"""Dropped rows of each operator that are kept to be shown."""
BLOCK = 10_000
"""Rows that are hashed at a time."""


@dataclass
class Row:
    """A row under way, with what operators measured of it."""

    values: dict[str, Any]
    stats: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """What an operator did."""

    name: str
    before: int
    after: int
    dropped: tuple[str, ...] = ()
    """Texts of some of the rows that it dropped."""


@dataclass(frozen=True)
class Prepared:
    """The result for one data set."""

    key: str
    """``data.train[0]``."""
    file: Path
    counts: tuple[Counted, ...]
    digest: str
    """Of the rows, the operators and their code."""
    made: bool
    """Whether it was made now, not found."""

    def __str__(self) -> str:
        steps = ", ".join(f"{each.name} {each.before} -> {each.after}" for each in self.counts)
        return f"{self.key}: {steps} rows ({'made' if self.made else 'found'} {self.file})"


Tokens = Callable[[str], int]
"""The number of tokens of a text."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """What operators do, and with whom."""

    data: Data
    tokenizer: str
    """Whose tokens are counted."""
    service: DataJuicer | None
    """That runs the operators of Data-Juicer."""
    auxiliary: Mapping[str, AuxiliaryModel]
    """By name, the models that rate texts."""


def prepare(spec: OperatorSpec, tokens: Tokens) -> tuple[Data, list[Prepared]]:
    """Run operators on the training data.

    Args:
        spec: of a stage.
        tokens: of the model's tokenizer.

    Returns:
        The section ``data`` whose training sources are the results, and what was done; the same if there are no operators.

    Raises:
        RunError: a file cannot be read, an operator fails, or no row is left.
    """
    data = spec.data
    if not data.operators and data.priority is None:
        return data, []
    if data.custom is not None:
        raise RunError(
            "data.operators and data.custom are both set", hint="let the class of data.custom filter its rows"
        )
    done = [_prepared(spec, index, tokens) for index in range(len(data.train))]
    train = tuple(
        replace(
            source,
            path=str(each.file),
            name=source_name(source),
            format="parquet",
            split=None,
            subset=None,
            max_samples=None,
        )
        for source, each in zip(data.train, done, strict=True)
    )
    return replace(data, train=train), done


def tokens_by(tokenizer: Any) -> Tokens:
    """Counts the tokens of a text, without those that a tokenizer adds."""
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def with_operators(inputs: dict[str, Any], done: Sequence[Prepared]) -> dict[str, Any]:
    """What a checkpoint keeps of a stage's inputs, with that of prepared data: its change is one of the training data."""
    if not done:
        return inputs
    found = {f"data.operators of {each.key}": {"": {"sha256": each.digest}} for each in done}
    return {**inputs, "data": {**inputs["data"], **found}}


def _prepared(spec: OperatorSpec, index: int, tokens: Tokens) -> Prepared:
    source, key = spec.data.train[index], f"data.train[{index}]"
    rows = _rows(spec.data, index, key)
    digest = _digest(spec, source, rows)
    folder = cache() / "operators"
    file, record = folder / f"{digest}.parquet", folder / f"{digest}.json"
    made = not (file.is_file() and record.is_file())
    if made:
        kept, counts = _operated(spec, source, rows, tokens, key)
        folder.mkdir(parents=True, exist_ok=True)
        _write(_table(kept, rows), file)
        write_whole(record, json.dumps([vars(each) for each in counts], ensure_ascii=False))
    counts = [
        Counted(**{**each, "dropped": tuple(each["dropped"])})
        for each in json.loads(record.read_text(encoding="utf-8"))
    ]
    if index == 0 and spec.data.operators_output:
        _copy(file, Path(spec.data.operators_output).expanduser())
    return Prepared(key, file, tuple(counts), digest, made)


def _rows(data: Data, index: int, key: str) -> Dataset:
    """The rows of a source, or of the files that stand for it."""
    source, files = data.train[index], data.operators_input
    if index or not files:
        return load_source(source, key=key)
    from datasets import concatenate_datasets

    parts = [
        load_source(replace(source, path=file, format="auto", split=None), key=f"data.operators_input[{place}]")
        for place, file in enumerate(files)
    ]
    return concatenate_datasets(parts)


def _digest(spec: OperatorSpec, source: DataSource, rows: Dataset) -> str:
    data = spec.data
    files = [path for path in map(_file_of, data.operators) if not path.startswith(PACKAGE)]
    code = {path: hashlib.sha256(file.read_bytes()).hexdigest() for path in files if is_file(file := expanded(path))}
    counts_tokens = any(isinstance(each, LengthFilter) and each.unit == "tokens" for each in data.operators)
    about = {
        "version": VERSION,
        "operators": [{"type": each.choice, **to_plain(each)} for each in data.operators],
        "priority": None if data.priority is None else to_plain(data.priority),
        "prompt_key": source.prompt_key,
        "code": code,
        "tokenizer": spec.tokenizer if counts_tokens else None,
    }
    if judges := _judges(spec):
        about["judges"] = judges
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    digest.update(json.dumps(rows.column_names).encode())
    table = rows.with_format("arrow")
    for start in range(0, rows.num_rows, BLOCK):
        for row in table[start : start + BLOCK].to_pylist():
            digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _file_of(operator: DataOperator) -> str:
    """The file that says what an operator does; empty for one that the config describes whole."""
    if isinstance(operator, FunctionDataOperator):
        return operator.path
    return str(operator.args.get(CONFIG_PATH) or "") if isinstance(operator, ExternalDataOperator) else ""


def _judges(spec: OperatorSpec) -> list[tuple[str, str | None]]:
    """Path and address of the model that each operator asks."""
    named = [each.auxiliary_model for each in spec.data.operators if isinstance(each, QualityFilter)]
    models = spec.auxiliary
    return [(models[name].path, models[name].base_url) for name in named if name in models]


def _operated(
    spec: OperatorSpec, source: DataSource, rows: Dataset, tokens: Tokens, key: str
) -> tuple[list[Row], list[Counted]]:
    """The rows that are left, and the counts."""
    kept, counts = [Row(dict(row)) for row in rows], list[Counted]()
    for place, operator in enumerate(spec.data.operators):
        where, before = f"data.operators[{place}]", kept
        column = operator.column or (source.prompt_key if not isinstance(operator, PassRateFilter) else "pass_rate")
        if not isinstance(operator, FunctionDataOperator):
            require_column(rows, column, source=source, key=f"{where}.column")
        name = operator.kind if isinstance(operator, ExternalDataOperator) else operator.choice
        if isinstance(operator, ExternalDataOperator):
            kept = _by_data_juicer(operator, kept, column, service_of(spec.service, where), where)
        elif isinstance(operator, QualityFilter):
            kept = _rated(operator, kept, column, spec.auxiliary, where)
        else:
            kept = _apply(operator, kept, column, tokens, where)
        left = {id(row) for row in kept}
        gone = [row for row in before if id(row) not in left] if not isinstance(operator, FunctionDataOperator) else []
        shown = tuple(text_of(row.values.get(source.prompt_key))[:500] for row in gone[:SHOWN])
        counts.append(Counted(name, len(before), len(kept), shown))
        if not kept:
            raise RunError(
                said("no row of {key} is left after {where} ({name})", key=key, where=where, name=name),
                hint="loosen its bounds or remove it",
            )
    if spec.data.priority is not None:
        before, kept = kept, prioritized(kept, spec.data.priority, source.prompt_key)
        counts.append(Counted("priority", len(before), len(kept)))
    return kept, counts


def _apply(operator: DataOperator, rows: list[Row], column: str, tokens: Tokens, where: str) -> list[Row]:
    if isinstance(operator, FunctionDataOperator):
        return _function(operator, rows, where)
    if isinstance(operator, DuplicateFilter):
        return _first_ones(operator, rows, column)
    if isinstance(operator, PassRateFilter):
        return [row for row in rows if operator.min <= _pass_rate(row, column, where) <= operator.max]
    measure, name, low, high = _measured(operator, tokens)
    for row in rows:
        row.stats[name] = measure(text_of(row.values.get(column)))
    return [row for row in rows if low <= row.stats[name] <= high]


def _rated(
    operator: QualityFilter, rows: list[Row], column: str, auxiliary: Mapping[str, AuxiliaryModel], where: str
) -> list[Row]:
    texts = [text_of(row.values.get(column)) for row in rows]
    found = ratings(operator, texts, judge_of(auxiliary, operator, where), where)
    for row, rating in zip(rows, found, strict=True):
        row.stats["llm_quality_score"] = rating
    return [row for row, rating in zip(rows, found, strict=True) if operator.min <= rating <= operator.max]


def _measured(operator: DataOperator, tokens: Tokens) -> tuple[Callable[[str], float], str, float, float]:
    """What a filter measures of a text, the name of the number, and its bounds."""
    match operator:
        case LengthFilter(unit="tokens"):
            return tokens, "tokens", operator.min, math.inf if operator.max is None else operator.max
        case LengthFilter():
            return len, "text_len", operator.min, math.inf if operator.max is None else operator.max
        case LanguageFilter():
            scripts = frozenset(name.upper() for name in operator.scripts)
            return lambda text: script_share(text, scripts), "script_share", operator.min_share, 1.0
        case AlphanumericFilter():
            high = math.inf if operator.max_ratio is None else operator.max_ratio
            return alphanumeric_share, "alnum_ratio", operator.min_ratio, high
        case SpecialCharacterFilter():
            return special_share, "special_char_ratio", operator.min_ratio, operator.max_ratio
        case RepetitionFilter():
            return (
                lambda text: repeated_share(text, operator.rep_len),
                "char_rep_ratio",
                operator.min_ratio,
                operator.max_ratio,
            )
    raise AssertionError(f"{operator.choice} is refused before a run")


def text_of(value: Any) -> str:
    """The text of a cell: itself, or of chat messages their contents, one a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        contents = [each.get("content", "") for each in value if isinstance(each, Mapping)]
        return "\n".join(text_of(content) if not isinstance(content, str) else content for content in contents)
    if isinstance(value, Mapping):
        return str(value.get("text", ""))
    return "" if value is None else str(value)


def script_share(text: str, scripts: frozenset[str]) -> float:
    """The share of the letters of a text that are of some writing systems; 0 of a text without letters."""
    counts = Counter(_script(character) for character in text if character.isalpha())
    total = sum(counts.values())
    return sum(counts[name] for name in scripts) / total if total else 0.0


@remembered
def _script(character: str) -> str:
    """The writing system of a letter: the first word of its Unicode name."""
    return unicodedata.name(character, "").partition(" ")[0].partition("-")[0]


def alphanumeric_share(text: str) -> float:
    """The share of letters and digits; 0 of an empty text."""
    return sum(map(str.isalnum, text)) / len(text) if text else 0.0


def special_share(text: str) -> float:
    """The share of characters that are neither letters nor marks on letters; 0 of an empty text."""
    return sum(unicodedata.category(each)[0] not in "LM" for each in text) / len(text) if text else 0.0


def repeated_share(text: str, length: int) -> float:
    """How much of a text the commonest of its repeated sequences of ``length`` characters are.

    As many sequences as the root of the number of different ones count, of those that occur more than once.
    Source: the filter of the ROOTS corpus, arXiv:2303.03915, appendix on character repetition.
    """
    counts = Counter(text[start : start + length] for start in range(len(text) - length + 1))
    if not counts:
        return 0.0
    found = sorted(counts.values(), reverse=True)
    most = min(math.isqrt(len(found)), sum(count > 1 for count in found))
    return sum(found[:most]) / sum(found)


_NO_LETTERS = re.compile(rf"\s+|\d+|[{re.escape(string.punctuation)}]")


def _first_ones(operator: DuplicateFilter, rows: list[Row], column: str) -> list[Row]:
    seen: set[str] = set()
    kept = []
    for row in rows:
        text = text_of(row.values.get(column))
        text = text.lower() if operator.lowercase else text
        text = (_NO_LETTERS.sub("", text) if operator.ignore_non_character else text).strip()
        if text not in seen:
            seen.add(text)
            kept.append(row)
    return kept


def _pass_rate(row: Row, column: str, where: str) -> float:
    value = row.values.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RunError(
            said(
                "column {column!r} has the value {value!r}; {where} expects a pass rate from 0 to 1",
                column=column,
                value=value,
                where=where,
            ),
            hint=said("set {where}.column to the column with pass rates", where=where),
        )
    row.stats["difficulty"] = 1.0 - value
    return float(value)


def _function(operator: FunctionDataOperator, rows: list[Row], where: str) -> list[Row]:
    function = load_object(operator.path, operator.function, where=where)
    what = f"{operator.function} of {operator.path} ({where})"
    try:
        found = function([{**row.values, "stats": dict(row.stats)} for row in rows], **operator.args)
    except (Exception, SystemExit) as error:  # whatever the user's function raises is shown to the user
        raise RunError(
            said("{what} fails:\n{error}", what=what, error=last_lines(error)), hint="correct the function or its args"
        ) from error
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise RunError(
            said(
                "{what} returned {kind}; expected a list of rows, each a mapping of columns",
                what=what,
                kind=type(found).__name__,
            )
        )
    return [
        Row({name: value for name, value in row.items() if name != "stats"}, dict(row.get("stats") or {}))
        for row in found
    ]


TEXT = "rlctl_text"
"""The column that Data-Juicer's operators read: the text of a cell, which may be chat messages."""


def _by_data_juicer(
    operator: ExternalDataOperator, rows: list[Row], column: str, service: Service, where: str
) -> list[Row]:
    """Rows that an operator of Data-Juicer leaves, the same objects if they are those that it was given."""
    several = operator.kind == "data_juicer"
    own = several or "text_key" in operator.args  # then it reads the columns as they are
    texts = [text_of(row.values.get(column)) for row in rows]
    sent = [{**row.values} if own else {**row.values, TEXT: text} for row, text in zip(rows, texts, strict=True)]
    args = dict(operator.args) if own else {**operator.args, "text_key": TEXT}
    asked = args if several else {"operators": [{operator.kind: args}]}
    found = service.process(asked, sent, where=f"{where} ({operator.kind})")
    kept: list[Row] = []
    used: set[int | None] = set()
    for values, place, statistics in zip(found.rows, found.places, found.statistics, strict=True):
        before = None if place is None else rows[place]
        text = values.pop(TEXT, None)
        if text is not None and (before is None or text != texts[place or 0]):
            if before is not None and not isinstance(before.values.get(column), str):
                raise RunError(
                    said(
                        "{where} ({kind}) changes the text of column {column!r}, which holds chat messages",
                        where=where,
                        kind=operator.kind,
                        column=column,
                    ),
                    hint="use operators that only filter, or a column of text",
                )
            values[column] = text
        if before is None or place in used:  # an operator made it, or made several of one
            row = Row(values, dict(before.stats) if before else {})
        else:
            row = before
            row.values = values
            used.add(place)
        row.stats.update(statistics)
        kept.append(row)
    return kept


QUALITY: Mapping[str, bool] = {
    "alnum_ratio": True,
    "char_rep_ratio": False,
    "flagged_words_ratio": False,
    "special_char_ratio": False,
    "stopwords_ratio": True,
    "word_rep_ratio": False,
    "llm_quality_score": True,
}
"""Shares that say how good a text is, and whether more is better; also those that only Data-Juicer measures."""
NGRAM = 5


def prioritized(rows: list[Row], chosen: Priority, column: str) -> list[Row]:
    """Rows by priority, highest first and equal ones in their order; the first ``keep`` of them."""
    weights = chosen.weights
    diversity = (
        diversities([text_of(row.values.get(column)) for row in rows]) if weights.diversity else [0.0] * len(rows)
    )
    scores = [
        weights.usage_frequency * float(row.values.get("consumed_cnt") or 0)
        + weights.quality * _quality(row)
        + weights.difficulty * row.stats.get("difficulty", 0.5)
        + weights.diversity * each
        for row, each in zip(rows, diversity, strict=True)
    ]
    order = sorted(range(len(rows)), key=lambda place: -scores[place])
    return [rows[place] for place in order[: chosen.keep]]


def _quality(row: Row) -> float:
    found = [row.stats[name] if more else 1.0 - row.stats[name] for name, more in QUALITY.items() if name in row.stats]
    return sum(found) / len(found) if found else 0.5


def diversities(texts: Sequence[str]) -> list[float]:
    """How rare each text is among all: the mean, over its different sequences of 5 characters, of 1 over the texts that
    have the sequence. 1 of a text that shares none, 1/n of one that occurs n times and is all there is."""
    grams = [{text[start : start + NGRAM] for start in range(max(1, len(text) - NGRAM + 1))} for text in texts]
    counts = Counter(gram for each in grams for gram in each)
    return [sum(1 / counts[gram] for gram in sorted(each)) / len(each) for each in grams]


def _table(kept: list[Row], rows: Dataset) -> Dataset:
    """The rows that are left as a table, of the columns' types where they have those of before."""
    from datasets import Dataset

    values = [row.values for row in kept]
    same = all(list(each) == rows.column_names for each in values)
    return Dataset.from_list(values, features=rows.features if same else None)


def _write(rows: Dataset, file: Path) -> None:
    """Write rows as Parquet, whole or not at all."""
    import pyarrow.parquet

    with replacing(file) as partial:
        pyarrow.parquet.write_table(rows.data.table, partial)


def _read(file: Path, count: int | None = None) -> list[dict[str, Any]]:
    import pyarrow.parquet

    found: list[dict[str, Any]] = pyarrow.parquet.read_table(file).slice(0, count).to_pylist()
    return found


def _copy(file: Path, folder: Path) -> None:
    """Write a result as JSON lines.

    Raises:
        RunError: there is a file with something else.
    """
    output = folder / "output.jsonl"
    content = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in _read(file))
    if output.exists():
        if output.read_text(encoding="utf-8", errors="replace") == content:
            return
        raise RunError(
            said(
                "data.operators_output: {output} already exists, and its rows differ from what the operators give now",
                output=output,
            ),
            hint="remove it, or name another folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(output, content)


def shown_rows(file: Path, column: str, count: int = SHOWN) -> Iterator[str]:
    """The texts of the first rows of a result."""
    for row in _read(file, count):
        yield text_of(row.get(column))[:500]
