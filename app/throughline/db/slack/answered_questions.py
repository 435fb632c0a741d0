"""Messages of Slack that answer the question of a waiting run, in place of a turn of their own."""

from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Statements
from throughline.db.runs import resume as run_resume
from throughline.db.slack.people import Person
from throughline.db.slack.slack_events import SlackMessage
from throughline.db.statements.sql import sql
from throughline.db.statements.wait_rows import wait_from
from throughline.domain.ids import RunId, SessionId, UserId
from throughline.domain.run import Run
from throughline.domain.waiting import Resolution, WaitKind

_ASKED = sql("""
    select r.id, r.owner_id, r.wait, r.waits_until, array(
        select p.call_id from slack_parts p
        where p.delivery_id = d.id and p.call_id is not null and p.status = 'open') as asked
    from slack_deliveries d join runs r on r.id = d.run_id
    where d.team_id = :team_id and d.channel_id = :channel_id and d.thread_ts = :thread_ts
        and d.status in ('waiting', 'delivering') and d.reader_id = :reader_id and d.reader_team_id = :reader_team_id
        and r.session_id = :session_id and r.status = 'waiting'
    for no key update of r
""")
"""The waiting run of this person in this thread, whose row is locked, and the calls that were asked about there."""


async def answer_question(tx: Statements, message: SlackMessage, person: Person, session_id: SessionId) -> Run | None:
    """Give the first open question of the author's waiting run in the thread this message as its answer.

    Return the run; None if no run of theirs waits there for an answer, so that the message begins a turn.
    """
    rows = await tx.fetch(
        _ASKED,
        team_id=message.place.team_id,
        channel_id=message.place.channel_id,
        thread_ts=message.thread_ts,
        reader_id=message.who.user_id,
        reader_team_id=message.who.team_id,
        session_id=session_id,
    )
    call_id = _open_question(rows[0]) if rows else None
    if call_id is None:
        return None
    given = Resolution(call_id, message.text, author=person.user_name)
    return (await run_resume.resume(tx, UserId(rows[0]["owner_id"]), RunId(rows[0]["id"]), [given])).run


def _open_question(row: Row) -> str | None:
    wait = wait_from(row["wait"], row["waits_until"])
    if wait is None:
        return None
    questions = (call.id for call in wait.open_calls if call.kind is WaitKind.ANSWER and call.id in row["asked"])
    return next(questions, None)
