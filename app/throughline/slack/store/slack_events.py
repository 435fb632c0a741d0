"""Incoming Slack events: messages, their edits and deletions, departures from channels, and participants."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from throughline.db.connection.transactions import Repository, Statements
from throughline.db.runs import cancel as run_cancel
from throughline.db.sessions.append import retitle
from throughline.db.statements.rows import content_from, to_json
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import JsonValue, RunId, SessionId, UserId
from throughline.domain.run import Run, RunStatus
from throughline.slack.store.people import Person, SlackId, ensure_person, guest_name, lock_person


@dataclass(frozen=True, slots=True)
class SlackLocation:
    """The location of a message in Slack.

    `team_id` is the enterprise's id if the app is installed organisation-wide.
    """

    team_id: str
    channel_id: str
    message_ts: str


class EditOutcome(StrEnum):
    """The result of an edit. `KEPT`: stored for a message that has not arrived yet. `LEFT`: ignored."""

    CHANGED = "changed"
    KEPT = "kept"
    LEFT = "left"


class WithdrawalOutcome(StrEnum):
    """The result of a deletion. `LEFT`: no message waits there; one that arrives later is not accepted."""

    WITHDRAWN = "withdrawn"
    STOPPING = "stopping"
    """The message's turn has just started and is asked to stop; the message's text stays."""

    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion of a Slack message."""

    event_id: str
    place: SlackLocation


@dataclass(frozen=True, slots=True)
class Left:
    """A person's departure or removal from a channel at `left_ts` (Slack's decimal seconds, '' if unknown)."""

    team_id: str
    channel_id: str
    who: SlackId
    left_ts: str


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A message from Slack, with its text as people read it.

    `thread_ts` is the message's own timestamp outside a thread. `is_direct`: it is in a direct conversation with the
    bot. `is_addressed`: it addresses the bot, whether or not the bot already takes part in the thread. `edited_ts` is
    the time of the last edit (Slack's decimal seconds), '' if it was not edited. An edit is the message with its new
    text.
    """

    event_id: str
    place: SlackLocation
    thread_ts: str
    who: SlackId
    text: str
    is_direct: bool
    is_addressed: bool
    edited_ts: str = ""


# Storage of Slack messages, edits and deletions in any order of arrival; `slack_events` has one row per message. An
# edit that arrives before its message is stored in that row. A deletion that arrives first occupies the row, so that
# the message is not accepted.

_TAKE_EVENT = sql("""
    insert into slack_events (team_id, event_id, channel_id, message_ts)
    values (:team_id, :event_id, :channel_id, :message_ts) on conflict do nothing returning 1 as taken
""")
_TAKE_EARLY_EDIT = sql("""
    with early as (
        select e.event_id, e.early_edit from slack_events e
        where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
            and e.early_edit is not null for update
    )
    update slack_events e set event_id = :event_id, early_edit = null from early
    where e.team_id = :team_id and e.event_id = early.event_id returning early.early_edit
""")
_KEEP_EARLY_EDIT = sql("""
    insert into slack_events (team_id, event_id, channel_id, message_ts, early_edit)
    select :team_id, :event_id, :channel_id, :message_ts, cast(:early_edit as jsonb)
    where :is_addressed or exists (select 1 from slack_conversations c where c.team_id = :team_id
        and c.channel_id = :channel_id and c.thread_ts = :thread_ts
        and coalesce(c.engaged_ts, extract(epoch from c.created_at)) < cast(cast(:message_ts as text) as numeric))
    on conflict do nothing returning 1 as kept
""")
"""Statement that stores an edit which arrived before its message.

Messages written in a thread before the bot was called into it are not for the bot, so their edits are ignored.
"""

_KEEP_LATER_EDIT = sql("""
    update slack_events e set early_edit = cast(:early_edit as jsonb)
    where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
        and cast(e.early_edit ->> 'edited' as numeric) < cast(cast(:edited as text) as numeric)
    returning 1 as kept
""")
_DROP_EARLY_EDIT = sql("""
    update slack_events e set early_edit = null
    where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
        and e.early_edit is not null
""")
_WAITING = sql("""
    select r.id, r.session_id, r.input from slack_events e join runs r on r.id = e.run_id
    where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts and r.status = 'queued'
        and r.input #>> '{metadata,slack,user}' = :user and r.input #>> '{metadata,slack,team}' = :team
        and coalesce(cast(r.input #>> '{metadata,slack,edited}' as numeric), 0) < cast(cast(:edited as text) as numeric)
    for update of r
""")
_EDIT = sql("""
    update runs r
    set input = cast(jsonb_set(
        jsonb_set(cast(r.input as jsonb), '{content}', to_jsonb(cast(:content as text))),
        '{metadata,slack,edited}', to_jsonb(cast(:edited as text))) as json)
    where r.id = :run_id
""")
_RUN_OF = sql("""
    select r.id, r.owner_id, r.status, r.session_id from slack_events e join runs r on r.id = e.run_id
    where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
""")
LATE_SECONDS = 24 * 3600.0
"""Most seconds between a message and its edit for which the message may still arrive after the edit.

Slack redelivers for minutes, or hourly for a day.
"""


async def take_event(tx: Statements, message: SlackMessage) -> SlackMessage | None:
    """Return the message with its newest text, None if it was accepted before or deleted.

    Waits for a concurrent transaction that accepts the same message.
    """
    place = location_parameters(message.place)
    if await tx.fetch(_TAKE_EVENT, event_id=message.event_id, **place):
        return message
    early = await tx.fetch(_TAKE_EARLY_EDIT, event_id=message.event_id, **place)
    return _as_edited(message, early[0]["early_edit"]) if early else None


def _as_edited(message: SlackMessage, edit: Mapping[str, JsonValue]) -> SlackMessage:
    """Return the arriving message with the edit that was stored before it; an edit by another person is ignored."""
    if (edit["user"], edit["team"]) != (message.who.user_id, message.who.team_id):
        return message
    return replace(message, text=str(edit["text"]), edited_ts=str(edit["edited"]))


async def edit_message(tx: Statements, edited: SlackMessage) -> EditOutcome:
    """Change the message if its run is queued, or store the edit for a message that may still arrive.

    The old text is not kept anywhere: a title made from it is made again. Return LEFT, with nothing changed, if the
    run is not queued, or if the edit is another person's or older than one stored before.
    """
    if await _keep_early(tx, edited):
        return EditOutcome.KEPT
    who, when = edited.who, edited.edited_ts
    waiting = await tx.fetch(
        _WAITING, user=who.user_id, team=who.team_id, edited=when, **location_parameters(edited.place)
    )
    if not waiting:
        return EditOutcome.LEFT
    was = content_from(waiting[0]["input"]["content"])
    content = spoken(edited.text, who, await ensure_person(tx, who), is_direct=edited.is_direct)
    await tx.fetch(_EDIT, run_id=waiting[0]["id"], content=content, edited=when)
    await retitle(tx, SessionId(waiting[0]["session_id"]), was)
    return EditOutcome.CHANGED


async def _keep_early(tx: Statements, edited: SlackMessage) -> bool:
    """Store the newest edit of a message that may still arrive; return whether it was stored.

    This runs first, because it waits for a transaction that is just accepting the message.
    """
    place = location_parameters(edited.place)
    if float(edited.edited_ts) - float(edited.place.message_ts) > LATE_SECONDS:
        return False
    said_by: dict[str, JsonValue] = {"user": edited.who.user_id, "team": edited.who.team_id}
    edit = to_json({**said_by, "text": edited.text, "edited": edited.edited_ts})
    kept = await tx.fetch(
        _KEEP_EARLY_EDIT,
        event_id=edited.event_id,
        thread_ts=edited.thread_ts,
        is_addressed=edited.is_addressed,
        early_edit=edit,
        **place,
    )
    return bool(kept or await tx.fetch(_KEEP_LATER_EDIT, early_edit=edit, edited=edited.edited_ts, **place))


async def withdraw_message(tx: Statements, deleted: Deleted) -> Run | None:
    """Cancel the message's run and delete its text if the run is queued, and return the run; else return None.

    The message is not accepted if it arrives later.
    """
    place = location_parameters(deleted.place)
    if not await tx.fetch(_TAKE_EVENT, event_id=deleted.event_id, **place):
        await tx.fetch(_DROP_EARLY_EDIT, **place)
    found = await tx.fetch(_RUN_OF, **place)
    if not found or found[0]["status"] != RunStatus.QUEUED.value:
        return None
    return await run_cancel.withdraw(tx, UserId(found[0]["owner_id"]), RunId(found[0]["id"]))


def spoken(said: str, who: SlackId, person: Person, *, is_direct: bool) -> str:
    """Return the text for the model; in a channel with the speaker's name, since several people share a session."""
    return said if is_direct else f"{person.display_name or who.user_id}: {said}"


def location_parameters(place: SlackLocation) -> dict[str, object]:
    """Return a message's location as parameters of statements on `slack_events`."""
    return {"team_id": place.team_id, "channel_id": place.channel_id, "message_ts": place.message_ts}


# Participants of sessions: people besides the owner who wrote to a session in Slack. They are stored by Slack identity.
# Whichever user that identity is linked to has access, and a former user has not.

IS_ANY_SHARED = sql("select exists (select 1 from slack_participants) as is_shared")
OWNER_FOR = sql("""
    select s.owner_id from sessions s
    where (s.id = cast(:session_id as uuid)
        or s.id = (select r.session_id from runs r where r.id = cast(:run_id as uuid))
    ) and exists (
        select 1 from slack_participants p join slack_users u using (team_id, slack_user_id)
        where p.session_id = s.id and u.user_id = :user_id)
""")
_NOTE_DEPARTURE = sql("""
    insert into slack_departures as d (team_id, channel_id, reader_team_id, reader_id, left_ts)
    values (:team_id, :channel_id, :reader_team_id, :reader_id, cast(cast(:left_ts as text) as numeric))
    on conflict (team_id, channel_id, reader_team_id, reader_id) do update
    set left_ts = greatest(d.left_ts, excluded.left_ts), created_at = now()
""")
_END_PARTS = sql("""
    delete from slack_participants p using sessions s, users o
    where p.team_id = :reader_team_id and p.slack_user_id = :reader_id
        and s.id = p.session_id and o.id = s.owner_id and o.name = :channel_name
    returning p.session_id
""")


class Participants(Repository):
    """Removal of participants. They are added when a message of theirs is accepted."""

    async def leave(self, left: Left) -> int:
        """Remove a person who left a Slack channel from the sessions of that channel; return how many those were.

        A person with several Slack ids keeps access by the others. A message of theirs that is being accepted is waited
        for. A message sent before they left but delivered later does not make them a participant.
        """
        return await self._transactions.run(lambda tx: _leave(tx, left))


async def _leave(tx: Statements, left: Left) -> int:
    who = {"reader_team_id": left.who.team_id, "reader_id": left.who.user_id}
    await lock_person(tx, left.who)
    await tx.fetch(
        _NOTE_DEPARTURE, team_id=left.team_id, channel_id=left.channel_id, left_ts=left.left_ts or "0", **who
    )
    channel = guest_name(SlackId(left.team_id, left.channel_id))
    return len(await tx.fetch(_END_PARTS, channel_name=channel, **who))
