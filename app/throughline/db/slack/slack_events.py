"""Incoming Slack events: messages, their edits and deletions, and departures from channels."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.db.slack.people import SlackId


@dataclass(frozen=True, slots=True)
class SlackLocation:
    """The location of a message in Slack.

    `team_id` is the enterprise's id if the app is installed organisation-wide.
    """

    team_id: str
    channel_id: str
    message_ts: str


@dataclass(frozen=True, slots=True)
class Edited:
    """An author's edit of a Slack message at `edited_ts` (Slack's decimal seconds).

    The other fields are as in SlackMessage.
    """

    event_id: str
    place: SlackLocation
    thread_ts: str
    who: SlackId
    text: str
    edited_ts: str
    is_direct: bool
    is_addressed: bool


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
    the time of the last edit, '' if it was not edited.
    """

    event_id: str
    place: SlackLocation
    thread_ts: str
    who: SlackId
    text: str
    is_direct: bool
    is_addressed: bool
    edited_ts: str = ""
