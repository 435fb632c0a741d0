"""Messages that are not in the search index: which sessions have some, which of those are due, and their texts.

A trigger on `sessions` sets `unindexed_since` when a session gains or redacts a message. Storing a block (messages that
are indexed together) that reaches the last message clears it (index_history.py). So the statements here read no session
that is indexed completely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from throughline.context.placeholder_texts import RECALL_TOOLS
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.search.analyzer import MAX_TEXT_CHARACTERS
from throughline.db.search.entries import IndexedMessage
from throughline.db.statements.rows import content_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Content, text_of

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
        select m.session_id, m.position, m.author, m.created_at, m.content, m.content_blocks, m.tool_calls, m.name,
            coalesce(m.name = any(:recall_tools), false) as is_recalled,
            m.created_at - cast(:pause as interval) > (
                select p.created_at from messages p where p.session_id = m.session_id and p.position = m.position - 1
            ) as is_after_pause,
            s.redaction_count, z.bytes,
            least(z.bytes, :text_characters) as characters
        from sessions s {through} join messages m
            on m.session_id = s.id and m.position > coalesce(b.through_position, 0)
                and m.position <= coalesce(b.through_position, 0) + :session_messages
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
class Waiting:
    """A session and the number of its unindexed messages."""

    session_id: SessionId
    messages: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for reading messages of several sessions: messages of each and of all, and characters and bytes of all.

    The first `at_least` messages are read even if they exceed the limits.
    """

    session_messages: int
    messages: int
    characters: int
    bytes: int = BLOCK_BYTES
    at_least: int = 0


async def find_waiting(
    tx: Statements, owner_id: UserId, session_id: SessionId | None, analyzer: str
) -> tuple[Waiting, ...]:
    """Return the owner's sessions with unindexed messages; with a `session_id` only this session, if it has any."""
    return _waiting(await tx.fetch(_WAITING, owner_id=owner_id, session_id=session_id, analyzer=analyzer))


async def find_due(tx: Statements, owner_id: UserId, analyzer: str) -> tuple[Waiting, ...]:
    """Return the owner's sessions with unindexed messages that are due for indexing.

    Due are sessions without a change for IDLE_MINUTES and sessions without runs (imported ones). Others are due with
    LIVE_MESSAGES unindexed messages, or with one that the summary covers.
    """
    return _waiting(
        await tx.fetch(_DUE, owner_id=owner_id, analyzer=analyzer, messages=LIVE_MESSAGES, idle_minutes=IDLE_MINUTES)
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
    tx: Statements, sessions: Sequence[SessionId], limits: Limits, analyzer: str
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
        analyzer=analyzer,
        recall_tools=list(RECALL_TOOLS),
        text_characters=MAX_TEXT_CHARACTERS,
        pause=EPISODE_PAUSE,
    )
    return [(_message(row), row["redaction_count"]) for row in rows]


def _waiting(rows: Sequence[Row]) -> tuple[Waiting, ...]:
    return tuple(Waiting(SessionId(row["session_id"]), row["messages"]) for row in rows)


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
    )


def _text(row: Row) -> str:
    content: Content = row["content"] if row["content_blocks"] is None else content_from(row["content_blocks"])
    calls = [f"{call['name']} {call['arguments']}" for call in row["tool_calls"] if call["name"] not in RECALL_TOOLS]
    return "\n".join([row["name"] or "", text_of(content), *calls])
