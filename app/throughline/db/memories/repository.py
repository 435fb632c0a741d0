"""The memory repository: storage and search of the memories of one user at a time.

A missing memory and one of another user raise the same NotFound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.search.analyzer import Analyzer
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.paging import decode_cursor, encode_cursor
from throughline.db.statements.rows import to_json
from throughline.db.statements.sql import sql
from throughline.domain.errors import NotFound
from throughline.domain.ids import MemoryId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.memory import Memory
from throughline.domain.page import Page

ANALYZED_AT_ONCE = 500
"""Most memories that one search indexes again first, because their terms are of another language or version."""

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
        select f.id, sum(r.rarity / (0.7 + 0.3 * f.size / (select greatest(avg(size), 1) from mine))) as score
        from found f join rarity r on r.term = f.term group by f.id
    )
    select {columns}, r.score from ranked r join mine m on m.id = r.id order by r.score desc, m.id desc limit :limit
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

    async def search(self, user_id: UserId, query: str, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user that share a word with `query`, best first.

        Before that, up to ANALYZED_AT_ONCE memories with outdated terms are indexed again.
        """
        terms = self._terms(query)
        if not terms:
            return ()
        await self._transactions.run(lambda tx: self._analyze_stale(tx, user_id))
        rows = await self._transactions.fetch(_SEARCH, user_id=user_id, terms=terms, limit=limit)
        return tuple(read_memory(row) for row in rows)

    async def _analyze_stale(self, tx: Statements, user_id: UserId) -> None:
        name = self._analyzer.name
        for row in await tx.fetch(_STALE, user_id=user_id, analyzer=name, limit=ANALYZED_AT_ONCE):
            await tx.fetch(_ANALYZE, id=row["id"], text=row["text"], terms=self._terms(row["text"]), analyzer=name)

    def _terms(self, words: str) -> Sequence[str]:
        return sorted({term.text for term in self._analyzer.terms(words)})


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
