"""The tables of a buffer in a database, their version, and the connection to them.

rlctl_buffers    one row a buffer: its name (``buffer.label``) and the version of the tables
rlctl_groups     one row a group of responses; ``available_at`` is null where it is taken and does not come back
rlctl_claims     who took which group, in which of its takes, and whether a checkpoint remembers it
rlctl_members    who writes and reads, until when each is surely alive, and which writers have ended
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlctl.common import packages
from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
except ImportError as _error:  # pragma: no cover - it comes with rlctl[runtime]
    raise MissingDependency(
        "a buffer in a database needs SQLAlchemy, which is not installed", hint=packages.install(packages.RUNTIME)
    ) from _error

VERSION = 1
"""Of the tables; one more whenever a column changes."""
ATTEMPTS, PAUSE = 5, 0.5
"""How often a transaction is tried that others or a lost connection broke, and the seconds between."""
DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
"""What a URL without a driver is read as, and the package that brings the driver."""

METADATA = sa.MetaData()
NAME = sa.String(255)
SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up plain integers only
BUFFERS = sa.Table(
    "rlctl_buffers",
    METADATA,
    sa.Column("label", NAME, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
)
GROUPS = sa.Table(
    "rlctl_groups",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("label", NAME, nullable=False),
    sa.Column("writer", NAME, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("responses", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("priority", sa.Double, nullable=False),
    sa.Column("uses", sa.Integer, nullable=False),
    sa.Column("available_at", sa.Double),
    sa.Column("content", sa.LargeBinary(2**32 - 1), nullable=False),
    sa.UniqueConstraint("label", "writer", "number"),
    sa.Index("rlctl_groups_order", "label", "available_at", "priority", "id"),
)
CLAIMS = sa.Table(
    "rlctl_claims",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("label", NAME, nullable=False),
    sa.Column("reader", NAME, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("group_id", sa.BigInteger, nullable=False),
    sa.Column("acknowledged", sa.Boolean, nullable=False),
    sa.Index("rlctl_claims_order", "label", "reader", "number"),
)
MEMBERS = sa.Table(
    "rlctl_members",
    METADATA,
    sa.Column("label", NAME, primary_key=True),
    sa.Column("name", NAME, primary_key=True),
    sa.Column("writes", sa.Boolean, nullable=False),
    sa.Column("ended", sa.Boolean, nullable=False),
    sa.Column("wanted", sa.Integer, nullable=False),
    sa.Column("alive_until", sa.Double, nullable=False),
)

WEIGHTS = sa.Table(
    "rlctl_weights",
    METADATA,
    sa.Column("label", NAME, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
)


class Database:
    """A connection to the tables, which are made where they are not there yet.

    Raises:
        RunError: the URL is none, the database cannot be reached, or its tables are another release's.
        MissingDependency: its driver is not installed.
    """

    def __init__(self, url: str, label: str) -> None:
        self.label = label
        self.engine = connect(url)
        self.shown = self.engine.url.render_as_string(hide_password=True)
        for left in reversed(range(ATTEMPTS)):
            try:
                self._prepare()
                return
            except (exc.IntegrityError, exc.ProgrammingError, exc.OperationalError) as error:
                if not left:
                    raise unusable(self.shown, error) from error
                time.sleep(PAUSE)  # another process may be making the tables at the same moment

    def _prepare(self) -> None:
        with self.begin() as connection:
            METADATA.create_all(connection)
            found = connection.scalar(sa.select(BUFFERS.c.version).where(BUFFERS.c.label == self.label))
            if found is None:
                connection.execute(sa.insert(BUFFERS).values(label=self.label, version=VERSION))
            elif found != VERSION:
                raise RunError(
                    said(
                        "the buffer {label} in {shown} has tables of version {found}; this release has {version}",
                        label=self.label,
                        shown=self.shown,
                        found=found,
                        version=VERSION,
                    ),
                    hint="use the release of rlctl that made it, or another buffer.label",
                )

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction. On SQLite it has the right to write from its start, so that nobody reads what another will change."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def now(self, connection: sa.Connection) -> float:
        """Seconds by the clock that all members share: the server's, or this machine's for SQLite."""
        if self.engine.dialect.name == "postgresql":
            return float(connection.scalar(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))))  # type: ignore[arg-type]
        return time.time()

    def close(self) -> None:
        """Leave the database."""
        self.engine.dispose()


def connect(url: str) -> sa.Engine:
    """An engine for a URL; it does not connect yet.

    Raises:
        RunError: the URL is none.
        MissingDependency: the driver is not installed.
    """
    scheme, separator, rest = url.partition("://")
    try:
        engine = sa.create_engine(f"{DRIVERS.get(scheme, scheme)}{separator}{rest}", pool_pre_ping=True)
    except ImportError as error:
        extra = packages.install("postgresql") if scheme.startswith("postgres") else f"pip install {error.name}"
        raise MissingDependency(
            said("a database {scheme}:// needs the driver {name}", scheme=scheme, name=error.name), hint=extra
        ) from error
    except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
        raise RunError(
            said("this is not a database URL: it starts with {scheme!r}", scheme=scheme[:20]),
            hint="write it as sqlite:///buffer.db or postgresql://user@host/name",
        ) from error
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine)
    return engine


def _prepare_sqlite(engine: sa.Engine) -> None:
    file = engine.url.database
    if file not in (None, "", ":memory:"):
        with suppress(OSError):  # connecting tells what is wrong with it
            Path(str(file)).parent.mkdir(parents=True, exist_ok=True)

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 60000")
        connection.execute("PRAGMA journal_mode = WAL")

    @sa.event.listens_for(engine, "begin")
    def _(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def unusable(shown: str, error: Exception) -> RunError:
    """The error of a database that cannot be used, with the first line of its reason and no password."""
    reason = str(getattr(error, "orig", None) or error).strip().splitlines()
    return RunError(
        said(
            "the database {shown} cannot be used: {value}",
            shown=shown,
            value=reason[0] if reason else type(error).__name__,
        ),
        hint="check buffer.url, and that the server is running and allows this user to create tables",
    )
