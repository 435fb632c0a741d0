"""The message log: appending, and reading the history page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.sessions.append import append_message
from throughline.db.sessions.graph_states import load_graph_state, save_graph_state
from throughline.db.sessions.load_context import Wanted, with_returned_reasoning
from throughline.db.sessions.message_cache import MessageCache, load_known_context
from throughline.db.sessions.quotations import quotes_elsewhere, still_quotable
from throughline.db.sessions.redaction import Redacted, Redaction, redact_message
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    PINNED,
    message_from,
    session_not_found,
)
from throughline.db.statements.sql import new_id, sql
from throughline.domain.agent_graph import GraphState
from throughline.domain.basic_types import JsonObject, MessageId, Page, RunId, SessionId, UserId
from throughline.domain.errors import NotFound
from throughline.domain.message import CLIENT_MESSAGE_ID, LAST_POSITION, Message, NewMessage
from throughline.domain.reasoning import Reasoning
from throughline.domain.run import Lease, Run
from throughline.domain.summary import Conversation, MeasuredMessages, ReadLimits
from throughline.domain.usage_report import ModelCall

_OWNER = sql("select s.owner_id from sessions s where s.id = :id")
_AFTER = sql(
    """
    select {message_columns}, {pinned} from messages m
    where m.session_id = :session_id and m.position > coalesce(
        (select a.position from messages a where a.id = :after_id and a.session_id = :session_id), 0)
    order by m.position limit :limit
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_MEASURE = sql("""
    select count(*) as messages, coalesce(sum(token_count), 0) as tokens,
        coalesce(min(position), cast(:last as integer)) as first_position
    from (
        select e.position, e.token_count, sum(e.token_count) over (order by e.position desc) as behind,
            row_number() over (order by e.position desc) as number
        from (
            select m.position, cast(least(cast(:largest_message as integer), case
                when m.role = 'tool' and octet_length(m.content) > cast(:tool_characters as integer)
                    then cast(m.token_count as bigint) * cast(:tool_characters as integer) / octet_length(m.content)
                else m.token_count end) as integer) as token_count
            from messages m where m.session_id = :session_id and m.position between :first and :last
        ) e
    ) read where behind <= cast(:most_tokens as bigint) and number <= cast(:most_messages as bigint)
""")
_GET = sql(
    """
    select {message_columns}, {pinned} from messages m join sessions s on s.id = m.session_id
    where m.id = :id and s.id = :session_id and s.owner_id = :owner_id
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_FIND_USER_MESSAGE = sql(
    """
    select {message_columns}, {pinned} from messages m join sessions s on s.id = m.session_id
    where s.id = :session_id and s.owner_id = :owner_id and m.role = 'user'
        and m.position > (select max(n.position) from messages n where n.session_id = :session_id) - :newest_count
        and (m.metadata ->> :client_id = :id or cast(m.id as text) = :id)
    order by m.position desc limit 1
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_SESSIONS_OF = sql("""
    select m.id, m.session_id from messages m join sessions s on s.id = m.session_id
    where m.id = any(cast(:ids as uuid[])) and s.owner_id = :owner_id
""")
_OF_RUN = sql(
    """
    select {message_columns}, {pinned} from messages m
    where m.session_id = :session_id and m.run_id = :run_id order by m.position
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_RELATED = sql(
    """
    select {columns}, {pinned} from messages m where m.id in (
        (select distinct on (r.tool_call_id) r.id from messages r
        where r.session_id = :session_id and r.position > :last and r.position < :before
            and r.role = 'tool' and r.tool_call_id = any(cast(:called as text[]))
        order by r.tool_call_id, r.position)
        union all
        (select distinct on (c.value ->> 'id') s.id
        from messages s cross join jsonb_array_elements(s.tool_calls) c (value)
        where s.session_id = :session_id and s.position < :first
            and s.tool_calls <> '[]' and c.value ->> 'id' = any(cast(:answered as text[]))
        order by c.value ->> 'id', s.position desc)
    ) order by m.position
""",
    columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_IMPORTED_TOOLS = sql("""
    select distinct c.value ->> 'name' as name from messages m cross join jsonb_array_elements(m.tool_calls) c (value)
    where m.session_id = :session_id and m.run_id is null and m.tool_calls <> '[]'
""")
_EXISTS = sql("select 1 as found from sessions where id = :session_id and owner_id = :owner_id")
_PAGE = """
    with asked as (
        select {message_columns}, {reasoning} as reasoning, {is_shown} as is_reasoning_shown
        from messages m join sessions s on s.id = m.session_id {with_reasoning}
        where s.id = :session_id and s.owner_id = :owner_id and m.position > :after and m.position < :before
        order by m.position {direction} limit :limit
    ), measured as (
        select m.*, count(*) over () as found, sum(
            coalesce(octet_length(m.content), octet_length(cast(m.content_blocks as text)))
            + octet_length(cast(m.tool_calls as text)) + coalesce(octet_length(m.reasoning), 0)
        ) over (order by m.position {direction}) as bytes
        from asked m
    ), counted as (
        select measured.*, lag(measured.bytes, 1, 0) over (order by position {direction}) as bytes_before from measured
    )
    select {message_columns}, {pinned}, m.found, m.reasoning, m.is_reasoning_shown
    from counted m where m.bytes_before < :max_bytes
    order by m.position {direction}
"""
_WITHOUT_REASONING = {"reasoning": "cast(null as text)", "is_shown": "false", "with_reasoning": ""}
_WITH_REASONING = {
    "reasoning": "t.text",
    "is_shown": "t.is_shown",
    "with_reasoning": "left join message_reasoning t on t.message_id = m.id and (t.is_shown or :reads_hidden)",
}


def _pages(pieces: Mapping[str, str]) -> Mapping[str, Statement]:
    """Return the statement for a page in each order."""
    columns = {"message_columns": MESSAGE_COLUMNS, "pinned": PINNED}
    return {order: sql(_PAGE, **columns, **pieces, direction=order) for order in ("asc", "desc")}


_PAGES, _PAGES_WITH_REASONING = _pages(_WITHOUT_REASONING), _pages(_WITH_REASONING)
PAGE_BYTES = 8_000_000
"""Size limit of a page of messages; the page ends with the message that reaches it."""
"""The largest position that a message may have."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Positions `first` to `last` of a session; `before` is the first position that is not read at all.

    `called` are the ids of the page's calls without a result in it, `answered` those of its results without a call.
    """

    first: int
    last: int
    before: int
    called: Sequence[str]
    answered: Sequence[str]


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """The messages to list: exclusive position bounds, limit, and order by position.

    With `reasoning` their reasoning is read too: what users may read, or all of it.
    """

    after: int | None = None
    before: int | None = None
    limit: int = 50
    order: Literal["asc", "desc"] = "asc"
    reasoning: Literal["none", "shown", "all"] = "none"


class MessageRepository:
    """The messages of sessions: implements the interface MessageStore (ports/storage.py) for turns.

    It also lists and redacts messages for users.
    """

    def __init__(self, transactions: Transactions, loaded: MessageCache) -> None:
        """Use `transactions`, and cache loaded rows in `loaded`."""
        self._transactions = transactions
        self._loaded = loaded

    async def find_owner(self, session_id: SessionId) -> UserId:
        rows = await self._transactions.fetch(_OWNER, id=session_id)
        if not rows:
            raise session_not_found(session_id)
        return UserId(rows[0]["owner_id"])

    async def load_context(self, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> Conversation:
        wanted = Wanted(session_id, run_id, max_tokens)
        loaded = await load_known_context(self._transactions, self._loaded, wanted)
        return await with_returned_reasoning(self._transactions, loaded, run_id)

    def new_message_id(self) -> MessageId:
        return MessageId(new_id())

    async def append_message(
        self, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
    ) -> Message:
        if not quotes_elsewhere(lease, message):
            return await append_message(self._transactions, lease, step, message, calls)
        return await self._transactions.run(lambda tx: _append_quotation(tx, lease, step, message))

    async def append_graph_step(
        self, lease: Lease, messages: Sequence[tuple[str, NewMessage]], state: JsonObject, calls: Sequence[ModelCall]
    ) -> tuple[Message, ...]:
        async def write(tx: Statements) -> tuple[Message, ...]:
            left, stored = tuple(calls), []
            for step, message in messages:
                stored.append(await append_message(tx, lease, step, message, left))
                left = ()
            await save_graph_state(tx, lease, state)
            return tuple(stored)

        return await self._transactions.run(write)

    async def load_graph_state(self, session_id: SessionId) -> GraphState | None:
        return await load_graph_state(self._transactions, session_id)

    async def get_messages_after(
        self, session_id: SessionId, after_message_id: MessageId | None, limit: int = 200
    ) -> tuple[Message, ...]:
        rows = await self._transactions.fetch(_AFTER, session_id=session_id, after_id=after_message_id, limit=limit)
        return tuple(message_from(row) for row in rows)

    async def of_run(self, run: Run) -> tuple[Message, ...]:
        """Return all messages of the run, oldest first; empty if it has stored none yet."""
        rows = await self._transactions.fetch(_OF_RUN, session_id=run.session_id, run_id=run.id)
        return tuple(message_from(row) for row in rows)

    async def related_messages(self, session_id: SessionId, page: ReadPage) -> tuple[Message, ...]:
        """Return the next result of each call in `called`, and the last message before the page of each in `answered`.

        They are in the order of the session. Ids without such a message are left out.
        """
        if not page.called and not page.answered:
            return ()
        rows = await self._transactions.fetch(
            _RELATED,
            session_id=session_id,
            first=page.first,
            last=page.last,
            before=page.before,
            called=list(page.called),
            answered=list(page.answered),
        )
        return tuple(message_from(row) for row in rows)

    async def imported_tool_names(self, session_id: SessionId) -> frozenset[str]:
        """Return the names of the tools that the session's messages without a run call."""
        rows = await self._transactions.fetch(_IMPORTED_TOOLS, session_id=session_id)
        return frozenset(row["name"] for row in rows)

    async def measure(self, session_id: SessionId, first: int, last: int, limits: ReadLimits) -> MeasuredMessages:
        rows = await self._transactions.fetch(
            _MEASURE,
            session_id=session_id,
            first=first,
            last=last,
            most_tokens=limits.tokens,
            most_messages=limits.messages,
            largest_message=limits.largest_message,
            tool_characters=limits.tool_characters,
        )
        row = rows[0]
        return MeasuredMessages(row["first_position"], row["messages"], int(row["tokens"]))

    async def list_messages(self, owner_id: UserId, session_id: SessionId, query: MessageQuery) -> Page[Message]:
        """Return one page of the session's messages. Raises NotFound.

        The page's cursor is the position of its last message, None on the last page. The next page is listed with it as
        `after`, or in descending order as `before`.
        """
        pages = _PAGES if query.reasoning == "none" else _PAGES_WITH_REASONING
        rows = await self._transactions.fetch(
            pages[query.order],
            owner_id=owner_id,
            session_id=session_id,
            after=_bounded(query.after, 0),
            before=_bounded(query.before, LAST_POSITION),
            limit=query.limit + 1,
            max_bytes=PAGE_BYTES,
            reads_hidden=query.reasoning == "all",
        )
        if not rows and not await self._transactions.fetch(_EXISTS, owner_id=owner_id, session_id=session_id):
            raise session_not_found(session_id)
        messages = tuple(_listed(row) for row in rows[: query.limit])
        has_more = bool(rows) and rows[0]["found"] > len(messages)
        return Page(messages, str(messages[-1].position) if has_more else None)

    async def redact(self, wanted: Redaction) -> Redacted:
        """Replace the text of a message and its copies by a marker, and delete data derived from the text.

        Raises NotFound. Raises SessionBusy if the session, or another one that quotes the message or has a copy of it,
        has an unfinished turn.
        """
        try:
            redacted = await self._transactions.run(lambda tx: redact_message(tx, wanted))
        finally:  # do not keep the old text in memory until the next turn
            self._loaded.forget(wanted.session_id)
        for session_id in redacted.session_ids:
            self._loaded.forget(session_id)
        return redacted

    async def get_message(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> Message:
        """Return one message of the owner's session. Raises NotFound."""
        rows = await self._transactions.fetch(_GET, id=message_id, session_id=session_id, owner_id=owner_id)
        if not rows:
            raise NotFound(f"There is no message {message_id} in session {session_id}.")
        return message_from(rows[0])

    async def find_user_message(
        self, owner_id: UserId, session_id: SessionId, message_id: str, newest_count: int
    ) -> Message | None:
        """Return the user's newest message with this id (the client's or its own); None without one.

        It is looked for among the session's `newest_count` newest messages.
        """
        asked = {"session_id": session_id, "owner_id": owner_id, "id": message_id, "newest_count": newest_count}
        rows = await self._transactions.fetch(_FIND_USER_MESSAGE, **asked, client_id=CLIENT_MESSAGE_ID)
        return message_from(rows[0]) if rows else None

    async def sessions_of(self, owner_id: UserId, ids: Sequence[MessageId]) -> Mapping[MessageId, SessionId]:
        """Return the session of each message that is the owner's; the others are left out."""
        rows = await self._transactions.fetch(_SESSIONS_OF, ids=list(ids), owner_id=owner_id)
        return {MessageId(row["id"]): SessionId(row["session_id"]) for row in rows}


async def _append_quotation(tx: Statements, lease: Lease, step: str, message: NewMessage) -> Message:
    return await append_message(tx, lease, step, await still_quotable(tx, lease, message))


def _listed(row: Row) -> Message:
    """Return the message of a page's row, with its reasoning if the page has it."""
    message, text = message_from(row), row["reasoning"]
    return message if text is None else replace(message, reasoning=Reasoning(text, is_shown=row["is_reasoning_shown"]))


def _bounded(position: int | None, default: int) -> int:
    """Return the position limited to the range of its column, `default` for None."""
    return default if position is None else min(max(position, 0), LAST_POSITION)
