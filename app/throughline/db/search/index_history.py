"""Indexing of messages in blocks, independent of turns, which never wait for it.

A block starts after the previous one, so two concurrent indexers insert the same row and one of them wins. Reading,
tokenizing and writing are separate steps, and no connection is held during tokenizing.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar

from throughline.context.recall_hints import RECALL_TOOLS
from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.search.analyzer import MAX_TEXT_CHARACTERS, Analyzer
from throughline.db.search.entries import BlockEntries, IndexedMessage, LiveEntries, live_entries_of
from throughline.db.statements.rows import content_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Content, text_of
from throughline.execution.compute_threads import run_off_loop_if_large

BLOCK_MESSAGES = 256
"""Most messages in a block. Frequent terms then take few rows, and a small change re-indexes little."""

BLOCK_BYTES = 2_000_000
BLOCK_CHARACTERS = 200_000
"""Most characters tokenized for one block, except for its first message: half a second of work."""

LIVE_MESSAGES = 64
LIVE_CHARACTERS = 50_000
"""Limits for messages that a search tokenizes itself without storing entries: those since the last block.

Each search repeats that work, so that more text is indexed first.
"""

WRITTEN_TERMS = 5_000
"""Terms per insert: more would block the event loop with arguments and approach the statement's time limit."""

LARGE_CHARACTERS = 4_000
"""Text length from which tokenizing runs in a thread: 1,000 characters of unseen words take 5 ms."""
T = TypeVar("T")
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
    coalesce(m.name = any(:recall_tools), false) as is_recalled,
    m.created_at - cast(:pause as interval) > (
        select p.created_at from messages p where p.session_id = m.session_id and p.position = m.position - 1
    ) as is_after_pause"""
EPISODE_PAUSE = timedelta(hours=4)
"""Pause after which a message begins a new episode of its conversation."""

_IN_SCOPE = "s.owner_id = :owner_id and (cast(:session_id as uuid) is null or s.id = :session_id)"
_WAITING = sql(
    "{unindexed} select session_id, message_count - through_position as messages from unindexed",
    unindexed=_UNINDEXED.format(scope=_IN_SCOPE),
)
IDLE_MINUTES = 5
"""Minutes without a message after which a session's last messages are indexed, however few."""

_DUE = sql(
    """
    {unindexed} select u.session_id, u.message_count - u.through_position as messages
    from unindexed u join sessions s on s.id = u.session_id
    where u.message_count - u.through_position >= :messages
        or s.updated_at < now() - make_interval(mins => :idle_minutes)
        or not exists (select 1 from runs r where r.session_id = u.session_id)
""",
    unindexed=_UNINDEXED.format(scope="s.owner_id = :owner_id"),
)
_SIZED = """
    {unindexed}, sized as (
        select {columns}, u.redaction_count, z.bytes, least(z.bytes, :text_characters) as characters
        from unindexed u join messages m
            on m.session_id = u.session_id and m.position > u.through_position
                and m.position <= u.through_position + :messages
            cross join lateral (select
                coalesce(octet_length(m.content), pg_column_size(m.content_blocks), 0) + pg_column_size(m.tool_calls)
                    as bytes
            ) z
    )"""
_READ = sql(
    """
    {sized}, waiting as (
        select *, sum(bytes) over (order by position) as all_bytes,
            sum(characters) over (order by position) as all_characters
        from sized
    )
    select * from waiting where (all_bytes <= :bytes and all_characters <= :characters)
        or position = (select min(position) from waiting)
    order by position
""",
    sized=_SIZED.format(unindexed=_UNINDEXED.format(scope="s.id = :session_id"), columns=_COLUMNS),
)
_READ_LIVE = sql(
    """
    {sized}, of_sessions as (
        select *, sum(characters) over (partition by session_id) as session_characters from sized
    ), waiting as (
        select *, sum(characters) over (order by session_characters, session_id, position) as all_characters
        from of_sessions
    )
    select * from waiting where all_characters <= :characters
    order by session_characters, session_id, position limit :messages
""",
    sized=_SIZED.format(unindexed=_UNINDEXED.format(scope="s.id = any(:sessions)"), columns=_COLUMNS),
)
_FORGET = (
    sql("""
        delete from search_terms t using search_blocks b where b.session_id = :session_id and b.analyzer <> :analyzer
            and t.session_id = b.session_id and t.from_position = b.from_position
    """),
    sql("delete from search_blocks where session_id = :session_id and analyzer <> :analyzer"),
)
_WRITE_BLOCK = sql("""
    with kept as (
        select s.id from sessions s where s.id = :session_id for key share
    )
    insert into search_blocks (session_id, from_position, through_position, term_count, analyzer)
    select kept.id, :first, :last, :term_count, :analyzer from kept
    on conflict do nothing returning session_id
""")
_WRITE_TERMS = sql("""
    insert into search_terms (session_id, term, from_position, entries)
    select :session_id, t.term, :first, cast(t.entries as integer[])
    from unnest(cast(:terms as text[]), cast(:entries as text[])) as t (term, entries)
""")
_REDACTIONS = sql("select redaction_count from sessions where id = :session_id for share")


class _RedactedMeanwhile(Exception):
    """A message was redacted since it was read, so the block made from it must not be stored."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session and the number of its unindexed messages."""

    session_id: SessionId
    messages: int


@dataclass(frozen=True, slots=True)
class _Block:
    """A block to store; each pair in `terms` (terms, their entries) is inserted by one statement."""

    session_id: SessionId
    first: int
    last: int
    term_count: int
    terms: Sequence[tuple[list[str], list[str]]]


class HistoryIndex:
    """Reads unindexed messages and writes them to the search index."""

    def __init__(self, transactions: Transactions, analyzer: Analyzer) -> None:
        """Use `transactions`, and tokenize with `analyzer`."""
        self._transactions = transactions
        self.analyzer = analyzer

    async def waiting(self, owner_id: UserId, session_id: SessionId | None) -> tuple[Waiting, ...]:
        """Return the owner's sessions, or the one session, that have unindexed messages."""
        rows = await self._transactions.fetch(
            _WAITING, owner_id=owner_id, session_id=session_id, analyzer=self.analyzer.name
        )
        return tuple(Waiting(SessionId(row["session_id"]), row["messages"]) for row in rows)

    async def due(self, owner_id: UserId) -> tuple[Waiting, ...]:
        """Return the owner's sessions with unindexed messages that are due for indexing.

        Due are idle sessions, sessions without runs (imported ones), and those with at least LIVE_MESSAGES unindexed
        messages.
        """
        rows = await self._transactions.fetch(
            _DUE,
            owner_id=owner_id,
            analyzer=self.analyzer.name,
            messages=LIVE_MESSAGES,
            idle_minutes=IDLE_MINUTES,
        )
        return tuple(Waiting(SessionId(row["session_id"]), row["messages"]) for row in rows)

    async def index_block(self, session_id: SessionId) -> int:
        """Index the session's next messages, at most a block; return their number, 0 if all are indexed."""
        rows = await self._read(session_id)
        messages = [_message(row) for row in rows]
        if not messages:
            return 0
        block = BlockEntries(messages[0].position)
        for piece in _pieces(messages):
            await self._cut(piece, partial(block.add, self.analyzer, piece))
        terms = await self._cut(messages, lambda: block.rows(WRITTEN_TERMS))
        written = _Block(messages[0].session_id, block.first, messages[-1].position, block.term_count, terms)
        try:
            await self._transactions.run(lambda tx: self._write(tx, written, rows[0]["redaction_count"]))
        except _RedactedMeanwhile:
            return 0
        return len(messages)

    async def read_unindexed(self, waiting: Sequence[Waiting]) -> tuple[IndexedMessage, ...]:
        """Return the waiting messages that a search tokenizes itself, short sessions first."""
        sessions: list[SessionId] = []
        messages = 0
        for found in sorted(waiting, key=lambda found: found.messages):
            messages += found.messages
            if sessions and messages > LIVE_MESSAGES:
                break
            sessions.append(found.session_id)
        if not sessions:
            return ()
        rows = await self._transactions.fetch(
            _READ_LIVE, sessions=sessions, messages=LIVE_MESSAGES, characters=LIVE_CHARACTERS, **self._constants()
        )
        return tuple(_message(row) for row in rows)

    async def live_entries(self, messages: Sequence[IndexedMessage], wanted: Collection[str]) -> LiveEntries:
        """Return the messages' entries for the wanted terms; long texts are tokenized in a thread."""
        return await self._cut(messages, lambda: live_entries_of(self.analyzer, messages, wanted))

    async def _cut(self, messages: Sequence[IndexedMessage], work: Callable[[], T]) -> T:
        characters = sum(len(message.text) for message in messages)
        return await run_off_loop_if_large(characters, work, large=LARGE_CHARACTERS)

    def _constants(self) -> dict[str, object]:
        return {
            "analyzer": self.analyzer.name,
            "recall_tools": list(RECALL_TOOLS),
            "text_characters": MAX_TEXT_CHARACTERS,
            "pause": EPISODE_PAUSE,
        }

    async def _read(self, session_id: SessionId) -> Sequence[Row]:
        return await self._transactions.fetch(
            _READ,
            session_id=session_id,
            messages=BLOCK_MESSAGES,
            bytes=BLOCK_BYTES,
            characters=BLOCK_CHARACTERS,
            **self._constants(),
        )

    async def _write(self, tx: Statements, block: _Block, redaction_count: int) -> None:
        """Store the block, unless another process stored it, the session is gone, or a message was redacted.

        The session's row is locked only at the end, because turns need it.
        """
        place = {"session_id": block.session_id, "first": block.first, "analyzer": self.analyzer.name}
        if block.first == 1:
            for statement in _FORGET:
                await tx.fetch(statement, **place)
        if not await tx.fetch(_WRITE_BLOCK, last=block.last, term_count=block.term_count, **place):
            return
        for terms, entries in block.terms:
            await tx.fetch(_WRITE_TERMS, terms=terms, entries=entries, **place)
        kept = await tx.fetch(_REDACTIONS, session_id=block.session_id)
        if kept and kept[0]["redaction_count"] != redaction_count:
            raise _RedactedMeanwhile


def _pieces(messages: Sequence[IndexedMessage]) -> Iterator[Sequence[IndexedMessage]]:
    """Yield the messages in groups of limited length, so that other work of the owner can run in between."""
    start = characters = 0
    for number, message in enumerate(messages):
        characters += min(len(message.text), MAX_TEXT_CHARACTERS)
        if characters > MAX_TEXT_CHARACTERS and number > start:
            yield messages[start:number]
            start, characters = number, min(len(message.text), MAX_TEXT_CHARACTERS)
    yield messages[start:]


def _message(row: Row) -> IndexedMessage:
    """Return the message to index.

    Neither calls of recall tools nor their results are indexed: they would rank above the messages that they quote.
    """
    return IndexedMessage(
        session_id=SessionId(row["session_id"]),
        position=row["position"],
        text="" if row["is_recalled"] else _text(row),
        author=row["author"],
        created_at=row["created_at"],
        is_after_pause=bool(row["is_after_pause"]),
    )


def _text(row: Row) -> str:
    content: Content = row["content"] if row["content_blocks"] is None else content_from(row["content_blocks"])
    calls = [f"{call['name']} {call['arguments']}" for call in row["tool_calls"] if call["name"] not in RECALL_TOOLS]
    return "\n".join([row["name"] or "", text_of(content), *calls])
