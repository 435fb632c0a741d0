"""Creation of the table for memories' embedding vectors, at the start of a service with an embedding model.

It is not part of the migrations, because it needs pgvector. A server without pgvector supports everything else, and one
that gets it later has the table from the next start on.
"""

from sqlalchemy import RowMapping, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from throughline.db.connection.failures import sqlstate
from throughline.db.connection.migrations import locked_connection
from throughline.domain.errors import DatabaseUnusable

_STATE = text("""
    select to_regclass('memory_embeddings') is not null as has_table,
        exists (select from pg_extension where extname = 'vector') as has_extension,
        exists (select from pg_available_extensions where name = 'vector') as is_available,
        current_database() as database, current_setting('server_version_num')::integer / 10000 as version
""")
_CREATE_EXTENSION = text("create extension vector")
_CREATE_TABLE = text("""
    create table memory_embeddings (
        memory_id uuid not null references memories (id) on delete cascade,
        model text not null,
        dimensions integer not null,
        text_version integer not null,
        embedding vector not null,
        created_at timestamptz not null default now(),
        primary key (memory_id, model),
        constraint memory_embeddings_dimensions_check check (dimensions = vector_dims(embedding))
    )
""")
_LIMIT_WAITS = text("set local lock_timeout = '3s'")
_NOT_ALLOWED = "42501"
_OR_NONE = "or leave EMBEDDING_MODEL empty: memories are then found by their words alone."


async def prepare_vectors(url: str, *, may_create: bool) -> None:
    """Create the table for memories' vectors if it is missing; concurrent callers wait for each other.

    Raises DatabaseUnavailable. Raises DatabaseUnusable, with advice, if pgvector is not installed, the service's role
    may not create it, or something is missing and `may_create` is False.
    """
    async with locked_connection(url) as connection:
        state = (await connection.execute(_STATE)).mappings().one()
        if state["has_table"]:
            return
        if not may_create:
            raise DatabaseUnusable(
                "EMBEDDING_MODEL is set, and the table of vectors is missing: run `throughline db upgrade` with the "
                f"same setting, {_OR_NONE}"
            )
        await connection.execute(_LIMIT_WAITS)
        if not state["has_extension"]:
            await _create_extension(connection, state)
        await connection.execute(_CREATE_TABLE)
        await connection.commit()


async def _create_extension(connection: AsyncConnection, state: RowMapping) -> None:
    if not state["is_available"]:
        raise DatabaseUnusable(
            "EMBEDDING_MODEL needs pgvector, which this PostgreSQL server does not have: install it (the package "
            f"postgresql-{state['version']}-pgvector, the image pgvector/pgvector:pg{state['version']}), {_OR_NONE}"
        )
    try:
        await connection.execute(_CREATE_EXTENSION)
    except DBAPIError as error:
        if sqlstate(error) != _NOT_ALLOWED:
            raise
        raise DatabaseUnusable(
            "EMBEDDING_MODEL needs the extension pgvector, which the role of DATABASE_URL may not create: let a "
            f"superuser run `create extension vector` in the database {state['database']!r}, {_OR_NONE}"
        ) from None
