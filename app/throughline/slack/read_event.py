"""Conversion of Slack's events to the service's own types. Events that need no action become None.

Events are those of https://docs.slack.dev/reference/events/ : `message` with its subtypes, `app_mention`,
`reaction_added` and `member_left_channel`. Unknown fields are ignored, because Slack adds fields often.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import structlog
from pydantic import BaseModel, ValidationError

from throughline.domain.message import clean_text, is_blank
from throughline.slack.config import Identity
from throughline.slack.store.database import SlackDatabase
from throughline.slack.store.inbox import AcceptOutcome
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import (
    Deleted,
    EditOutcome,
    Left,
    SlackLocation,
    SlackMessage,
    WithdrawalOutcome,
)

# Conversion of Slack messages to plain text: mentions, links and entities are resolved. The markup is that of
# https://docs.slack.dev/messaging/formatting-message-text/#advanced .

MARKUP = re.compile(r"<([^<>\n]*)>")
WITHOUT_TEXT = "(a message without text)"


def readable(text: str, *, bot_user_id: str) -> str:
    """Return a message as plain text, without the mention of the bot itself."""
    without_call = _call_of(bot_user_id).sub("", text)
    plain = MARKUP.sub(_undone, without_call)
    return clean_text(plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip())


def with_files(text: str, names: tuple[str, ...]) -> str:
    """Return the text with the names of attached files. The files themselves are not read.

    A blank text without files becomes WITHOUT_TEXT.
    """
    lines = [text] if not is_blank(text) else []
    lines += [f"[file: {clean_text(name)}]" for name in names]
    return "\n".join(lines) or WITHOUT_TEXT


def calls(text: str, bot_user_id: str) -> bool:
    """Return whether the text mentions the bot."""
    return f"<@{bot_user_id}>" in text or f"<@{bot_user_id}|" in text


@cache
def _call_of(bot_user_id: str) -> re.Pattern[str]:
    return re.compile(rf"<@{re.escape(bot_user_id)}(\|[^<>]*+)?>[:,]?\s?")


def _undone(found: re.Match[str]) -> str:
    inside, _, label = found[1].partition("|")
    match inside[:1]:
        case "@" | "#" as sign:
            return f"{sign}{label or inside[1:]}"
        case "!":
            return f"@{label.removeprefix('@') or inside[1:].partition('^')[0]}"
        case _:
            address = inside.removeprefix("mailto:")
            return address if not label or label == address else f"{label} ({inside})"


SAID = frozenset({None, "file_share", "thread_broadcast"})
STOP_SIGNS = frozenset({"octagonal_sign", "stop_sign", "black_square_for_stop", "no_entry"})


@dataclass(frozen=True, slots=True)
class StopSign:
    """A stop reaction that somebody added to a message: to the question or to the answer.

    Slack reports only the `user_id`, not the person's workspace.
    """

    place: SlackLocation
    user_id: str


_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,6}", re.ASCII)
Incoming: TypeAlias = SlackMessage | Deleted | StopSign | Left


class _File(BaseModel):
    name: str | None = None


class _EditedBy(BaseModel):
    ts: str = ""


class _Message(BaseModel):
    user: str | None = None
    bot_id: str | None = None
    subtype: str | None = None
    text: str | None = None
    ts: str = ""
    team: str | None = None
    user_team: str | None = None
    thread_ts: str | None = None
    files: list[_File] = []
    edited: _EditedBy | None = None


class _Item(BaseModel):
    channel: str = ""
    ts: str = ""


class _Event(_Message):
    type: str
    channel: str = ""
    event_ts: str = ""
    channel_type: str | None = None
    message: _Message | None = None
    deleted_ts: str | None = None
    reaction: str | None = None
    item: _Item | None = None


class _Authorization(BaseModel):
    is_enterprise_install: bool = False


class _Envelope(BaseModel):
    event_id: str
    event: _Event
    authorizations: list[_Authorization] = []
    context_team_id: str | None = None
    context_enterprise_id: str | None = None
    is_ext_shared_channel: bool | None = None


def read_event(body: Mapping[str, object], identity: Identity) -> Incoming | None:
    """Return the content of an event, None if it needs no action: from a bot, of another type, or unreadable."""
    try:
        envelope = _Envelope.model_validate(body)
    except ValidationError:
        return None
    event = envelope.event
    match event.type:
        case "message" | "app_mention":
            return _message(envelope, identity)
        case "reaction_added":
            return _stop_sign(event, identity)
        case "member_left_channel":
            return _left(envelope, identity)
        case _:
            return None


def _message(envelope: _Envelope, identity: Identity) -> SlackMessage | Deleted | None:
    event = envelope.event
    match event.subtype:
        case "message_changed":
            return _edited(envelope, identity)
        case "message_deleted":
            return _deleted(envelope, identity, event.deleted_ts)
        case _:
            return _said(envelope, identity)


def _said(envelope: _Envelope, identity: Identity) -> SlackMessage | None:
    event = envelope.event
    return _written(envelope, event, identity) if _is_said_by_a_person(event, identity) else None


def _written(envelope: _Envelope, message: _Message, identity: Identity, edited_ts: str = "") -> SlackMessage:
    """Return a new message, or with `edited_ts` what an edit has made of it."""
    event, text = envelope.event, message.text or ""
    is_direct = _is_direct(event)
    return SlackMessage(
        event_id=envelope.event_id,
        place=_place(event, identity, message.ts),
        thread_ts=message.thread_ts or message.ts,
        who=_who(envelope, message, identity),
        text=with_files(readable(text, bot_user_id=identity.bot_user_id), _file_names(message)),
        is_direct=is_direct,
        is_addressed=is_direct or event.type == "app_mention" or calls(text, identity.bot_user_id),
        edited_ts=edited_ts,
    )


def _is_said_by_a_person(event: _Event, identity: Identity) -> bool:
    is_placed = bool(_TS.fullmatch(event.ts) and event.channel)
    return is_placed and event.subtype in SAID and not _is_from_a_bot(event, identity)


def _edited(envelope: _Envelope, identity: Identity) -> SlackMessage | Deleted | None:
    changed = envelope.event.message
    if changed is None or _is_from_a_bot(changed, identity):
        return None
    if changed.subtype == "tombstone":  # what Slack keeps of a deleted message with replies
        return _deleted(envelope, identity, changed.ts)
    edited_ts = _edited_ts(changed)
    return None if edited_ts is None else _written(envelope, changed, identity, edited_ts)


def _edited_ts(changed: _Message) -> str | None:
    """Return when the text was edited. None if something else changed, such as the preview of a link."""
    if changed.edited is None or not _TS.fullmatch(changed.edited.ts) or not _TS.fullmatch(changed.ts):
        return None
    return changed.edited.ts


def _deleted(envelope: _Envelope, identity: Identity, ts: str | None) -> Deleted | None:
    if not (envelope.event.channel and _TS.fullmatch(ts or "")):
        return None
    return Deleted(envelope.event_id, _place(envelope.event, identity, ts))


def _file_names(message: _Message) -> tuple[str, ...]:
    return tuple(file.name or "unnamed" for file in message.files)


def _stop_sign(event: _Event, identity: Identity) -> StopSign | None:
    is_sign = (event.reaction or "").partition("::")[0] in STOP_SIGNS
    if not is_sign or event.item is None or _is_from_a_bot(event, identity):
        return None
    place = SlackLocation(identity.team_id, event.item.channel, event.item.ts)
    return StopSign(place, event.user or "")


def _left(envelope: _Envelope, identity: Identity) -> Left | None:
    """Return who left the channel. None if the bot itself was removed: then no other member has left."""
    event = envelope.event
    if _is_from_a_bot(event, identity):
        return None
    left_ts = event.event_ts if _TS.fullmatch(event.event_ts) else ""
    return Left(identity.team_id, event.channel, _who(envelope, event, identity), left_ts)


def _is_from_a_bot(message: _Message, identity: Identity) -> bool:
    return bool(message.bot_id) or not message.user or message.user == identity.bot_user_id


def _is_direct(event: _Event) -> bool:
    return event.channel_type == "im" or (event.channel_type is None and event.channel.startswith("D"))


def _place(event: _Event, identity: Identity, ts: str | None) -> SlackLocation:
    return SlackLocation(identity.team_id, event.channel, ts or "")


def _who(envelope: _Envelope, said: _Message, identity: Identity) -> SlackId:
    event = envelope.event
    home = said.user_team or said.team or event.user_team or event.team or ""
    came_by = (envelope.context_enterprise_id or "") if home == envelope.context_team_id else ""
    is_shared = envelope.is_ext_shared_channel
    return identity.person(said.user or "", home, enterprise_id=came_by, may_be_outsider=bool(is_shared))


# Storage of Slack's events in the database. An event is stored before it is acknowledged to Slack. Therefore nothing
# but the database is called here.

log = structlog.get_logger(__name__)


class EventStorage:
    """Handler of Slack's events.

    It stores messages, changes or withdraws waiting ones, removes members who left, and passes stop reactions to
    `on_stop`.
    """

    def __init__(
        self, database: SlackDatabase, identity: Identity, on_stop: Callable[[StopSign], Awaitable[None]]
    ) -> None:
        """Store events for `identity` in `database`. `on_stop` may use the database only."""
        self._database = database
        self._identity = identity
        self._on_stop = on_stop

    async def store(self, body: Mapping[str, object]) -> None:
        """Handle one event.

        Raises DatabaseUnavailable. The event is then not acknowledged, and Slack sends it again.
        """
        incoming = read_event(body, self._identity)
        match incoming:
            case SlackMessage(edited_ts=""):
                await self._accept(incoming)
            case SlackMessage():
                await self._edit(incoming)
            case Deleted():
                withdrawn = await self._database.inbox.withdraw(incoming)
                report = log.debug if withdrawn is WithdrawalOutcome.LEFT else log.info
                report("slack message deleted", outcome=withdrawn.value, channel=incoming.place.channel_id)
            case StopSign():
                await self._on_stop(incoming)
            case Left():
                sessions = await self._database.participants.leave(incoming)
                log.info("slack member removed from channel sessions", channel=incoming.channel_id, sessions=sessions)
            case None:
                pass

    async def _edit(self, edited: SlackMessage) -> None:
        outcome = await self._database.inbox.edit(edited)
        report = log.debug if outcome is EditOutcome.LEFT else log.info
        report("slack message edited", outcome=outcome.value, channel=edited.place.channel_id)

    async def _accept(self, message: SlackMessage) -> None:
        taken = await self._database.inbox.accept(message)
        report = log.debug if taken is AcceptOutcome.NOT_FOR_US else log.info
        report("slack message received", outcome=taken.value, channel=message.place.channel_id)
