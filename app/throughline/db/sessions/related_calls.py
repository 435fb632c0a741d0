"""Calls and results that belong to the messages of a page and stand on other pages of their session."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.transactions import Transactions
from throughline.db.statements.rows import MESSAGE_COLUMNS, PINNED, message_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId
from throughline.domain.message import Message

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
_BROUGHT = sql("""
    select distinct c.value ->> 'name' as name from messages m cross join jsonb_array_elements(m.tool_calls) c (value)
    where m.session_id = :session_id and m.run_id is null and m.tool_calls <> '[]'
""")


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


async def related_messages(transactions: Transactions, session_id: SessionId, page: ReadPage) -> tuple[Message, ...]:
    """Return the next result of each call in `called`, and the last message before the page with each in `answered`.

    They are in the order of the session. Ids without such a message are left out.
    """
    if not page.called and not page.answered:
        return ()
    rows = await transactions.fetch(
        _RELATED,
        session_id=session_id,
        first=page.first,
        last=page.last,
        before=page.before,
        called=list(page.called),
        answered=list(page.answered),
    )
    return tuple(message_from(row) for row in rows)


async def imported_tool_names(transactions: Transactions, session_id: SessionId) -> frozenset[str]:
    """Return the names of the tools that the session's messages without a run call."""
    return frozenset(row["name"] for row in await transactions.fetch(_BROUGHT, session_id=session_id))
