"""Rows of a table in a database, as a table of rows: prompts, and expert responses.

A table whose rows hold a task as JSON in the column ``raw_task``, as Trinity-RFT writes them, is read as those tasks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import RunError, nearest_and
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import DataSource

if TYPE_CHECKING:
    from datasets import Dataset

TASK = "raw_task"
"""The column of a whole task."""


def load_table(source: DataSource, *, key: str) -> Dataset:
    """The rows of a table, in the order of its primary key.

    The table is the one that ``subset`` names, else the one of the source's name, else the only one.

    Args:
        source: its path is the URL of the database, as SQLAlchemy writes it.
        key: where it stands in the config, for messages.

    Raises:
        RunError: the database cannot be used, or has no such table.
        MissingDependency: SQLAlchemy or the driver is not installed.
    """
    import sqlalchemy as sa
    from datasets import Dataset

    from rlctl.runtime.buffers.tables import connect, unusable

    file = sa.make_url(source.path).database if source.path.startswith("sqlite") else None
    if file is not None and not Path(file).is_file():
        raise RunError(
            said("there is no file {file}", file=file),
            hint=said(
                "set {key}.path; write three slashes before a relative path, four before an absolute one", key=key
            ),
        )
    engine = connect(source.path)
    shown = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            table = _table(sa.inspect(connection).get_table_names(), source, shown, key)
            found = sa.Table(table, sa.MetaData(), autoload_with=connection)
            chosen = sa.select(found).order_by(*found.primary_key.columns)
            rows = [_row(dict(row._mapping), table) for row in connection.execute(chosen)]
    except sa.exc.SQLAlchemyError as error:
        problem = unusable(shown, error)
        raise RunError(problem.message, hint=said("correct {key}.path", key=key)) from error
    finally:
        engine.dispose()
    if not rows:
        raise RunError(
            said("the table {table} of {shown} has no rows", table=table, shown=shown),
            hint=said("{key}.path must contain at least one row", key=key),
        )
    return Dataset.from_list(rows)


def _table(tables: list[str], source: DataSource, shown: str, key: str) -> str:
    tables = sorted(table for table in tables if not table.startswith("rlctl_"))
    wanted = source.subset or (source.name if source.name in tables or len(tables) != 1 else tables[0])
    if wanted in tables:
        return str(wanted)
    what = said("no table {wanted!r}", wanted=wanted) if wanted else "several tables" if tables else "no table"
    raise RunError(
        said("{shown} has {what}; its tables are {value}", shown=shown, what=what, value=", ".join(tables) or "none"),
        hint=nearest_and(wanted or "", tables, said("set {key}.subset to the table's name", key=key)),
    )


def _row(row: dict[str, Any], table: str) -> dict[str, Any]:
    if TASK not in row:
        return {name: _value(value) for name, value in row.items()}
    task = _value(row[TASK])
    if not isinstance(task, dict):
        raise RunError(
            said(
                "a row of the table {table} contains {kind} in {task}; expected an object",
                table=table,
                kind=type(task).__name__,
                task=TASK,
            )
        )
    return task


def _value(value: Any) -> Any:
    """A value; text that is a JSON object or list is read, as not every database has a type for it."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
