"""Writes the index, a block of messages at a time, beside the turns: nothing a turn stores waits for it.

A block begins where the one before it ended, so that two who index at once want to write the same row: one of them
does. Reading, cutting into terms and writing are apart, and no connection is held while texts are cut.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from app.context.recall_hints import RECALL_TOOLS
from app.db.connection.statement import Row
from app.db.connection.transactions import Statements, Transactions
from app.db.search.analyzer import Analyzer
from app.db.search.entries import Entries, IndexedMessage, entries_of
from app.db.statements.rows import content_from
from app.db.statements.sql import sql
from app.domain.ids import SessionId, UserId
from app.domain.message import Content, text_of
from app.execution.off_loop import run_off_loop_if_large

BLOCK_MESSAGES = 256
"""Messages in a block at most: terms that come often then stand in few rows, and a small change redoes little."""

BLOCK_BYTES = 2_000_000
LARGE_CHARACTERS = 4_000
"""From this length on texts are cut into terms in a thread: 1,000 characters of words never seen take 5 ms."""
_UNINDEXED = """
    with unindexed as (
        select s.id as session_id, coalesce(b.through_position, 0) as through_position, s.message_count,
            s.redaction_count
        from sessions s left join lateral (
            select max(b.through_position) as through_position from search_blocks b
            where b.session_id = s.id and b.analyzer = :analyzer
        ) b on true
        where {scope} and s.message_count > coalesce(b.through_position, 0)
    )"""
_COLUMNS = """
    m.session_id, m.position, m.author, m.created_at, m.content, m.content_blocks, m.tool_calls, m.name,
    coalesce(m.name = any(:recall_tools), false) as is_recalled"""
_IN_SCOPE = "s.owner_id = :owner_id and (cast(:session_id as uuid) is null or s.id = :session_id)"
_WAITING = sql(
    "{unindexed} select session_id, message_count - through_position as messages from unindexed",
    unindexed=_UNINDEXED.format(scope=_IN_SCOPE),
)
_READ = sql(
    """
    {unindexed}, waiting as (
        select {columns}, u.redaction_count,
            sum(coalesce(octet_length(m.content), 0)) over (order by m.position) as bytes
        from unindexed u join messages m
            on m.session_id = u.session_id and m.position > u.through_position
                and m.position <= u.through_position + :messages
    )
    select * from waiting where bytes <= :bytes or position = (select min(position) from waiting) order by position
""",
    unindexed=_UNINDEXED.format(scope="s.id = :session_id"),
    columns=_COLUMNS,
)
_READ_ALL = sql(
    """
    {unindexed} select {columns}
    from unindexed u join messages m on m.session_id = u.session_id and m.position > u.through_position
    order by m.session_id, m.position limit :messages
""",
    unindexed=_UNINDEXED.format(scope=_IN_SCOPE),
    columns=_COLUMNS,
)
_FORGET = (
    sql("""
        delete from search_terms t using search_blocks b where b.session_id = :session_id and b.analyzer <> :analyzer
            and t.session_id = b.session_id and t.from_position = b.from_position
    """),
    sql("delete from search_blocks where session_id = :session_id and analyzer <> :analyzer"),
)
_WRITE = sql("""
    with kept as (
        select s.id from sessions s where s.id = :session_id for key share
    ), block as (
        insert into search_blocks (session_id, from_position, through_position, term_count, analyzer)
        select kept.id, :first, :last, :term_count, :analyzer from kept
        on conflict do nothing returning session_id, from_position
    ), terms as (
        insert into search_terms (session_id, term, from_position, entries)
        select block.session_id, t.term, block.from_position, cast(t.entries as integer[])
        from block cross join unnest(cast(:terms as text[]), cast(:entries as text[])) as t (term, entries)
    )
    select count(*) as written from block
""")


_REDACTIONS = sql("select redaction_count from sessions where id = :session_id for share")


class _RedactedMeanwhile(Exception):
    """A message was redacted since it was read: what was made of it must not be written."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session with messages that are not indexed yet, and how many."""

    session_id: SessionId
    messages: int


class HistoryIndex:
    """Brings the index of sessions up to what is stored of them."""

    def __init__(self, transactions: Transactions, analyzer: Analyzer) -> None:
        """Work through `transactions`, with the terms that `analyzer` makes."""
        self._transactions = transactions
        self._analyzer = analyzer

    async def waiting(self, owner_id: UserId, session_id: SessionId | None) -> tuple[Waiting, ...]:
        """Return the owner's sessions (or the one) with messages that are not indexed yet."""
        rows = await self._transactions.fetch(
            _WAITING, owner_id=owner_id, session_id=session_id, analyzer=self._analyzer.name
        )
        return tuple(Waiting(SessionId(row["session_id"]), row["messages"]) for row in rows)

    async def index_block(self, session_id: SessionId) -> int:
        """Index the session's next messages, a block at most; return how many, 0 where all are."""
        rows = await self._read(session_id)
        messages = [_message(row) for row in rows]
        if not messages:
            return 0
        entries = await self.entries(messages)
        try:
            await self._transactions.run(lambda tx: self._write(tx, messages, entries, rows[0]["redaction_count"]))
        except _RedactedMeanwhile:
            return 0
        return len(messages)

    async def live(self, owner_id: UserId, session_id: SessionId | None, limit: int) -> list[Entries]:
        """Return the entries of up to `limit` messages that are not indexed yet, for each session its own."""
        rows = await self._transactions.fetch(
            _READ_ALL,
            owner_id=owner_id,
            session_id=session_id,
            analyzer=self._analyzer.name,
            recall_tools=list(RECALL_TOOLS),
            messages=limit,
        )
        of_session: dict[SessionId, list[IndexedMessage]] = defaultdict(list)
        for row in rows:
            of_session[row["session_id"]].append(_message(row))
        return [await self.entries(messages) for messages in of_session.values()]

    async def entries(self, messages: Sequence[IndexedMessage]) -> Entries:
        """Return the entries of the messages; long texts are cut off the event loop."""
        characters = sum(len(message.text) for message in messages)
        return await run_off_loop_if_large(
            characters, lambda: entries_of(self._analyzer, messages), large=LARGE_CHARACTERS
        )

    async def _read(self, session_id: SessionId) -> Sequence[Row]:
        return await self._transactions.fetch(
            _READ,
            session_id=session_id,
            analyzer=self._analyzer.name,
            recall_tools=list(RECALL_TOOLS),
            messages=BLOCK_MESSAGES,
            bytes=BLOCK_BYTES,
        )

    async def _write(
        self, tx: Statements, messages: Sequence[IndexedMessage], entries: Entries, redaction_count: int
    ) -> None:
        """Nothing is written where another got there first, where the session is gone, or a message was redacted.

        The session's row is locked at the end only: turns need it.
        """
        session_id, first = entries.session_id, messages[0].position
        if first == 1:
            for statement in _FORGET:
                await tx.fetch(statement, session_id=session_id, analyzer=self._analyzer.name)
        by_term: dict[str, list[int]] = defaultdict(list)
        for entry in entries.items:
            by_term[entry.term].append(entry.packed(first))
        terms = sorted(by_term)
        await tx.fetch(
            _WRITE,
            session_id=session_id,
            first=first,
            last=messages[-1].position,
            term_count=entries.term_count,
            analyzer=self._analyzer.name,
            terms=terms,
            entries=["{" + ",".join(map(str, by_term[term])) + "}" for term in terms],
        )
        kept = await tx.fetch(_REDACTIONS, session_id=session_id)
        if kept and kept[0]["redaction_count"] != redaction_count:
            raise _RedactedMeanwhile


def _message(row: Row) -> IndexedMessage:
    """What a recall tool returned is indexed where it stands; found again, it would only hide it."""
    return IndexedMessage(
        session_id=SessionId(row["session_id"]),
        position=row["position"],
        text="" if row["is_recalled"] else _text(row),
        author=row["author"],
        created_at=row["created_at"],
    )


def _text(row: Row) -> str:
    content: Content = row["content"] if row["content_blocks"] is None else content_from(row["content_blocks"])
    calls = [f"{call['name']} {call['arguments']}" for call in row["tool_calls"]]
    return "\n".join([row["name"] or "", text_of(content), *calls])
