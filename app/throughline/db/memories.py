"""The memory repository: storage and search of the memories of one user at a time.

A missing memory and one of another user raise the same NotFound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import RowMapping, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from throughline.context.quoted_memories import EMPTY_WORDS, LEAST_FIT, fit_of
from throughline.db.connection.failures import sqlstate
from throughline.db.connection.migrations import locked_connection
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Repository, Transactions
from throughline.db.search.analyzer import Analyzer, stop_words_of
from throughline.db.search.index_history import LARGE_CHARACTERS
from throughline.db.statements.rows import to_json
from throughline.db.statements.sql import decode_cursor, encode_cursor, new_id, sql
from throughline.domain.basic_types import JsonObject, MemoryId, Page, UserId
from throughline.domain.errors import DatabaseUnusable, NotFound
from throughline.domain.recall import Memory, Vector, VectorKind
from throughline.execution.compute_threads import run_off_loop_if_large

ANALYZED_AT_ONCE = 500
"""Most memories that one search indexes again first, because their terms are of another language or version."""

LOOKED_AT = 20
"""Best memories of a search whose fit to a message is computed."""

COMPARED_CHARACTERS = 2_000
"""Characters at the end of a message that are compared with memories: those who paste a text ask after it."""

SHORT_NUMBER = 2
"""Most digits of a number that is compared with no message: texts about anything have such numbers in common."""

MEMORY_COLUMNS = "m.id, m.user_id, m.text, m.metadata, m.created_at, m.updated_at, m.text_version"
_CREATE = sql(
    """
    insert into memories as m (id, user_id, text, metadata, terms, analyzer)
    values (:id, :user_id, :text, cast(:metadata as jsonb), :terms, :analyzer)
    on conflict (id) do update set id = excluded.id
    returning {columns}
""",
    columns=MEMORY_COLUMNS,
)
_GET = sql("select {columns} from memories m where m.id = :id and m.user_id = :user_id", columns=MEMORY_COLUMNS)
_LIST = sql(
    """
    select {columns} from memories m
    where m.user_id = :user_id and (cast(:before_time as timestamptz) is null
        or (m.created_at, m.id) < (:before_time, cast(:before_id as uuid)))
    order by m.created_at desc, m.id desc limit :limit
""",
    columns=MEMORY_COLUMNS,
)
_UPDATE = sql(
    """
    update memories m set text = coalesce(:text, m.text), metadata = coalesce(cast(:metadata as jsonb), m.metadata),
        terms = coalesce(cast(:terms as text[]), m.terms), analyzer = coalesce(:analyzer, m.analyzer),
        text_version = m.text_version + cast(coalesce(:text <> m.text, false) as integer), updated_at = now()
    where m.id = :id and m.user_id = :user_id returning {columns}
""",
    columns=MEMORY_COLUMNS,
)
_DELETE = sql("delete from memories where id = :id and user_id = :user_id returning id")
_DELETE_TEXT = sql("delete from memories where user_id = :user_id and text = :text returning id")
_STALE = sql("""
    select id, text from memories where user_id = :user_id and analyzer <> :analyzer order by id limit :limit
""")
_ANALYZE = sql("update memories set terms = :terms, analyzer = :analyzer where id = :id and text = :text")
_SEARCH = sql(
    """
    with mine as materialized (
        select m.*, cardinality(m.terms) as size from memories m where m.user_id = :user_id
    ), found as materialized (
        select mine.id, t.term, mine.size from mine cross join lateral unnest(mine.terms) as t (term)
        where t.term = any(:terms)
    ), rarity as (
        select f.term, ln(1 + ((select count(*) from mine) - count(*) + 0.5) / (count(*) + 0.5)) as rarity
        from found f group by f.term
    ), ranked as (
        select f.id, sum(r.rarity / (0.7 + 0.3 * f.size / (select greatest(avg(size), 1) from mine))) as score,
            sum(r.rarity) / ln(1 + ((select count(*) from mine) - 0.5) / 1.5) as shared
        from found f join rarity r on r.term = f.term group by f.id
    )
    select {columns}, m.terms, r.score, r.shared from ranked r join mine m on m.id = r.id
    order by r.score desc, m.id desc limit :limit
""",
    columns=MEMORY_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Changes of a memory; None leaves a value unchanged."""

    text: str | None = None
    metadata: JsonObject | None = None


class MemoryRepository:
    """Storage of memories and their search by words."""

    def __init__(self, transactions: Transactions, language: str) -> None:
        """Use `transactions`; stem words by the rules of `language`. Raises SettingInvalid."""
        self._transactions = transactions
        self._analyzer = Analyzer(language)
        self._empty = frozenset(map(self._analyzer.word, EMPTY_WORDS))

    async def create(self, user_id: UserId, text: str, metadata: JsonObject) -> Memory:
        """Store a new memory and return it."""
        rows = await self._transactions.fetch(
            _CREATE,
            id=new_id(),
            user_id=user_id,
            text=text,
            metadata=to_json(metadata),
            terms=self._terms(text),
            analyzer=self._analyzer.name,
        )
        return read_memory(rows[0])

    async def get(self, user_id: UserId, memory_id: MemoryId) -> Memory:
        """Return the user's memory with this id. Raises NotFound."""
        return _one(await self._transactions.fetch(_GET, id=memory_id, user_id=user_id), memory_id)

    async def list(self, user_id: UserId, limit: int, cursor: str | None) -> Page[Memory]:
        """Return the user's memories, newest first. Raises InvalidInput for an invalid cursor."""
        before_time, before_id = (None, None) if cursor is None else decode_cursor(cursor)
        rows = await self._transactions.fetch(
            _LIST, user_id=user_id, before_time=before_time, before_id=before_id, limit=limit + 1
        )
        memories = tuple(read_memory(row) for row in rows[:limit])
        return Page(memories, encode_cursor(memories[-1].created_at, memories[-1].id) if len(rows) > limit else None)

    async def update(self, user_id: UserId, memory_id: MemoryId, change: MemoryChange) -> Memory:
        """Change the user's memory with this id and return it. Raises NotFound."""
        has_text = change.text is not None
        rows = await self._transactions.fetch(
            _UPDATE,
            id=memory_id,
            user_id=user_id,
            text=change.text,
            metadata=None if change.metadata is None else to_json(change.metadata),
            terms=None if change.text is None else self._terms(change.text),
            analyzer=self._analyzer.name if has_text else None,
        )
        return _one(rows, memory_id)

    async def delete(self, user_id: UserId, memory_id: MemoryId) -> None:
        """Delete the user's memory with this id. Raises NotFound."""
        if not await self._transactions.fetch(_DELETE, id=memory_id, user_id=user_id):
            raise _not_found(memory_id)

    async def delete_text(self, user_id: UserId, text: str) -> int:
        """Delete the user's memories with exactly this text; return how many there were."""
        return len(await self._transactions.fetch(_DELETE_TEXT, text=text, user_id=user_id))

    async def search(self, user_id: UserId, query: str, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user that share a word with `query`, best first.

        Before that, up to ANALYZED_AT_ONCE memories with outdated terms are indexed again.
        """
        return tuple(read_memory(row) for row in await self._ranked(user_id, self._terms(query), limit))

    async def find_fitting(self, user_id: UserId, message: str, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user that fit the message, best first, with their fit as the score.

        A memory fits whose words with the end of the message in common weigh at least LEAST_FIT (`fit_of`).
        """
        said = message[-COMPARED_CHARACTERS:]
        empty = self._empty.union(map(self._analyzer.word, stop_words_of(said)))
        terms = _telling(self._terms(said), empty)
        fitting: list[Memory] = []
        for row in await self._ranked(user_id, terms, LOOKED_AT):
            fit = fit_of(float(row["shared"]), terms, _telling(row["terms"], empty))
            if fit >= LEAST_FIT:
                fitting.append(replace(read_memory(row), score=round(fit, 2)))
        return tuple(sorted(fitting, key=lambda memory: -(memory.score or 0))[:limit])

    async def _ranked(self, user_id: UserId, terms: Sequence[str], limit: int) -> Sequence[Row]:
        if not terms:
            return ()
        await self._analyze_stale(user_id)
        return await self._transactions.fetch(_SEARCH, user_id=user_id, terms=terms, limit=limit)

    async def _analyze_stale(self, user_id: UserId) -> None:
        """Analyze memories that another analyzer cut. Each is stored by itself, so that a cut search keeps its work."""
        name = self._analyzer.name
        for row in await self._transactions.fetch(_STALE, user_id=user_id, analyzer=name, limit=ANALYZED_AT_ONCE):
            text = row["text"]
            terms = await run_off_loop_if_large(len(text), partial(self._terms, text), large=LARGE_CHARACTERS)
            await self._transactions.fetch(_ANALYZE, id=row["id"], text=text, terms=terms, analyzer=name)

    def _terms(self, words: str) -> Sequence[str]:
        return sorted({term.text for term in self._analyzer.terms(words)})


def _telling(terms: Sequence[str], empty: frozenset[str]) -> Sequence[str]:
    """Return the terms that are neither `empty` nor short numbers."""
    return [term for term in terms if term not in empty and not (term.isdigit() and len(term) <= SHORT_NUMBER)]


def _one(rows: Sequence[Row], memory_id: MemoryId) -> Memory:
    if not rows:
        raise _not_found(memory_id)
    return read_memory(rows[0])


def _not_found(memory_id: MemoryId) -> NotFound:
    return NotFound(f"There is no memory {memory_id}.")


def read_memory(row: Row) -> Memory:
    """Return the memory in a row with MEMORY_COLUMNS, and with `score` if it was searched."""
    return Memory(
        id=MemoryId(row["id"]),
        user_id=UserId(row["user_id"]),
        text=row["text"],
        metadata=row["metadata"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        score=None if row.get("score") is None else round(float(row["score"]), 4),
        text_version=row["text_version"],
    )


# Embedding vectors of memories. The table exists only if an embedding model is set.
#
# A search uses a vector only if its model and dimensions are those of the request and its text version is the memory's.

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


class MemoryVectorRepository(Repository):
    """Storage of memory vectors and nearest-neighbour search."""

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
