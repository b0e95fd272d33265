"""Prompts and expert responses from a database: whole tables, Trinity-RFT's tables of tasks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from rlctl.common.errors import RunError
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.execution import AuxiliaryBuffer
from rlctl.runtime.data.experts import NAMED, ExpertSpec, expert_source
from rlctl.runtime.data.sources import load_source


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with a table of columns, one of tasks as Trinity-RFT writes them, and one of conversations."""
    url, tables = f"sqlite:///{tmp_path}/data.db", sa.MetaData()
    number = [sa.Column("id", sa.Integer, primary_key=True)]
    sums = sa.Table("sums", tables, *number, sa.Column("prompt", sa.Text), sa.Column("answer", sa.Text))
    tasks = sa.Table("tasks", tables, sa.Column("id", sa.Integer, primary_key=True), sa.Column("raw_task", sa.JSON))
    chats = sa.Table("chats", tables, sa.Column("id", sa.Integer, primary_key=True), sa.Column("message_list", sa.JSON))
    engine = sa.create_engine(url)
    tables.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            sa.insert(sums), [{"id": 2, "prompt": "2+2=", "answer": "4"}, {"id": 1, "prompt": "1+1=", "answer": "2"}]
        )
        connection.execute(
            sa.insert(tasks), [{"raw_task": {"question": f"{n}+0=", "answer": str(n)}} for n in range(3)]
        )
        messages = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]
        connection.execute(sa.insert(chats), [{"message_list": messages}])
    return url


def test_a_table_is_read_in_the_order_of_its_key(url: str) -> None:
    rows = load_source(DataSource(path=url, format="sql", subset="sums"), key="data.train[0]")
    assert rows["prompt"][:] == ["1+1=", "2+2="]
    assert rows["answer"][:] == ["2", "4"]


def test_tasks_of_trinity_are_read_as_such(url: str) -> None:
    rows = load_source(DataSource(path=url, format="sql", name="tasks", max_samples=2), key="data.train[0]")
    assert rows.column_names == ["question", "answer"]
    assert rows["question"][:] == ["0+0=", "1+0="]


def test_experts_come_from_a_table_too(url: str) -> None:
    given = AuxiliaryBuffer(path=url, format="sql", settings={"name": "chats"})
    source, key = expert_source(ExpertSpec({NAMED: given}, NAMED, 1))
    assert source.messages_key == "message_list"
    [messages] = load_source(source, key=key)["message_list"][:]
    assert [each["content"] for each in messages] == ["1+1=", "2"]


def test_a_queue_of_another_process_is_refused() -> None:
    with pytest.raises(RunError, match="format is queue, which only"):
        expert_source(ExpertSpec({NAMED: AuxiliaryBuffer(path="x", format="queue")}, NAMED, 1))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"subset": "sum"}, r"has no table 'sum'; its tables are chats, sums, tasks"),
        ({}, r"has several tables; its tables are chats, sums, tasks"),
    ],
)
def test_a_table_that_is_not_there_is_told(url: str, source: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=message) as refused:
        load_source(DataSource(path=url, format="sql", **source), key="data.train[0]")
    assert "data.train[0].subset" in refused.value.hint


def test_a_database_that_is_not_there_is_told() -> None:
    with pytest.raises(RunError, match=r"there is no file /nowhere/data\.db") as refused:
        load_source(DataSource(path="sqlite:////nowhere/data.db", format="sql"), key="data.train[0]")
    assert "data.train[0].path" in refused.value.hint
