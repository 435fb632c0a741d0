"""Storing of index blocks: those of many sessions in one transaction, with one statement for several thousand terms.

A block is a row of a session's messages that are indexed together.
A block starts after the previous one, so two concurrent indexers insert the same row and one of them wins. Both insert
in the order of session ids, so neither waits for the other twice.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from throughline.db.connection.transactions import Statements
from throughline.db.search.entries import BlockEntries
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId

WRITTEN_TERMS = 5_000
"""Terms per insert: more would block the event loop with arguments and approach the statement's time limit."""

_FORGET = (
    sql("""
        delete from search_terms t
        using unnest(cast(:sessions as uuid[]), cast(:firsts as integer[])) as w (session_id, first), search_blocks b
        where b.session_id = w.session_id and b.from_position >= w.first and b.analyzer <> :analyzer
            and t.session_id = b.session_id and t.from_position = b.from_position
    """),
    sql("""
        delete from search_blocks b
        using unnest(cast(:sessions as uuid[]), cast(:firsts as integer[])) as w (session_id, first)
        where b.session_id = w.session_id and b.from_position >= w.first and b.analyzer <> :analyzer
    """),
)
"""Statements that delete what another analyzer wrote from each block's first position on.

Such rows have the keys of rows that are to be written.
"""

_WRITE_BLOCKS = sql("""
    with kept as (
        select s.id from sessions s where s.id = any(:sessions) order by s.id for key share
    )
    insert into search_blocks (session_id, from_position, through_position, term_count, analyzer)
    select kept.id, w.first, w.last, w.term_count, :analyzer
    from unnest(cast(:sessions as uuid[]), cast(:firsts as integer[]), cast(:lasts as integer[]),
            cast(:term_counts as bigint[])) as w (session_id, first, last, term_count)
        join kept on kept.id = w.session_id
    order by kept.id
    on conflict do nothing returning session_id
""")
_WRITE_TERMS = sql("""
    insert into search_terms (session_id, term, from_position, entries)
    select (cast(:sessions as uuid[]))[t.block], t.term, (cast(:firsts as integer[]))[t.block],
        cast(t.entries as integer[])
    from unnest(cast(:blocks as integer[]), cast(:terms as text[]), cast(:entries as text[]))
        as t (block, term, entries)
    where (cast(:sessions as uuid[]))[t.block] = any(:written)
""")
_LOCK = sql("""
    select s.id, s.redaction_count from sessions s where s.id = any(:written) order by s.id for no key update
""")
_CLEAR = sql("""
    update sessions s set unindexed_since = null
    from unnest(cast(:sessions as uuid[]), cast(:lasts as integer[])) as w (session_id, last)
    where s.id = w.session_id and s.message_count = w.last and s.id = any(:written)
""")


class RedactedMeanwhile(Exception):
    """Messages of `sessions` were redacted since they were read, so the blocks made from them must not be stored."""

    def __init__(self, sessions: Collection[SessionId]) -> None:
        super().__init__()
        self.sessions = sessions


@dataclass(frozen=True, slots=True)
class Block:
    """A block to store: its session, its last position, and the number of redactions when its messages were read."""

    session_id: SessionId
    last: int
    redaction_count: int
    entries: BlockEntries


@dataclass(frozen=True, slots=True)
class TermRows:
    """Terms of several blocks for one insert: the number of the block (from 1), the term, its entries as an array."""

    blocks: list[int]
    terms: list[str]
    entries: list[str]


def term_rows(blocks: Sequence[Block]) -> list[TermRows]:
    """Return the terms of the blocks in groups of up to WRITTEN_TERMS, in the order of their rows' keys."""
    rows = [(number, *row) for number, block in enumerate(blocks, 1) for row in block.entries.rows()]
    groups = (rows[start : start + WRITTEN_TERMS] for start in range(0, len(rows), WRITTEN_TERMS))
    return [TermRows(*(list(column) for column in zip(*group, strict=True))) for group in groups]


async def write_blocks(
    tx: Statements, blocks: Sequence[Block], terms: Sequence[TermRows], analyzer: str
) -> Collection[SessionId]:
    """Store blocks of different sessions, except where another process stored one or the session was erased.

    Returns the sessions whose blocks were stored. Raises RedactedMeanwhile. Against turns, the sessions' rows are
    locked only at the end.
    """
    batch = {
        "sessions": [block.session_id for block in blocks],
        "firsts": [block.entries.first for block in blocks],
        "lasts": [block.last for block in blocks],
        "term_counts": [block.entries.term_count for block in blocks],
        "analyzer": analyzer,
    }
    for statement in _FORGET:
        await tx.fetch(statement, **batch)
    written = [row["session_id"] for row in await tx.fetch(_WRITE_BLOCKS, **batch)]
    if not written:
        return ()
    for group in terms:
        columns = {"blocks": group.blocks, "terms": group.terms, "entries": group.entries}
        await tx.fetch(_WRITE_TERMS, written=written, **columns, **batch)
    kept = {row["id"]: row["redaction_count"] for row in await tx.fetch(_LOCK, written=written)}
    if redacted := list(_redacted(blocks, kept)):
        raise RedactedMeanwhile(redacted)
    await tx.fetch(_CLEAR, written=written, **batch)
    return written


def _redacted(blocks: Sequence[Block], kept: dict[SessionId, int]) -> Iterator[SessionId]:
    for block in blocks:
        if kept.get(block.session_id, block.redaction_count) != block.redaction_count:
            yield block.session_id
