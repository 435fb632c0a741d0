"""Removal of some messages of one run, in one transaction: they are redacted, or erased with the whole session.

OpenAI's interface deletes responses so, each of which has a part of a run's messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.quotations import hold_history
from throughline.db.sessions.redaction import Redaction, lock_idle_session, redact_message
from throughline.db.statements.rows import input_json
from throughline.db.statements.sql import sql
from throughline.domain.ids import MessageId, RunId, SessionId, UserId
from throughline.domain.run import RunInput

_HAS_OTHERS = sql("""
    select 1 as found from messages m
    where m.session_id = :session_id
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
    limit 1
""")
_KEEP_INPUT = sql("update runs set input = cast(:input as json) where id = :run_id and session_id = :session_id")


@dataclass(frozen=True, slots=True)
class Removal:
    """The messages of a run to remove, possibly none, and `kept_input`, what stays of the run's input.

    `actor` is the name of the key that acts on the owner's behalf, None without one.
    """

    owner_id: UserId
    session_id: SessionId
    run_id: RunId
    message_ids: Sequence[MessageId]
    kept_input: RunInput
    actor: str | None = None


async def remove_messages(tx: Statements, wanted: Removal) -> None:
    """Redact the messages; erase the session if all its messages are redacted then, or if it has none.

    Raises NotFound. Raises SessionBusy if the session, or another one that quotes it, has an unfinished turn.
    """
    await hold_history(tx, wanted.owner_id)
    await lock_idle_session(tx, wanted.session_id, wanted.owner_id)
    for message_id in wanted.message_ids:
        await redact_message(tx, Redaction(wanted.owner_id, wanted.session_id, message_id, wanted.actor))
    if not await tx.fetch(_HAS_OTHERS, session_id=wanted.session_id):
        await erase_session(tx, wanted.owner_id, wanted.session_id)
        return
    kept = input_json(wanted.kept_input)
    await tx.fetch(_KEEP_INPUT, run_id=wanted.run_id, session_id=wanted.session_id, input=kept)
