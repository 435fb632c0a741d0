"""Removal of some messages of one run, in one transaction: they are redacted, or erased with the whole session.

OpenAI's interface deletes responses so, each of which has a part of a run's messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from throughline.db.connection.transactions import Statements
from throughline.db.runs.cancel import request_cancel
from throughline.db.runs.list_runs import read_run
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.quotations import hold_history
from throughline.db.sessions.redaction import Redaction, lock_idle_session, redact_message
from throughline.db.statements.rows import MESSAGE_COLUMNS, input_json, message_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import MessageId, RunId, SessionId, UserId
from throughline.domain.message import Message
from throughline.domain.run import Run, RunInput, RunStatus

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
    await lock_idle_session(tx, wanted.session_id, wanted.owner_id)
    rows = await tx.fetch(_MESSAGES, run_id=wanted.run_id)
    run = await read_run(tx, wanted.owner_id, wanted.run_id)
    removed = wanted.choose(run, [message_from(row) for row in rows])
    for message_id in removed.message_ids:
        await redact_message(tx, Redaction(wanted.owner_id, wanted.session_id, message_id, wanted.actor))
    if not await tx.fetch(_HAS_OTHERS, session_id=wanted.session_id):
        await erase_session(tx, wanted.owner_id, wanted.session_id)
        return is_cancelled
    kept = input_json(removed.kept_input)
    await tx.fetch(_KEEP_INPUT, run_id=wanted.run_id, session_id=wanted.session_id, input=kept)
    return is_cancelled
