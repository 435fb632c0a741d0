"""Shared definitions of all tables: the metadata that migrations are compared with, and column types."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar
from uuid import UUID

from sqlalchemy import DDL, BigInteger, Connection, DateTime, MetaData, Numeric, Table, Text, Uuid, event, text
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.schema import ExecutableDDLElement

from throughline.db.tables.partitions import Partitioned


@dataclass(frozen=True, slots=True)
class Function:
    """A function of PostgreSQL: its name with its parameters, and what stands behind these in `create function`."""

    signature: str
    definition: str

    def statements(self) -> tuple[str, ...]:
        """Return the statements that create it."""
        return (f"create function {self.signature} {self.definition}",)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger and its function, which have one name. `event` is such as `after insert on runs for each row`.

    `body` is what the function does in PL/pgSQL, up to its return.
    """

    name: str
    event: str
    body: str

    @property
    def signature(self) -> str:
        """The function's name with its parameters."""
        return f"{self.name}()"

    def statements(self) -> tuple[str, ...]:
        """Return the statements that create both."""
        definition = f"returns trigger language plpgsql as $$\nbegin\n{self.body.strip()}\nend\n$$"
        return (
            *Function(self.signature, definition).statements(),
            f"create trigger {self.name} {self.event} execute function {self.signature}",
        )


class Base(DeclarativeBase):
    """Base class of the table models. They only describe the schema; statements are SQL in the repositories.

    `functions` are created after the table and dropped after it; so are the first partitions of a table with
    `partitions`. Alembic does not compare them.
    """

    functions: ClassVar[tuple[Function | Trigger, ...]] = ()
    partitions: ClassVar[Partitioned | None] = None

    def __init_subclass__(cls, **options: object) -> None:
        """Map the class, and let its partitions and functions be created and dropped with its table."""
        super().__init_subclass__(**options)
        if cls.partitions is not None:
            event.listen(cls.__table__, "after_create", _first_partitions(cls.partitions))
        for one in cls.functions:
            for statement in one.statements():
                event.listen(cls.__table__, "after_create", _ddl(statement))
            event.listen(cls.__table__, "after_drop", _ddl(f"drop function {one.signature}"))

    metadata = MetaData(
        naming_convention={
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
            "pk": "%(table_name)s_pkey",
            "fk": "%(table_name)s_%(column_0_name)s_fkey",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "ck": "%(table_name)s_%(constraint_name)s_check",
        }
    )


Key = Annotated[UUID, mapped_column(Uuid, primary_key=True)]
Id = Annotated[UUID, mapped_column(Uuid)]
String = Annotated[str, mapped_column(Text)]
EmptyString = Annotated[str, mapped_column(Text, server_default=text("''"))]
Zero = Annotated[int, mapped_column(server_default=text("0"))]
BigZero = Annotated[int, mapped_column(BigInteger, server_default=text("0"))]
No = Annotated[bool, mapped_column(server_default=text("false"))]
Json = Annotated[object, mapped_column(JSON)]
"""JSON kept exactly as written, including key order. The database never searches in it."""

EmptyObject = Annotated[dict[str, object], mapped_column(JSONB, server_default=text("'{}'::jsonb"))]
EmptyList = Annotated[list[object], mapped_column(JSONB, server_default=text("'[]'::jsonb"))]
Time = Annotated[datetime, mapped_column(DateTime(timezone=True))]
Dollars = Annotated[Decimal, mapped_column(Numeric)]
Now = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=text("now()"))]


def vacuumed(rows: int, *, share: float = 0.02, toast: bool = False, **others: object) -> dict[str, object]:
    """Return storage parameters of a table: autovacuum runs after `rows` plus `share` of the rows have changed.

    PostgreSQL's default is a fifth of the rows. With `toast` the TOAST table is vacuumed after 1,000 rows plus the same
    share. `others` are further parameters.
    """
    settings = {"autovacuum_vacuum_scale_factor": share, "autovacuum_vacuum_threshold": rows}
    of_toast = {"toast.autovacuum_vacuum_scale_factor": share, "toast.autovacuum_vacuum_threshold": 1_000}
    return {**others, **settings, **(of_toast if toast else {})}


def one_of(column: str, values: tuple[str, ...]) -> str:
    """Return the condition of a CHECK constraint: the column has one of these values."""
    return f"{column} in ({', '.join(repr(value) for value in values)})"


def _first_partitions(partitioned: Partitioned) -> Callable[..., None]:
    """Return the function that SQLAlchemy calls after it has created the table."""

    def create(_table: Table, connection: Connection, **_options: object) -> None:
        now = connection.execute(text("select now()")).scalar_one()
        for statement in partitioned.create_first(now):
            connection.exec_driver_sql(statement)

    return create


def _ddl(statement: str) -> ExecutableDDLElement:
    ddl: ExecutableDDLElement = DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]  # as SQLAlchemy has it
    return ddl
