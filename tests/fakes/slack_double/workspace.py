"""What the double remembers: the calls it was sent, the messages of its channels, and which of them still stream."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
