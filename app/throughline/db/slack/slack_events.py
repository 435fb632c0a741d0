"""What comes in from Slack: messages, their edits and their deletions, each known by its place."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.db.slack.people import SlackId


@dataclass(frozen=True, slots=True)
class SlackLocation:
    """A message's place in Slack. `team_id` is the enterprise's id where the app is installed for all of it."""

    team_id: str
    channel_id: str
    message_ts: str


@dataclass(frozen=True, slots=True)
class Edited:
    """Somebody changed a message of theirs, at `edited_ts` (Slack's, decimal seconds). The rest as in SlackMessage."""

    event_id: str
    place: SlackLocation
    thread_ts: str
    who: SlackId
    text: str
    edited_ts: str
    is_direct: bool
    is_addressed: bool


class EditOutcome(StrEnum):
    """What became of an edit. `KEPT`: for a message that has not come yet. `LEFT`: it changes nothing here."""

    CHANGED = "changed"
    KEPT = "kept"
    LEFT = "left"


class WithdrawalOutcome(StrEnum):
    """What became of a deletion. `LEFT`: no message waits there; one that comes later is not taken."""

    WITHDRAWN = "withdrawn"
    STOPPING = "stopping"
    """It began to be answered at this moment, and is asked to stop; its text stays."""

    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Deleted:
    """A message was deleted."""

    event_id: str
    place: SlackLocation


@dataclass(frozen=True, slots=True)
class Left:
    """Somebody left a channel, or was removed from it, at `left_ts` (Slack's, decimal seconds; '' if not told)."""

    team_id: str
    channel_id: str
    who: SlackId
    left_ts: str


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A message from Slack, its text as a person reads it.

    `thread_ts` is the message's own where it stands outside a thread; `is_direct` is a conversation of one person
    with the bot; `is_addressed` says that the bot is meant, whether or not it takes part in the thread already.
    `edited_ts` is when its text was changed, '' for never.
    """

    event_id: str
    place: SlackLocation
    thread_ts: str
    who: SlackId
    text: str
    is_direct: bool
    is_addressed: bool
    edited_ts: str = ""
