"""Embedding vectors of memories. The table exists only if an embedding model is set.

A search uses a vector only if its model and dimensions are those of the request and its text version is the memory's.
"""

from collections.abc import Sequence

from sqlalchemy import RowMapping, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from throughline.db.connection.failures import sqlstate
from throughline.db.connection.migrations import locked_connection
from throughline.db.connection.transactions import Transactions
from throughline.db.memories.repository import MEMORY_COLUMNS, read_memory
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnusable
from throughline.domain.ids import MemoryId, UserId
from throughline.domain.memory import Memory
from throughline.domain.recall import Vector, VectorKind

# Creation of the table for memories' embedding vectors, at the start of a service with an embedding model.
#
# It is not part of the migrations, because it needs pgvector. A server without pgvector supports everything else, and
# one that gets it later has the table from the next start on.

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


_PUT = sql("""
    insert into memory_embeddings (memory_id, model, dimensions, text_version, embedding)
    select m.id, :model, :dimensions, m.text_version, cast(n.embedding as vector)
    from unnest(cast(:ids as uuid[]), cast(:versions as integer[]), cast(:embeddings as text[]))
        as n (id, text_version, embedding)
    join memories m on m.id = n.id and m.text_version = n.text_version
    order by m.id for key share of m
    on conflict (memory_id, model) do update set dimensions = excluded.dimensions, embedding = excluded.embedding,
        text_version = excluded.text_version, created_at = now()
""")
_MISSING = sql(
    """
    select {columns} from memories m
    left join memory_embeddings e on e.memory_id = m.id and e.model = :model and e.dimensions = :dimensions
        and e.text_version = m.text_version
    where e.memory_id is null and (cast(:after as uuid) is null or m.id > :after)
    order by m.id limit :limit
""",
    columns=MEMORY_COLUMNS,
)
# Distances are computed only for filtered rows, whose vectors have equal length; pgvector refuses others.
# The subselect parses the query's vector once instead of for every row, whatever the plan.
_NEAREST = sql(
    """
    with near as materialized (
        select m.id, e.embedding <=> (select cast(cast(:embedding as text) as vector)) as distance
        from memories m join memory_embeddings e on e.memory_id = m.id and e.text_version = m.text_version
        where m.user_id = :user_id and e.model = :model and e.dimensions = :dimensions
        order by distance, m.id desc limit :limit
    )
    select {columns}, 1 - near.distance as score from near join memories m on m.id = near.id and m.user_id = :user_id
    order by near.distance, m.id desc
""",
    columns=MEMORY_COLUMNS,
)
_DELETE_OTHERS = sql("""
    delete from memory_embeddings where model <> :model and created_at < now() - make_interval(days => :days)
    returning memory_id
""")


class MemoryVectorRepository:
    """Storage of memory vectors and nearest-neighbour search."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def put(self, model: str, memories: Sequence[Memory], vectors: Sequence[Vector]) -> None:
        """Store a vector for each memory, all of one length.

        Nothing is stored for memories that were deleted or whose text has changed meanwhile.
        """
        await self._transactions.fetch(
            _PUT,
            model=model,
            dimensions=len(vectors[0]),
            ids=[memory.id for memory in memories],
            versions=[memory.text_version for memory in memories],
            embeddings=[_written(vector) for vector in vectors],
        )

    async def missing(self, kind: VectorKind, after: MemoryId | None, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of all users whose current text has no vector of this kind, ordered by id.

        They follow the id `after`; None starts with the first memory.
        """
        rows = await self._transactions.fetch(
            _MISSING, model=kind.model, dimensions=kind.dimensions, after=after, limit=limit
        )
        return tuple(read_memory(row) for row in rows)

    async def nearest(self, user_id: UserId, model: str, vector: Vector, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user by cosine distance to `vector`, nearest first.

        Only memories whose current text has a vector of this model and length are found.
        """
        rows = await self._transactions.fetch(
            _NEAREST,
            user_id=user_id,
            model=model,
            dimensions=len(vector),
            embedding=_written(vector),
            limit=limit,
        )
        return tuple(read_memory(row) for row in rows)

    async def delete_others(self, model: str, days: int) -> int:
        """Delete vectors of other models that are older than `days`; return their number."""
        return len(await self._transactions.fetch(_DELETE_OTHERS, model=model, days=days))


def _written(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"
