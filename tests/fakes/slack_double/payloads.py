"""What the double remembers (calls, channels, messages), and the payloads it sends."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from fakes.provider_double.json_types import Json

TEAM = "T0DOUBLE1"
BOT_USER = "U0THEBOT1"
BOT_ID = "B0THEBOT1"
BOT_TOKEN = "xoxb-double-bot-token"
APP_TOKEN = "xapp-1-double-app-token"
SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
"""The example secret of https://docs.slack.dev/authentication/verifying-requests-from-slack/."""

SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "groups:history",
    "groups:read",
    "im:history",
    "mpim:history",
    "reactions:read",
    "users:read",
    "users:read.email",
)
STREAM_SECONDS = 300.0
"""How long a message may stream: about five minutes, see github.com/slackapi/python-slack-sdk/issues/1859."""

MAX_MESSAGE = 40_000
"""Characters of one message, whatever it was made of."""


@dataclass(slots=True)
class Person:
    """A member of the workspace. `flags` are the fields of `users.info` that are true of them, such as `deleted`."""

    id: str
    name: str
    email: str = ""
    is_email_confirmed: bool = True
    team: str = TEAM
    flags: tuple[str, ...] = ()
    enterprise: str = ""


@dataclass(slots=True)
class Posted:
    """A message the app has posted. `text` is what people see now; `edits` counts chat.update."""

    channel: str
    ts: str
    thread_ts: str
    text: str
    metadata: Json | None = None
    blocks: object = None
    is_streaming: bool = False
    was_streamed: bool = False
    started: float = 0.0
    edits: int = 0
    written: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a Web API method; `outcome` is `ok`, Slack's error, or what was done to the connection."""

    number: int
    at: float
    method: str
    args: Json
    outcome: str


@dataclass(slots=True)
class Workspace:
    """State of one double. `now` is the time streams and rate limits are measured by, in seconds.

    `most_chars` is how long a message may be; `revoked` are tokens that hold no more, each with the word for it. While
    it `is_away`, every call fails.
    """

    now: Callable[[], float] = time.monotonic
    scopes: tuple[str, ...] = SCOPES
    calls: list[Call] = field(default_factory=list)
    posted: list[Posted] = field(default_factory=list)
    people: dict[str, Person] = field(default_factory=dict)
    responses: list[tuple[str, Json]] = field(default_factory=list)
    statuses: list[tuple[str, str, str]] = field(default_factory=list)
    stream_seconds: float = STREAM_SECONDS
    most_chars: int = MAX_MESSAGE
    revoked: dict[str, str] = field(default_factory=dict)
    is_away: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _clock: float = field(default_factory=time.time)

    def next_ts(self) -> str:
        """Return a message's timestamp: seconds and six digits that are never given out twice."""
        return f"{int(self._clock)}.{next(self._numbers):06d}"

    def find(self, channel: str, ts: str) -> Posted | None:
        """Return the message, its stream ended if its time is over."""
        for message in reversed(self.posted):
            if (message.channel, message.ts) == (channel, ts):
                self._end_if_over(message)
                return message
        return None

    def in_thread(self, channel: str, thread_ts: str) -> list[Posted]:
        """Return what the app has posted into the thread, oldest first."""
        return [item for item in self.posted if (item.channel, item.thread_ts) == (channel, thread_ts)]

    def called(self, method: str) -> list[Call]:
        """Return the calls of one method, whatever came of them."""
        return [call for call in self.calls if call.method == method]

    def record(self, method: str, args: Json, outcome: str) -> None:
        """Note a call."""
        self.calls.append(Call(len(self.calls) + 1, self.now(), method, args, outcome))

    def _end_if_over(self, message: Posted) -> None:
        if message.is_streaming and self.now() - message.started > self.stream_seconds:
            message.is_streaming = False


_event_ids = itertools.count(1)
_times = itertools.count(1)


def fresh_ts() -> str:
    """Return a message timestamp nobody has used."""
    return f"1700000000.{next(_times):06d}"


@dataclass(frozen=True, slots=True)
class Said:
    """A message somebody wrote: enough to make every event it arrives as."""

    text: str
    channel: str = "D0ANNA001"
    user: str = "U0ANNA001"
    ts: str = ""
    thread_ts: str = ""
    team: str = TEAM

    @property
    def where(self) -> str:
        """The thread it belongs to."""
        return self.thread_ts or self.ts


def say(text: str, **where: str) -> Said:
    """Return a message with a timestamp of its own."""
    return Said(text, **({"ts": fresh_ts()} | where))


def envelope(event: Json, *, team: str = TEAM) -> Json:
    """https://docs.slack.dev/apis/events-api/#callback-field ."""
    return {
        "token": "verification-token-not-used",
        "team_id": team,
        "api_app_id": "A0DOUBLE1",
        "event": event,
        "type": "event_callback",
        "event_id": f"Ev{next(_event_ids):09d}",
        "event_time": 1_700_000_000,
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": team,
                "user_id": BOT_USER,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": "4-double",
    }


def message(said: Said) -> Json:
    """https://docs.slack.dev/reference/events/message.im/ and …/message.channels/ ."""
    event: Json = {
        "type": "message",
        "channel": said.channel,
        "user": said.user,
        "text": said.text,
        "ts": said.ts,
        "event_ts": said.ts,
        "team": said.team,
        "client_msg_id": f"client-{said.ts}",
        "channel_type": "im" if said.channel.startswith("D") else "channel",
    }
    return envelope(event | ({"thread_ts": said.thread_ts} if said.thread_ts else {}), team=said.team)


def app_mention(said: Said) -> Json:
    """https://docs.slack.dev/reference/events/app_mention/ ."""
    event: Json = {
        "type": "app_mention",
        "channel": said.channel,
        "user": said.user,
        "text": said.text,
        "ts": said.ts,
        "event_ts": said.ts,
        "team": said.team,
    }
    return envelope(event | ({"thread_ts": said.thread_ts} if said.thread_ts else {}), team=said.team)


def edited(said: Said, text: str) -> Json:
    """https://docs.slack.dev/reference/events/message/message_changed/ ."""
    by = {"user": said.user, "ts": fresh_ts()}
    inner = {"type": "message", "user": said.user, "text": text, "ts": said.ts, "edited": by}
    inner |= {"thread_ts": said.thread_ts} if said.thread_ts else {}
    before = {"type": "message", "user": said.user, "text": said.text, "ts": said.ts}
    event: Json = {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": said.channel,
        "ts": fresh_ts(),
        "message": inner,
        "previous_message": before,
        "channel_type": "im" if said.channel.startswith("D") else "channel",
    }
    return envelope(event, team=said.team)


def deleted(said: Said) -> Json:
    """https://docs.slack.dev/reference/events/message/message_deleted/ ."""
    event: Json = {
        "type": "message",
        "subtype": "message_deleted",
        "hidden": True,
        "channel": said.channel,
        "ts": fresh_ts(),
        "deleted_ts": said.ts,
        "previous_message": {"type": "message", "user": said.user, "text": said.text, "ts": said.ts},
    }
    return envelope(event, team=said.team)


def reaction(name: str, *, user: str, channel: str, ts: str, team: str = TEAM) -> Json:
    """https://docs.slack.dev/reference/events/reaction_added/ ."""
    item = {"type": "message", "channel": channel, "ts": ts}
    event: Json = {"type": "reaction_added", "user": user, "reaction": name, "item_user": BOT_USER, "item": item}
    return envelope(event | {"event_ts": fresh_ts()}, team=team)


def bot_message(said: Said) -> Json:
    """https://docs.slack.dev/reference/events/message/bot_message/ ; here another bot's."""
    event: Json = {"type": "message", "subtype": "bot_message", "bot_id": "B0OTHER01", "username": "other"}
    return envelope(event | {"text": said.text, "ts": said.ts, "channel": said.channel}, team=said.team)


def own_message(said: Said) -> Json:
    """What the app itself posted, as it comes back to it: https://docs.slack.dev/reference/events/message/ ."""
    found = message(said)
    found["event"] |= {"user": BOT_USER, "bot_id": BOT_ID}
    return found


def joined(channel: str) -> Json:
    """https://docs.slack.dev/reference/events/message/channel_join/ ."""
    event: Json = {"type": "message", "subtype": "channel_join", "user": "U0ANNA001", "channel": channel}
    return envelope(event | {"text": "<@U0ANNA001> has joined the channel", "ts": fresh_ts()})


def left(channel: str, *, user: str, home: str = TEAM) -> Json:
    """https://docs.slack.dev/reference/events/member_left_channel/ ; `home` is the user's own workspace."""
    event: Json = {"type": "member_left_channel", "user": user, "channel": channel, "channel_type": "C", "team": home}
    return envelope(event | {"event_ts": fresh_ts()})


def url_verification(challenge: str) -> Json:
    """https://docs.slack.dev/reference/events/url_verification/ ."""
    return {"token": "verification-token-not-used", "challenge": challenge, "type": "url_verification"}


def app_uninstalled(*, team: str = TEAM) -> Json:
    """https://docs.slack.dev/reference/events/app_uninstalled/ ; nobody authorized it any more."""
    return _unauthorized({"type": "app_uninstalled"}, team)


def tokens_revoked(*, bots: Sequence[str] = (), people: Sequence[str] = (), team: str = TEAM) -> Json:
    """https://docs.slack.dev/reference/events/tokens_revoked/ ; it names users, never tokens."""
    tokens = {"oauth": list(people), "bot": list(bots)}
    return _unauthorized({"type": "tokens_revoked", "tokens": tokens}, team)


def app_rate_limited(minute: int) -> Json:
    """https://docs.slack.dev/reference/events/app_rate_limited/ : an outer event, with none in it."""
    limited: Json = {"token": "verification-token-not-used", "type": "app_rate_limited", "team_id": TEAM}
    return limited | {"minute_rate_limited": minute, "api_app_id": "A0DOUBLE1"}


def _unauthorized(event: Json, team: str) -> Json:
    return {name: value for name, value in envelope(event, team=team).items() if name != "authorizations"}


def slash_command(text: str, *, user: str, channel: str, response_url: str) -> str:
    """https://docs.slack.dev/interactivity/implementing-slash-commands/#app_command_handling , as its form body."""
    fields = {
        "token": "verification-token-not-used",
        "team_id": TEAM,
        "team_domain": "double",
        "channel_id": channel,
        "channel_name": "directmessage",
        "user_id": user,
        "user_name": "anna",
        "command": "/agent",
        "text": text,
        "api_app_id": "A0DOUBLE1",
        "response_url": response_url,
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
    }
    return urlencode(fields)


def click(value: str, *, user: str, channel: str, ts: str, team: str = TEAM, thread_ts: str = "") -> Json:
    """https://docs.slack.dev/reference/interaction-payloads/block_actions-payload/ , of a button in a message."""
    action = {"type": "button", "block_id": "b1", "action_id": "decide_approve", "value": value}
    thread = {"thread_ts": thread_ts} if thread_ts else {}
    return {
        "type": "block_actions",
        "user": {"id": user, "username": "anna", "name": "anna", "team_id": team},
        "api_app_id": "A0DOUBLE1",
        "token": "verification-token-not-used",
        "container": {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": False},
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "team": {"id": TEAM, "domain": "double"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel, "name": "directmessage"},
        "message": {"type": "message", "user": BOT_USER, "ts": ts, "bot_id": BOT_ID, "text": ""} | thread,
        "state": {"values": {}},
        "response_url": "https://hooks.example/actions/1",
        "actions": [action | {"text": {"type": "plain_text", "text": "Approve"}, "action_ts": fresh_ts()}],
    }
