"""Appending a message: fence check, position and row in one statement."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.quotations import MARKER
from throughline.db.statements.rows import (
    INSERT_CALLS,
    INSERT_REASONING,
    INSERT_RETURNED,
    MESSAGE_COLUMNS,
    PINNED,
    WRITTEN_COLUMNS,
    call_parameters,
    content_from,
    lease_lost,
    message_from,
    message_parameters,
    reasoning_parameters,
    session_not_found,
)
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import SessionBusy
from throughline.domain.message import Content, Message, NewMessage, text_of
from throughline.domain.run import Lease
from throughline.domain.usage_report import ModelCall

TITLE_LENGTH = 60

_LOOK = sql("select s.title from sessions s where s.id = :session_id for no key update")
_FIRST = sql("""
    select r.input from runs r where r.session_id = :session_id and r.input ->> 'content' not in ('', :marker)
    order by r.seq limit 1
""")
_SET = sql("update sessions set title = :title where id = :session_id")


def title_of(content: Content) -> str:
    """Return the first line of the text that is not blank, cut at a word boundary to TITLE_LENGTH; '' without text."""
    line = next((line.strip() for line in text_of(content).splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    return f"{cut.rsplit(' ', 1)[0].rstrip() or cut}…"


async def retitle(tx: Statements, session_id: SessionId, taken: Content) -> None:
    """Make the title again from the first remaining message, if it was made from the removed text `taken`.

    The title is '' if no message is left; the next message then sets it. A title that a user wrote stays.
    """
    title = (await tx.fetch(_LOOK, session_id=session_id))[0]["title"]
    if not title or title != title_of(taken):
        return
    first = await tx.fetch(_FIRST, session_id=session_id, marker=MARKER)
    new_title = title_of(content_from(first[0]["input"]["content"])) if first else ""
    await tx.fetch(_SET, session_id=session_id, title=new_title)


def _values(source: str) -> str:
    """Return the SQL expressions of the written columns, whose parameters or columns begin with `source`."""
    return ", ".join(
        f"cast({source}{name} as {column.type})" if column.is_json else f"{source}{name}"
        for name, column in WRITTEN_COLUMNS.items()
    )


INSERT_COLUMNS = ", ".join(("id", "session_id", "position", "run_id", "step", *WRITTEN_COLUMNS))
INSERT_VALUES = f":message_id, seat.id, seat.message_count, :run_id, :step, {_values(':')}"

_APPEND = sql(
    """
    with held as (
        select r.session_id, r.owner_id, r.id as run_id, r.agent from runs r
        where r.id = :run_id and r.fence = :fence and r.status = 'running' for share
    ), earlier as (
        select {message_columns} from messages m cross join held where m.run_id = :run_id and m.step = :step
    ), seat as (
        update sessions s set message_count = s.message_count + 1, message_tokens = s.message_tokens + :token_count
        from held where s.id = held.session_id and not exists (select 1 from earlier)
        returning s.id, s.message_count
    ), written as (
        insert into messages as m ({insert_columns}) select {insert_values} from seat returning {message_columns}
    ), reasoned as ({insert_reasoning}), returned as ({insert_returned}), paid as ({insert_calls})
    select * from written union all select * from earlier
""",
    message_columns=MESSAGE_COLUMNS,
    insert_columns=INSERT_COLUMNS,
    insert_values=INSERT_VALUES,
    insert_reasoning=INSERT_REASONING.format(message_id="written.id", source="written"),
    insert_returned=INSERT_RETURNED.format(run_id="written.run_id", message_id="written.id", source="written"),
    insert_calls=INSERT_CALLS.format(
        payer="held.owner_id, held.session_id, held.run_id, held.agent", source="seat join held on true"
    ),
)


async def append_message(
    tx: Statements, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
) -> Message:
    """Append the message under the run's lease, or return the one already stored for (run, step). Raises LeaseLost.

    `step` names the message within its run, so that a repeated attempt stores it only once. `calls` are the model calls
    that the message cost; they and its reasoning are stored with it.

    The position is assigned under the session's row lock and rolls back with the row, so there are no gaps. Two
    concurrent attempts at one step cause a unique violation for the later one, which then finds the row. Each commit
    waits for the disk. That holds for the user's message too, although the run has it: a turn that continues after a
    server crash needs the message.
    """
    rows = await tx.fetch(
        _APPEND,
        message_id=message.id or new_id(),
        run_id=lease.run_id,
        fence=lease.fence,
        step=step,
        **call_parameters(calls),
        **message_parameters(message),
        **reasoning_parameters(message),
    )
    if not rows:
        raise lease_lost(lease)
    return message_from(rows[0])


_APPEND_MANY = sql(
    """
    with given as (
        select * from rows from (json_to_recordset(cast(:messages as json)) as (
            message_id uuid, run_id uuid, step text, {typed_columns}, created_at timestamptz, reasoning text,
            is_reasoning_shown boolean
        )) with ordinality as g (message_id, run_id, step, {columns}, created_at, reasoning, is_reasoning_shown, place)
    ), total as (
        select count(*) as messages, coalesce(sum(token_count), 0) as tokens from given
    ), seat as (
        update sessions s set message_count = s.message_count + total.messages,
            message_tokens = s.message_tokens + total.tokens
        from total where s.id = :session_id returning s.id, s.message_count - total.messages as last_position
    ), reasoned as (
        insert into message_reasoning (message_id, text, is_shown)
        select given.message_id, given.reasoning, given.is_reasoning_shown from seat cross join given
        where given.reasoning is not null
    )
    insert into messages as m ({insert_columns}, created_at)
    select given.message_id, seat.id, seat.last_position + given.place, given.run_id, given.step, {values},
        coalesce(given.created_at, clock_timestamp())
    from seat cross join given order by given.place
""",
    insert_columns=INSERT_COLUMNS,
    typed_columns=", ".join(f"{name} {column.parameter_type}" for name, column in WRITTEN_COLUMNS.items()),
    columns=", ".join(WRITTEN_COLUMNS),
    values=_values("given."),
)


PORTION = 500
PORTION_CHARACTERS = 4_000_000
"""Limits of one statement that appends messages: PORTION messages, and this many characters of JSON.

A single message may be larger. A statement with 200 MB exceeds the time limit; one with 4 MB takes a third of a second.
"""

_LOCK = sql("""
    select (select r.id from runs r where r.session_id = s.id and r.status in ('queued', 'running', 'waiting')
            order by r.seq limit 1) as busy_with,
        exists (select 1 from messages m where m.id = any(cast(:ids as uuid[]))) as is_stored
    from sessions s where s.id = :session_id and s.owner_id = :owner_id for no key update of s
""")
_ADDED = sql(
    "select {columns}, {pinned} from messages m where m.id = any(cast(:ids as uuid[])) order by m.position",
    columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message to append; `run_id` and `step` name its run and its place there, None if it belongs to no run.

    `created_at` is its original time, None for the present time.
    """

    message: NewMessage
    run_id: RunId | None = None
    step: str | None = None
    created_at: datetime | None = None


async def append_messages(tx: Statements, session_id: SessionId, messages: Sequence[RunMessage]) -> None:
    """Append the messages in order, with the text of their reasoning.

    The caller has locked the session's row, so positions have no gaps.
    """
    for written in _portions(messages):
        await tx.fetch(_APPEND_MANY, session_id=session_id, messages=written)


async def append_history(
    tx: Statements, owner_id: UserId, session_id: SessionId, messages: Sequence[NewMessage]
) -> tuple[Message, ...]:
    """Append messages with ids of their own that belong to no turn, and return them; a repeated call adds nothing.

    Raises NotFound, and SessionBusy while a turn of the session is unfinished.
    """
    ids = [message.id for message in messages]
    locked = await tx.fetch(_LOCK, session_id=session_id, owner_id=owner_id, ids=ids)
    if not locked:
        raise session_not_found(session_id)
    if locked[0]["busy_with"] is not None:
        raise SessionBusy(
            f"The turn {locked[0]['busy_with']} of session {session_id} is not finished, so nothing can be added. Wait "
            "for it or cancel it.",
            run_id=str(locked[0]["busy_with"]),
        )
    if not locked[0]["is_stored"]:
        await append_messages(tx, session_id, [RunMessage(message) for message in messages])
    return tuple(message_from(row) for row in await tx.fetch(_ADDED, session_id=session_id, ids=ids))


def _portions(messages: Sequence[RunMessage]) -> Iterator[str]:
    """Yield the messages as JSON lists, each small enough for one statement."""
    portion: list[str] = []
    characters = 0
    for one in messages:
        portion.append(json.dumps(_parameters(one), ensure_ascii=False))
        characters += len(portion[-1])
        if len(portion) >= PORTION or characters >= PORTION_CHARACTERS:
            yield f"[{','.join(portion)}]"
            portion, characters = [], 0
    if portion:
        yield f"[{','.join(portion)}]"


def _parameters(one: RunMessage) -> dict[str, object]:
    reasoning = one.message.reasoning
    return {
        "message_id": str(one.message.id or new_id()),
        "run_id": None if one.run_id is None else str(one.run_id),
        "step": one.step,
        **message_parameters(one.message),
        "created_at": None if one.created_at is None else one.created_at.isoformat(),
        "reasoning": None if reasoning is None else reasoning.text or None,
        "is_reasoning_shown": reasoning is not None and reasoning.is_shown,
    }
