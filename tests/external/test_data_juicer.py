"""Operators of the real Data-Juicer, on a small file and on responses, by a service that is started and one that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runtime.data.operators import prepare
from rlctl.runtime.experience.operators import Operators
from rlctl.runtime.juicer import client
from rlctl.runtime.remote import files
from rlctl.runtime.specs.data import operator_spec
from tests.external.environments import python_of, served
from tests.runtime.experience.test_operators import answered

pytestmark = pytest.mark.external
TEXTS = ["What is 12 + 30?", "What is 12 + 30?", "Hi", "ha ha ha ha ha", "Tell me a story of a wolf."]
LENGTH: dict[str, Any] = {"type": "external", "kind": "text_length_filter", "args": {"min_len": 5, "max_len": 20}}
DUPLICATES: dict[str, Any] = {"type": "external", "kind": "document_deduplicator", "args": {"lowercase": True}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def started() -> Iterator[dict[str, Any]]:
    """A service of this process, at a port that is free."""
    yield {"auto_start": True, "python": str(python_of("data-juicer")), "port": client._free_port()}
    client._started.cache_clear()


def config_of(tmp_path: Path, service: dict[str, Any] | None, operators: list[Any], **data: Any) -> Config:
    rows = [{"prompt": text, "answer": "42", "extra": {"n": number}} for number, text in enumerate(TEXTS)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = {"train": [{"path": str(tmp_path / "train.jsonl")}], "operators": operators, **data}
    return config_from({"data": section, "service": {"data_juicer": service}})


def left(config: Config) -> list[dict[str, Any]]:
    import pyarrow.parquet

    changed, _ = prepare(operator_spec(config), len)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(changed.train[0].path).to_pylist()
    return rows


def test_rows_are_those_that_the_same_filters_of_rlctl_leave(tmp_path: Path, started: dict[str, Any]) -> None:
    """By two operators of a service that the run starts; columns come back as they were, and counts are of each operator."""
    config = config_of(tmp_path, started, [LENGTH, DUPLICATES])
    own = config_of(
        tmp_path, None, [{"type": "length", "min": 5, "max": 20}, {"type": "duplicates", "lowercase": True}]
    )
    rows = left(config)
    assert rows == left(own)
    assert [row["extra"] for row in rows] == [{"n": 0}, {"n": 3}]
    assert client.service_of(config.service.data_juicer, "data.operators[0]").url.endswith(f":{started['port']}")
    other = config_of(tmp_path, started, [{**LENGTH, "column": "answer", "args": {"min_len": 2}}])
    assert len(left(other)) == len(TEXTS), "all answers are 2 long"
    _, [done] = prepare(operator_spec(config), len)
    told = [(each.name, each.before, each.after, each.dropped) for each in done.counts]
    assert told == [
        ("text_length_filter", 5, 3, ("Hi", TEXTS[4])),
        ("document_deduplicator", 3, 2, (TEXTS[1],)),
    ]
    assert not done.made, "the result is found again"


def test_a_file_of_data_juicers_runs_its_operators_on_the_rows(
    tmp_path: Path, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Trinity's ``task_pipeline.config_path``: the file names the column, and its own dataset is not read."""
    monkeypatch.chdir(tmp_path)
    recipe = Path("process.yaml")
    head = "project_name: filter\ndataset_path: /no/such/file.jsonl\nexport_path: made.jsonl\ntext_keys: prompt\nprocess:\n"
    length, duplicates = (
        "  - text_length_filter: {min_len: 5, max_len: 20}\n",
        "  - document_deduplicator: {lowercase: true}\n",
    )
    recipe.write_text(head + length + duplicates)
    of_file = config_of(
        tmp_path, started, [{"type": "external", "kind": "data_juicer", "args": {"config_path": str(recipe)}}]
    )
    rows = left(of_file)
    assert rows == left(config_of(tmp_path, started, [LENGTH, DUPLICATES]))
    assert [row["extra"] for row in rows] == [{"n": 0}, {"n": 3}]
    assert not list(tmp_path.rglob("made*")), "the run has the rows; nothing is exported"
    recipe.write_text(head + length)
    assert len(left(of_file)) == 3, "the file has changed, so what was made with the old one is not used"


def test_a_mapper_changes_text_and_what_is_measured_counts_for_priority(
    tmp_path: Path, started: dict[str, Any]
) -> None:
    mapper = {"type": "external", "kind": "punctuation_normalization_mapper"}
    measured = {"type": "external", "kind": "alphanumeric_filter", "args": {"min_ratio": 0.0}}
    weights = {"difficulty": 0.0, "diversity": 0.0, "usage_frequency": 0.0, "quality": 1.0}
    config = config_of(tmp_path, started, [mapper, measured], priority={"weights": weights, "keep": 2})
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"prompt": text}) + "\n" for text in ("?!?!?a", "abcd。", "a b c d"))
    )
    assert [row["prompt"] for row in left(config)] == ["abcd.", "a b c d"]
    _, [done] = prepare(operator_spec(config), len)
    assert done.counts[0].dropped == (), "a row that is changed stays"


def test_responses_are_dropped_and_measured(started: dict[str, Any]) -> None:
    """As Trinity's operator data_juicer, over a field of its experiences."""
    operators = [{"text_length_filter": {"text_key": "response_text", "min_len": 4, "max_len": 100}}]
    config = config_from(
        {
            "service": {"data_juicer": started},
            "algorithm": {
                "experience_operators": [{"type": "external", "kind": "data_juicer", "args": {"operators": operators}}]
            },
        }
    )
    chosen = Operators(
        config.algorithm.experience_operators,
        texts=lambda groups: [["long enough", *["no"] * (len(item.responses) - 1)] for item in groups],
        service=config.service.data_juicer,
    )
    before = answered()
    kept = chosen.applied(before)
    assert [item.rewards for item in kept] == [item.rewards[:1] for item in before]
    assert all(item.responses[0].info["text_len"] == len("long enough") for item in kept)
    counts = {"in": sum(len(item.responses) for item in before), "out": len(before)}
    assert chosen.metrics() == {f"operator/1_external/{name}": float(count) for name, count in counts.items()}


def test_a_service_that_runs_is_used_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    server = Path(client.__file__).with_name("server.py")
    python_of("data-juicer")
    with served("data-juicer", server, tmp_path / "log", "--port") as port:
        url = f"http://127.0.0.1:{port}"
        assert len(left(config_of(tmp_path, {"url": url}, [LENGTH]))) == 3
        with pytest.raises(RunError, match=r"data.operators\[0\] \(no_such_filter\): Data-Juicer at .* answered"):
            left(config_of(tmp_path, {"url": url}, [{"type": "external", "kind": "no_such_filter"}]))
    with pytest.raises(RunError, match="cannot be reached"):
        left(config_of(tmp_path, {"url": url}, [LENGTH, DUPLICATES]))
