"""Embedding vectors of memories. The table exists only if an embedding model is set, see vector_table.py.

A search uses a vector only if its model and dimensions are those of the request and its text version is the memory's.
"""

from collections.abc import Sequence

from throughline.db.connection.transactions import Transactions
from throughline.db.memories.repository import MEMORY_COLUMNS, read_memory
from throughline.db.statements.sql import sql
from throughline.domain.ids import MemoryId, UserId
from throughline.domain.memory import Memory
from throughline.domain.recall import Vector, VectorKind

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
