"""Shared definitions of all tables: the metadata that migrations are compared with, and column types."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, MetaData, Numeric, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column


class Base(DeclarativeBase):
    """Base class of the table models. They only describe the schema; statements are SQL in the repositories."""

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
