"""Indexing of messages for the search. Turns never wait for it.

A block is a row of a session's messages that are indexed together.
Reading, tokenizing and writing are separate steps, and no connection is held during tokenizing. Each step takes the
messages of many sessions at once.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.search.analyzer import MAX_TEXT_CHARACTERS, Analyzer
from throughline.db.search.entries import ENTRY_VERSION, BlockEntries, IndexedMessage, LiveEntries, live_entries_of
from throughline.db.side_jobs import index_job, is_under_way
from throughline.db.statements.rows import content_from
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import LAST_POSITION, Content, Role, text_of
from throughline.execution.compute_threads import run_off_loop_if_large

# Messages that are not in the search index: which sessions have some, which of those are due, and their texts.
#
# A trigger on `sessions` sets `unindexed_since` when a session gains or redacts a message. Storing a block (messages
# that are indexed together) that reaches the last message clears it (index_history.py). So the statements here read no
# session that is indexed completely.

BLOCK_MESSAGES = 256
"""Most messages in a block. Frequent terms then take few rows, and a small change re-indexes little."""

BLOCK_BYTES = 2_000_000
BLOCK_CHARACTERS = 200_000
"""Most bytes and characters read for blocks that are stored together, except for the first message.

Tokenizing them takes half a second.
"""

LIVE_MESSAGES = 64
LIVE_CHARACTERS = 50_000
"""Most messages and characters that a search tokenizes itself without storing entries: those since the last block.

A search indexes more text than that first, since each search would repeat the work.
"""

DUE_MESSAGES = 32
"""Unindexed messages of a session from which its job indexes them: long texts are more than a search reads itself."""

IDLE_MINUTES = 5
"""Minutes without a message after which a session's last messages are indexed, however few."""

EPISODE_PAUSE = timedelta(hours=4)
"""Pause after which a message begins a new episode of its conversation."""

SETTLED_SESSIONS = 1_000
"""Most sessions whose `unindexed_since` one statement clears."""

# Sessions indexed by another analyzer are looked for only if the index, at its smallest and largest name, has any.
_MARKED = """
    with marked as (
        select s.id from sessions s where {scope} and s.unindexed_since is not null
        union
        select s.id from search_blocks b join sessions s on s.id = b.session_id
        where {scope} and b.analyzer <> :analyzer and (
            (select min(analyzer) from search_blocks) <> :analyzer
            or (select max(analyzer) from search_blocks) <> :analyzer)
    ), unindexed as (
        select s.id as session_id, s.message_count - coalesce(b.through_position, 0) as messages, s.updated_at,
            s.summary_through_position > coalesce(b.through_position, 0) as is_covered
        from marked join sessions s on s.id = marked.id {through}
        where s.message_count > coalesce(b.through_position, 0)
    )"""
_THROUGH = """left join lateral (
            select b.through_position from search_blocks b where b.session_id = s.id and b.analyzer = :analyzer
            order by b.from_position desc limit 1
        ) b on true"""
_IN_SCOPE = "s.owner_id = :owner_id and (cast(:session_id as uuid) is null or s.id = :session_id)"
_WAITING = sql(
    "{marked} select session_id, messages from unindexed", marked=_MARKED.format(scope=_IN_SCOPE, through=_THROUGH)
)
_DUE = sql(
    """
    {marked} select session_id, messages from unindexed u
    where messages >= :messages or updated_at < now() - make_interval(mins => :idle_minutes)
        or is_covered or not exists (select 1 from runs r where r.session_id = u.session_id)
""",
    marked=_MARKED.format(scope="s.owner_id = :owner_id", through=_THROUGH),
)
_OWNERS = sql("""
    select distinct owner_id from sessions where unindexed_since < now() - make_interval(mins => :idle_minutes)
""")
_SETTLE = sql(
    """
    with complete as (
        select s.id, s.message_count, s.redaction_count from sessions s {through}
        where s.owner_id = :owner_id and s.unindexed_since is not null
            and s.message_count <= coalesce(b.through_position, 0)
        limit :sessions
    )
    update sessions s set unindexed_since = null from complete c
    where s.id = c.id and s.message_count = c.message_count and s.redaction_count = c.redaction_count
    returning s.id
""",
    through=_THROUGH,
)
_READ = sql(
    """
    with sized as (
        select m.session_id, m.position, m.role, m.author, m.created_at, m.content, m.content_blocks, m.tool_calls,
            m.name, coalesce(m.name = any(:recall_tools), false) as is_recalled,
            m.created_at - cast(:pause as interval) > (
                select p.created_at from messages p where p.session_id = m.session_id and p.position = m.position - 1
            ) as is_after_pause,
            s.redaction_count, z.bytes,
            least(z.bytes, :text_characters) as characters
        from sessions s {through} join messages m
            on m.session_id = s.id and m.position > coalesce(b.through_position, 0)
                and m.position <= coalesce(b.through_position, 0) + :session_messages and m.position < :before
            cross join lateral (select
                coalesce(octet_length(m.content), pg_column_size(m.content_blocks), 0) + pg_column_size(m.tool_calls)
                    as bytes
            ) z
        where s.id = any(:sessions) and s.message_count > coalesce(b.through_position, 0)
    ), of_sessions as (
        select *, sum(characters) over (partition by session_id) as session_characters from sized
    ), waiting as (
        select *, row_number() over shortest as place, sum(bytes) over shortest as all_bytes,
            sum(characters) over shortest as all_characters
        from of_sessions window shortest as (order by session_characters, session_id, position)
    )
    select * from waiting where (all_bytes <= :bytes and all_characters <= :characters) or place <= :at_least
    order by place limit :messages
""",
    through=_THROUGH,
)


@dataclass(frozen=True, slots=True)
class UnindexedSession:
    """A session and the number of its unindexed messages."""

    session_id: SessionId
    messages: int


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Limits for reading messages of several sessions: messages of each and of all, and characters and bytes of all.

    The first `at_least` messages are read even if they exceed the limits. Messages from the position `before` on are
    not read.
    """

    session_messages: int
    messages: int
    characters: int
    bytes: int = BLOCK_BYTES
    at_least: int = 0
    before: int = LAST_POSITION


async def find_waiting(
    tx: Statements, owner_id: UserId, session_id: SessionId | None, analyzer: str
) -> tuple[UnindexedSession, ...]:
    """Return the owner's sessions with unindexed messages; with a `session_id` only this session, if it has any."""
    return _waiting(await tx.fetch(_WAITING, owner_id=owner_id, session_id=session_id, analyzer=analyzer))


async def find_due(tx: Statements, owner_id: UserId, analyzer: str) -> tuple[UnindexedSession, ...]:
    """Return the owner's sessions with unindexed messages that are due for indexing.

    Due are sessions without a change for IDLE_MINUTES and sessions without runs (imported ones). Others are due with
    DUE_MESSAGES unindexed messages, or with one that the summary covers.
    """
    return _waiting(
        await tx.fetch(_DUE, owner_id=owner_id, analyzer=analyzer, messages=DUE_MESSAGES, idle_minutes=IDLE_MINUTES)
    )


async def find_owners(tx: Statements) -> tuple[UserId, ...]:
    """Return the owners of sessions that have had unindexed messages for IDLE_MINUTES."""
    return tuple(UserId(row["owner_id"]) for row in await tx.fetch(_OWNERS, idle_minutes=IDLE_MINUTES))


async def unmark_complete(tx: Statements, owner_id: UserId, analyzer: str) -> bool:
    """Clear `unindexed_since` of up to SETTLED_SESSIONS completely indexed sessions; return whether there may be more.

    Such sessions have it from the upgrade, which sets it for all, and from processes of the version before that.
    """
    rows = await tx.fetch(_SETTLE, owner_id=owner_id, analyzer=analyzer, sessions=SETTLED_SESSIONS)
    return len(rows) == SETTLED_SESSIONS


async def read_messages(
    tx: Statements, sessions: Sequence[SessionId], limits: IndexLimits, analyzer: str
) -> Sequence[tuple[IndexedMessage, int]]:
    """Return the next unindexed messages of the sessions within the limits, sessions with short texts first.

    With each message comes the number of redactions in its session.
    """
    rows = await tx.fetch(
        _READ,
        sessions=list(sessions),
        session_messages=limits.session_messages,
        messages=limits.messages,
        characters=limits.characters,
        bytes=limits.bytes,
        at_least=limits.at_least,
        before=limits.before,
        analyzer=analyzer,
        recall_tools=list(RECALL_TOOLS),
        text_characters=MAX_TEXT_CHARACTERS,
        pause=EPISODE_PAUSE,
    )
    return [(_message(row), row["redaction_count"]) for row in rows]


def _waiting(rows: Sequence[Row]) -> tuple[UnindexedSession, ...]:
    return tuple(UnindexedSession(SessionId(row["session_id"]), row["messages"]) for row in rows)


def _message(row: Row) -> IndexedMessage:
    """Return the message to index, made from a row of `_READ`.

    Neither calls of recall tools nor their results are indexed: they would rank above the messages that they quote.
    """
    return IndexedMessage(
        session_id=SessionId(row["session_id"]),
        position=row["position"],
        text="" if row["is_recalled"] else _text(row),
        author=row["author"],
        created_at=row["created_at"],
        is_after_pause=bool(row["is_after_pause"]),
        is_answer=row["role"] == Role.ASSISTANT and not row["tool_calls"],
    )


def _text(row: Row) -> str:
    content: Content = row["content"] if row["content_blocks"] is None else content_from(row["content_blocks"])
    calls = [f"{call['name']} {call['arguments']}" for call in row["tool_calls"] if call["name"] not in RECALL_TOOLS]
    return "\n".join([row["name"] or "", text_of(content), *calls])


# Storing of index blocks: those of many sessions in one transaction, with one statement for several thousand terms.
#
# A block is a row of a session's messages that are indexed together. A block starts after the previous one, so two
# concurrent indexers insert the same row and one of them wins. Both insert in the order of session ids, so neither
# waits for the other twice.

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
class IndexBlock:
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


def term_rows(blocks: Sequence[IndexBlock]) -> list[TermRows]:
    """Return the terms of the blocks in groups of up to WRITTEN_TERMS, in the order of their rows' keys."""
    rows = [(number, *row) for number, block in enumerate(blocks, 1) for row in block.entries.rows()]
    groups = (rows[start : start + WRITTEN_TERMS] for start in range(0, len(rows), WRITTEN_TERMS))
    return [TermRows(*(list(column) for column in zip(*group, strict=True))) for group in groups]


async def write_blocks(
    tx: Statements, blocks: Sequence[IndexBlock], terms: Sequence[TermRows], analyzer: str
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


def _redacted(blocks: Sequence[IndexBlock], kept: dict[SessionId, int]) -> Iterator[SessionId]:
    for block in blocks:
        if kept.get(block.session_id, block.redaction_count) != block.redaction_count:
            yield block.session_id


LARGE_CHARACTERS = 4_000
"""Text length from which tokenizing runs in a thread: 1,000 characters of unseen words take 5 ms."""

BATCH_MESSAGES = 2_048
"""Most messages read at once for blocks of several sessions."""

_OF_BLOCKS = IndexLimits(BLOCK_MESSAGES, BATCH_MESSAGES, BLOCK_CHARACTERS, at_least=1)
_LIVE = IndexLimits(LIVE_MESSAGES, LIVE_MESSAGES, LIVE_CHARACTERS)
T = TypeVar("T")


class HistoryIndex:
    """The writing side of the search index: it finds and reads unindexed messages and stores their terms.

    `version` names the analyzer and the encoding; blocks of another one count as not indexed.
    """

    def __init__(self, transactions: Transactions, analyzer: Analyzer) -> None:
        """Use `transactions`, and tokenize with `analyzer`."""
        self._transactions = transactions
        self.analyzer = analyzer
        self.version = f"{analyzer.name}-{ENTRY_VERSION}"

    async def waiting(self, owner_id: UserId, session_id: SessionId | None) -> tuple[UnindexedSession, ...]:
        """Return the owner's sessions with unindexed messages; with a `session_id` only this session, if it has any."""
        return await find_waiting(self._transactions, owner_id, session_id, self.version)

    async def due(self, owner_id: UserId) -> tuple[UnindexedSession, ...]:
        """Return the owner's sessions that are due for indexing, by the rules of `find_due`."""
        return await find_due(self._transactions, owner_id, self.version)

    async def unmark_complete(self, owner_id: UserId) -> bool:
        """Clear `unindexed_since` of the owner's sessions that are indexed completely.

        One call clears a limited number; return whether there may be more.
        """
        return await unmark_complete(self._transactions, owner_id, self.version)

    async def has_job_under_way(self, owner_id: UserId) -> bool:
        """Whether a worker runs the owner's indexing job."""
        return await is_under_way(self._transactions, index_job(owner_id))

    async def index_blocks(self, sessions: Sequence[SessionId]) -> int:
        """Index the next block of each session, of as many as the limits allow, those with short texts first.

        Returns the number of indexed messages. It is 0 if all are indexed, or if no block could be stored because of a
        redaction or another process.
        """
        blocks: dict[SessionId, IndexBlock] = {}
        messages: list[IndexedMessage] = []
        for message, redactions in await read_messages(self._transactions, sessions, _OF_BLOCKS, self.version):
            known = blocks.get(message.session_id)
            entries = BlockEntries(message.position) if known is None else known.entries
            blocks[message.session_id] = IndexBlock(message.session_id, message.position, redactions, entries)
            messages.append(message)
        for piece in _pieces(messages):
            await self._cut(piece, partial(self._add, blocks, piece))
        stored = await self._write(list(blocks.values()), messages)
        return sum(message.session_id in stored for message in messages)

    async def read_unindexed(self, waiting: Sequence[UnindexedSession]) -> tuple[IndexedMessage, ...]:
        """Return up to LIVE_MESSAGES unindexed messages, for a search to tokenize itself, short sessions first.

        `waiting` are the sessions to read from.
        """
        sessions: list[SessionId] = []
        messages = 0
        for found in sorted(waiting, key=lambda found: found.messages):
            messages += found.messages
            if sessions and messages > LIVE_MESSAGES:
                break
            sessions.append(found.session_id)
        if not sessions:
            return ()
        read = await read_messages(self._transactions, sessions, _LIVE, self.version)
        return tuple(message for message, _ in read)

    async def read_unindexed_before(self, session_id: SessionId, before: int) -> tuple[IndexedMessage, ...]:
        """Return up to LIVE_MESSAGES unindexed messages of the session that stand before this position.

        They have up to LIVE_CHARACTERS; the first is read in any case.
        """
        limits = replace(_LIVE, before=before, at_least=1)
        return tuple(
            message for message, _ in await read_messages(self._transactions, [session_id], limits, self.version)
        )

    async def live_entries(self, messages: Sequence[IndexedMessage], wanted: Collection[str]) -> LiveEntries:
        """Return the messages' index entries for the wanted terms; long texts are tokenized in a thread."""
        return await self._cut(messages, lambda: live_entries_of(self.analyzer, messages, wanted))

    def _add(self, blocks: dict[SessionId, IndexBlock], messages: Sequence[IndexedMessage]) -> None:
        for message in messages:
            blocks[message.session_id].entries.add(self.analyzer, message)

    async def _cut(self, messages: Sequence[IndexedMessage], work: Callable[[], T]) -> T:
        characters = sum(len(message.text) for message in messages)
        return await run_off_loop_if_large(characters, work, large=LARGE_CHARACTERS)

    async def _write(self, blocks: Sequence[IndexBlock], messages: Sequence[IndexedMessage]) -> Collection[SessionId]:
        """Store the blocks, except those whose sessions had a redaction since they were read.

        Return the sessions whose blocks are stored.
        """
        while blocks:
            terms = await self._cut(messages, partial(term_rows, blocks))
            write = partial(write_blocks, blocks=blocks, terms=terms, analyzer=self.version)
            try:
                return await self._transactions.run(write)
            except RedactedMeanwhile as error:
                blocks = [block for block in blocks if block.session_id not in error.sessions]
        return ()


def _pieces(messages: Sequence[IndexedMessage]) -> Iterator[Sequence[IndexedMessage]]:
    """Yield the messages in groups of limited length, so that other work of the owner can run in between."""
    start = characters = 0
    for number, message in enumerate(messages):
        characters += min(len(message.text), MAX_TEXT_CHARACTERS)
        if characters > MAX_TEXT_CHARACTERS and number > start:
            yield messages[start:number]
            start, characters = number, min(len(message.text), MAX_TEXT_CHARACTERS)
    yield messages[start:]
