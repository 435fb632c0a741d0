"""Acceptance of Slack messages: event, run and delivery are stored in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import Row
from throughline.db.connection.signals import Signal
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.runs import resume as run_resume
from throughline.db.runs import submit as run_submit
from throughline.db.statements.rows import to_json, wait_from
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import JsonValue, RunId, SessionId, UserId
from throughline.domain.errors import QueueFull
from throughline.domain.message import Source
from throughline.domain.run import Caps, Run, RunInput, Submission
from throughline.domain.tool import Resolution
from throughline.slack.store.conversations import take_bound
from throughline.slack.store.people import Person, SlackId, ensure_user, guest_name, hold_person
from throughline.slack.store.slack_events import (
    Deleted,
    EditOutcome,
    SlackMessage,
    WithdrawalOutcome,
    edit_message,
    spoken,
    take_event,
    withdraw_message,
)

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
    return next((call.id for call in wait.shown_questions if call.id in row["asked"]), None)


_LOOK = sql("""
    select
        exists (select 1 from slack_events e where e.team_id = :team_id and e.early_edit is null and (
            e.event_id = :event_id or (e.channel_id = :channel_id and e.message_ts = :message_ts))) as is_taken,
        exists (select 1 from slack_conversations c where c.team_id = :team_id and c.channel_id = :channel_id
            and c.thread_ts = :thread_ts) as is_engaged
""")
_ENGAGE = sql("""
    insert into slack_conversations as c (team_id, channel_id, thread_ts, engaged_ts)
    values (:team_id, :channel_id, :thread_ts,
        case when :is_addressed then cast(cast(:message_ts as text) as numeric) end)
    on conflict (team_id, channel_id, thread_ts) do update
    set updated_at = now(), engaged_ts = least(c.engaged_ts, excluded.engaged_ts)
    returning c.session_id, (select s.owner_id from sessions s where s.id = c.session_id and not s.archived) as owner_id
""")
_OPEN_SESSION = sql("""
    with opened as (
        insert into sessions (id, owner_id, agent, source, metadata)
        values (:session_id, :owner_id, :agent, 'slack', cast(:metadata as jsonb))
    )
    update slack_conversations set session_id = :session_id
    where team_id = :team_id and channel_id = :channel_id and thread_ts = :thread_ts
""")
_TAKE_PART = sql("""
    insert into slack_participants (session_id, team_id, slack_user_id)
    select :session_id, :reader_team_id, :reader_id where not exists (
        select 1 from slack_departures d where d.team_id = :team_id and d.channel_id = :channel_id
            and d.reader_team_id = :reader_team_id and d.reader_id = :reader_id
            and d.left_ts > cast(cast(:message_ts as text) as numeric))
    on conflict (session_id, team_id, slack_user_id) do nothing
""")
"""Statement that makes a message's author a participant of the session.

A person who left the channel after sending the message does not become one.
"""

_PUT_OUT = sql("""
    with noted as (
        update slack_events set run_id = :run_id where team_id = :team_id and event_id = :event_id
    )
    insert into slack_deliveries
        (id, run_id, team_id, channel_id, thread_ts, message_ts, reader_id, reader_team_id, notice)
    values (:id, :run_id, :team_id, :channel_id, :thread_ts, :message_ts, :reader_id, :reader_team_id, :notice)
""")


class AcceptOutcome(StrEnum):
    """The result of accepting a message.

    NOT_FOR_US: the message neither addresses the bot nor is in a thread in which the bot takes part. QUEUE_FULL: it is
    refused, and a notice to its author is queued. A message that was deleted before it arrived is also a DUPLICATE.
    ANSWERED: it is the answer to the question of a waiting run.
    """

    ACCEPTED = "accepted"
    ANSWERED = "answered"
    DUPLICATE = "duplicate"
    NOT_FOR_US = "not_for_us"
    QUEUE_FULL = "queue_full"


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """The agent for Slack, the queue limits, and the reply to a message that exceeds them."""

    agent: str = "assistant"
    caps: Caps = field(default_factory=Caps)
    too_many: str = "I still have too many messages to answer. Send it again in a while."


class SlackInbox:
    """Storage of incoming Slack messages: acceptance, edits and deletions."""

    def __init__(self, transactions: Transactions, notifier: Notifier, outgoing: Signal, config: InboxConfig) -> None:
        """Use `transactions`; wake the outbox through `outgoing`."""
        self._transactions = transactions
        self._notifier = notifier
        self._outgoing = outgoing
        self._config = config

    async def accept(self, message: SlackMessage) -> AcceptOutcome:
        """Store the message with its run exactly once, however often and as whichever event it arrives.

        A message that exceeds the queue limits is not stored; a notice to its author is. A message whose author's turn
        waits for an answer in its thread is that answer.
        """
        seen = (await self._transactions.fetch(_LOOK, event_id=message.event_id, **_parameters(message)))[0]
        if seen["is_taken"]:
            return AcceptOutcome.DUPLICATE
        if not (message.is_addressed or seen["is_engaged"]):
            return AcceptOutcome.NOT_FOR_US
        run_id = run_submit.new_run_id()
        try:
            taken = await self._transactions.run(lambda tx: _accept(tx, message, run_id, self._config))
        except QueueFull:
            taken = await self._transactions.run(lambda tx: _refuse(tx, message, self._config.too_many))
        if taken in {AcceptOutcome.ACCEPTED, AcceptOutcome.ANSWERED}:
            self._notifier.announce_work()
        if taken in {AcceptOutcome.ACCEPTED, AcceptOutcome.ANSWERED, AcceptOutcome.QUEUE_FULL}:
            self._outgoing.wake()
        return taken

    async def edit(self, edited: SlackMessage) -> EditOutcome:
        """Change a message whose run is queued. Return LEFT if its turn has started or it is unknown.

        LEFT also if a later edit was stored before, since Slack may redeliver an earlier one. The author is identified
        by their Slack id, because linking may have changed their user. An edit that arrives before its message is
        stored, if the message will be for the bot.
        """
        return await self._transactions.run(lambda tx: edit_message(tx, edited))

    async def withdraw(self, deleted: Deleted) -> WithdrawalOutcome:
        """Cancel a message whose run is queued. A message that arrives after its deletion is not accepted."""
        run = await self._transactions.run(lambda tx: withdraw_message(tx, deleted))
        if run is None:
            return WithdrawalOutcome.LEFT
        self._notifier.announce_events(run.id)
        self._notifier.announce_work()
        self._outgoing.wake()
        return WithdrawalOutcome.WITHDRAWN if run.status.is_final else WithdrawalOutcome.STOPPING


async def _accept(tx: Statements, message: SlackMessage, run_id: RunId, config: InboxConfig) -> AcceptOutcome:
    taken = await take_event(tx, message)
    if taken is None:
        return AcceptOutcome.DUPLICATE
    message = taken
    person = await hold_person(tx, message.who)
    session_id, owner_id = await _session(tx, message, person, config)
    if await answer_question(tx, message, person, session_id) is not None:
        return AcceptOutcome.ANSWERED
    submission = _submission(message, person, (session_id, owner_id))
    await run_submit.submit(tx, run_submit.NewRun(submission, run_id, None, config.caps))
    await _put_out(tx, message, run_id=run_id)
    return AcceptOutcome.ACCEPTED


async def _refuse(tx: Statements, message: SlackMessage, notice: str) -> AcceptOutcome:
    """Queue one notice to the author that the message was not accepted, and engage the bot in its thread."""
    if await take_event(tx, message) is None:
        return AcceptOutcome.DUPLICATE
    if not message.is_direct:
        await _engage(tx, message)
    await _put_out(tx, message, notice=notice)
    return AcceptOutcome.QUEUE_FULL


async def _session(
    tx: Statements, message: SlackMessage, person: Person, config: InboxConfig
) -> tuple[SessionId, UserId]:
    """Return the session and owner for the message's thread; open a session if there is none or it is archived.

    A new thread of a direct conversation may continue a session that the person chose before. A direct conversation
    whose session belongs to the person's former user gets a new session.
    """
    known = (await _engage(tx, message))[0]
    is_anothers = message.is_direct and known["owner_id"] != person.user_id
    if known["owner_id"] is not None and not is_anothers:
        session_id, owner_id = SessionId(known["session_id"]), UserId(known["owner_id"])
    else:
        session_id, owner_id = await _resumed(tx, message, person) or await _opened(tx, message, person, config)
    if not message.is_direct:
        who = {"reader_team_id": message.who.team_id, "reader_id": message.who.user_id}
        await tx.fetch(_TAKE_PART, session_id=session_id, **who, **_parameters(message))
    return session_id, owner_id


async def _engage(tx: Statements, message: SlackMessage) -> Sequence[Row]:
    return await tx.fetch(_ENGAGE, is_addressed=message.is_addressed, **_parameters(message))


async def _resumed(tx: Statements, message: SlackMessage, person: Person) -> tuple[SessionId, UserId] | None:
    """Return the session chosen to continue in this direct conversation's next new thread, None if there is none."""
    if not message.is_direct:
        return None
    session_id = await take_bound(tx, user_id=person.user_id, **_thread_parameters(message))
    return None if session_id is None else (session_id, person.user_id)


async def _opened(
    tx: Statements, message: SlackMessage, person: Person, config: InboxConfig
) -> tuple[SessionId, UserId]:
    session_id, owner_id = SessionId(new_id()), await _owner(tx, message, person)
    thread = _thread_parameters(message)
    metadata: dict[str, JsonValue] = {"slack": dict(thread)}
    await tx.fetch(
        _OPEN_SESSION,
        session_id=session_id,
        owner_id=owner_id,
        agent=config.agent,
        metadata=to_json(metadata),
        **thread,
    )
    return session_id, owner_id


async def _owner(tx: Statements, message: SlackMessage, person: Person) -> UserId:
    """Return a new session's owner: the person in a direct conversation, else a user for the channel itself.

    So a channel's session is not part of any person's own history.
    """
    if message.is_direct:
        return person.user_id
    return await ensure_user(tx, guest_name(SlackId(message.place.team_id, message.place.channel_id)))


def _submission(message: SlackMessage, person: Person, session: tuple[SessionId, UserId]) -> Submission:
    place = message.place
    said_by: dict[str, JsonValue] = {"user": message.who.user_id, "team": message.who.team_id}
    where: dict[str, JsonValue] = {"channel": place.channel_id, "ts": place.message_ts}
    edited: dict[str, JsonValue] = {"edited": message.edited_ts} if message.edited_ts else {}
    return Submission(
        owner_id=session[1],
        session_id=session[0],
        input=RunInput(
            content=spoken(message.text, message.who, person, is_direct=message.is_direct),
            metadata={"slack": {**said_by, **where, **edited}},
        ),
        source=Source.SLACK,
        author=person.user_name,
    )


async def _put_out(tx: Statements, message: SlackMessage, *, run_id: RunId | None = None, notice: str = "") -> None:
    await tx.fetch(
        _PUT_OUT,
        id=new_id(),
        run_id=run_id,
        event_id=message.event_id,
        reader_id=message.who.user_id,
        reader_team_id=message.who.team_id,
        notice=notice,
        **_parameters(message),
    )


def _thread_parameters(message: SlackMessage) -> dict[str, str]:
    return {
        "team_id": message.place.team_id,
        "channel_id": message.place.channel_id,
        "thread_ts": message.thread_ts,
    }


def _parameters(message: SlackMessage) -> dict[str, str]:
    return {**_thread_parameters(message), "message_ts": message.place.message_ts}
