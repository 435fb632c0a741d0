"""The runs of a session, newest first, page by page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.runs.cancel import request_cancel
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.quotations import hold_history
from throughline.db.sessions.redaction import lock_idle_session, redact_messages
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    MESSAGE_IDS,
    RUN_COLUMNS,
    input_json,
    message_from,
    run_from,
    run_not_found,
    session_not_found,
)
from throughline.db.statements.sql import invalid_cursor, sql
from throughline.domain.basic_types import MessageId, Page, RunId, SessionId, UserId
from throughline.domain.message import Message
from throughline.domain.run import Run, RunInput, RunStatus

_GET = sql(
    "select {run_columns}, {message_ids} from runs r where r.id = :run_id and r.owner_id = :owner_id",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


async def read_run(tx: Statements, owner_id: UserId, run_id: RunId) -> Run:
    """Return the run. Raises NotFound if it is missing or another user's."""
    rows = await tx.fetch(_GET, run_id=run_id, owner_id=owner_id)
    if not rows:
        raise run_not_found(run_id)
    return run_from(rows[0])


PAGE_BYTES = 8_000_000
"""Size limit of a page of runs, with their inputs and reports; the page ends with the run that reaches it."""

_PAGE = """
    with asked as (
        select r.* from runs r join sessions s on s.id = r.session_id
        where r.session_id = :session_id and s.owner_id = :owner_id {and_has_status}
            and r.seq < case when cast(:cursor as uuid) is null then 9223372036854775807 else (
                select c.seq from runs c where c.id = :cursor and c.session_id = :session_id) end
        order by r.seq desc limit :limit
    ), measured as (
        select a.*, count(*) over () as found, sum(
            octet_length(cast(a.input as text)) + coalesce(octet_length(cast(a.context as text)), 0)
        ) over (order by a.seq desc rows between unbounded preceding and 1 preceding) as bytes_before
        from asked a
    )
    select {run_columns}, {message_ids}, r.found from measured r
    where coalesce(r.bytes_before, 0) < :max_bytes order by r.seq desc
"""
_COLUMNS = {"run_columns": RUN_COLUMNS, "message_ids": MESSAGE_IDS}
_ALL = sql(_PAGE, **_COLUMNS, and_has_status="")
_WITH_STATUS = sql(_PAGE, **_COLUMNS, and_has_status="and r.status = :status")
_SESSION = sql("""
    select exists (select 1 from runs c where c.id = :cursor and c.session_id = s.id) as has_cursor
    from sessions s where s.id = :session_id and s.owner_id = :owner_id
""")


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The runs to list: those older than the run `cursor`, None for the newest; with `status`, only those in it."""

    limit: int = 50
    cursor: RunId | None = None
    status: RunStatus | None = None


async def list_runs(transactions: Transactions, owner_id: UserId, session_id: SessionId, query: RunQuery) -> Page[Run]:
    """Return one page of the session's runs, the last submitted first. A page of large runs is shorter.

    The page's cursor is the id of its last run. Raises NotFound if the session is missing or another user's, and
    InvalidInput if the session has no run `cursor`.
    """
    asked = {"session_id": session_id, "owner_id": owner_id, "cursor": query.cursor}
    limits = {"limit": query.limit + 1, "max_bytes": PAGE_BYTES}
    if query.status is None:
        rows = await transactions.fetch(_ALL, **asked, **limits)
    else:
        rows = await transactions.fetch(_WITH_STATUS, **asked, **limits, status=query.status.value)
    if not rows:
        await _check(transactions, owner_id, session_id, query)
    runs = tuple(run_from(row) for row in rows[: query.limit])
    has_more = bool(rows) and rows[0]["found"] > len(runs)
    return Page(runs, str(runs[-1].id) if has_more else None)


async def _check(transactions: Transactions, owner_id: UserId, session_id: SessionId, query: RunQuery) -> None:
    """Raise NotFound or InvalidInput if the session or the cursor is the reason why nothing was found."""
    found = await transactions.fetch(_SESSION, session_id=session_id, owner_id=owner_id, cursor=query.cursor)
    if not found:
        raise session_not_found(session_id)
    if query.cursor is not None and not found[0]["has_cursor"]:
        raise invalid_cursor()


# Removal of some messages of one run, in one transaction: they are redacted, or erased with the whole session.
#
# OpenAI's interface deletes responses so, each of which has a part of a run's messages.

_MESSAGES = sql(
    "select {message_columns} from messages m where m.run_id = :run_id order by m.position",
    message_columns=MESSAGE_COLUMNS,
)
_HAS_OTHERS = sql("""
    select 1 as found from messages m
    where m.session_id = :session_id
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
    limit 1
""")
_KEEP_INPUT = sql("update runs set input = cast(:input as json) where id = :run_id and session_id = :session_id")


@dataclass(frozen=True, slots=True)
class Removed:
    """The messages to remove, possibly none, and what stays of their run's input."""

    message_ids: Sequence[MessageId]
    kept_input: RunInput


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal of messages of a run.

    `choose` is given the run and all its messages, as they are once no turn of the session goes on, and says what to
    remove. With `cancels_wait` a waiting run is cancelled first. `actor` is the name of the key that acts on the
    owner's behalf, None without one.
    """

    owner_id: UserId
    session_id: SessionId
    run_id: RunId
    choose: Callable[[Run, Sequence[Message]], Removed]
    cancels_wait: bool = False
    actor: str | None = None


async def remove_messages(tx: Statements, wanted: Removal) -> bool:
    """Redact the chosen messages of the run and replace its input; return whether its wait was cancelled first.

    The session is erased if it has no message without redaction then.

    Raises NotFound. Raises SessionBusy if the session, or another one that quotes it, has an unfinished turn.
    """
    await hold_history(tx, wanted.owner_id)
    run = await read_run(tx, wanted.owner_id, wanted.run_id)
    is_cancelled = wanted.cancels_wait and run.status is RunStatus.WAITING
    if is_cancelled:
        await request_cancel(tx, wanted.owner_id, wanted.run_id)
    session = await lock_idle_session(tx, run.session_id, wanted.owner_id)
    rows = await tx.fetch(_MESSAGES, run_id=wanted.run_id)
    run = await read_run(tx, wanted.owner_id, wanted.run_id)
    removed = wanted.choose(run, [message_from(row) for row in rows])
    await redact_messages(tx, session, removed.message_ids, wanted.actor)
    if not await tx.fetch(_HAS_OTHERS, session_id=session.id):
        await erase_session(tx, wanted.owner_id, session.id)
        return is_cancelled
    kept = input_json(removed.kept_input)
    await tx.fetch(_KEEP_INPUT, run_id=wanted.run_id, session_id=session.id, input=kept)
    return is_cancelled
