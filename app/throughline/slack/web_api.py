"""Calls to Slack's Web API for threads and people: they wait for rate limits and raise Slack's errors as ours.

The calls that check the settings and open Socket Mode are made in setup_check.py and socket_mode.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from throughline.domain.basic_types import Clock, JsonObject, JsonValue
from throughline.domain.errors import PermanentError, TemporaryError

TOKEN_REFUSED = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
TOKEN_ERRORS = TOKEN_REFUSED | {"missing_scope", "no_permission"}
"""Error codes that an operator must resolve in the app's settings. Until then nothing can be delivered."""

LIMITS = frozenset({"ratelimited", "rate_limited"})
PASSING = frozenset({
    "fatal_error",
    "internal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
    "org_login_required",
})
"""Error codes for temporary trouble of Slack, also sent with status 200. The call may have been executed.

The last two are for a workspace that is being moved to an organization.
"""

GONE = frozenset({"message_not_found"})
"""Error codes for a message that somebody deleted. It is not posted again."""

UNEDITABLE = frozenset({"edit_window_closed", "cant_update_message", "message_not_owned_by_app"})
"""Error codes for a message that exists but can no longer be edited."""

SERVER_ERROR = 500
TOO_LONG = "msg_too_long"


def word_of(error: SlackApiError) -> str:
    """Return Slack's error code, '' if the answer comes from a proxy and says nothing about the call."""
    response = error.response
    data = response.data if isinstance(response, AsyncSlackResponse) else None
    return str(data.get("error", "")) if isinstance(data, dict) else ""


def will_pass(error: SlackApiError) -> bool:
    """Return whether the error may disappear soon without anybody's action."""
    word = word_of(error)
    return not word or error.response.status_code >= SERVER_ERROR or word in PASSING or word in LIMITS


def retry_after(headers: Mapping[str, str] | None) -> float:
    """Return the seconds that the `Retry-After` header demands, 0 without the header."""
    found = next((value for name, value in (headers or {}).items() if name.lower() == "retry-after"), "")
    return float(found) if found.isdecimal() else 0.0


class SlackRefused(PermanentError):
    """Error for a call that Slack refused. `error` is Slack's error code, documented on the method's page."""

    code = "slack_refused"

    def __init__(self, method: str, error: str) -> None:
        super().__init__(f"Slack refused {method}: {error}.")
        self.error = error


class SlackUnsure(TemporaryError):
    """Error for a call that may or may not have been executed.

    The connection broke or timed out, or Slack or a proxy had trouble.
    """

    code = "slack_unsure"


class SlackLimited(TemporaryError):
    """Error for a rate limit that lasts longer than the caller waits."""

    code = "slack_limited"


# Queues behind Slack's rate limits. The calls behind one limit try one at a time, in order of arrival, until a call
# succeeds.

Key: TypeAlias = tuple[str, str]
"""Name of one rate limit of Slack: a method, and for chat.postMessage also the channel, else ''."""


@dataclass(slots=True)
class QueuedCalls:
    """The calls that wait behind one rate limit. Times are monotonic seconds; `passed_at` is the last success."""

    until: float = 0.0
    passed_at: float = float("-inf")
    calls: int = 0
    first: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimits:
    """Queues, one for each rate limit in effect. A queue is removed once its call succeeded and no other call waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Key, QueuedCalls] = {}

    def is_limited(self, key: Key) -> bool:
        """Return whether a call must wait in a queue."""
        return key in self._lines

    def limit(self, key: Key, pause_seconds: float) -> None:
        """Block calls until the pause that Slack demands is over."""
        line = self._lines.setdefault(key, QueuedCalls())
        line.until = max(line.until, self._clock.monotonic() + pause_seconds)

    def passed(self, key: Key) -> None:
        """Record that the first call of the queue succeeded, so that the next one may try."""
        line = self._lines[key]
        line.passed_at = self._clock.monotonic()
        if line.calls == 1:
            del self._lines[key]

    @asynccontextmanager
    async def in_line(self, key: Key, max_wait_seconds: float) -> AsyncGenerator[None]:
        """Wait until this call is the first of the queue, and keep that place while the context is open.

        Raises SlackLimited if other calls wait and `max_wait_seconds` is not above 0.
        """
        line = self._lines.setdefault(key, QueuedCalls())
        if line.calls and max_wait_seconds <= 0:
            raise SlackLimited(f"Others wait for {key[0]}.", delay_seconds=self._left(line))
        line.calls += 1
        try:
            async with line.first:
                yield
        finally:
            line.calls -= 1

    async def pause(self, key: Key, gives_up_after_seconds: float, since: float) -> None:
        """Wait until the pause that Slack demands is over.

        Raises SlackLimited if it ends more than `gives_up_after_seconds` after `since` or after the last success of the
        queue, whichever is later.
        """
        line = self._lines[key]
        while self._left(line) > 0:
            if line.until > max(since, line.passed_at) + gives_up_after_seconds:
                raise SlackLimited(f"Slack limits {key[0]}.", delay_seconds=self._left(line))
            await self._clock.sleep(self._left(line))

    def _left(self, line: QueuedCalls) -> float:
        return max(line.until - self._clock.monotonic(), 0.0)


TOO_MANY_REQUESTS = 429
LEAST_PAUSE_SECONDS = 1.0
MAX_WAIT_SECONDS = 300.0
"""Seconds that a necessary call waits while no call of its kind succeeds. Slack's pauses are at most a minute."""

_Sent: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread to write to, and the person who asked: streams in channels must name their reader."""

    channel_id: str
    thread_ts: str
    reader_id: str
    reader_team_id: str


class SlackWebApi:
    """Slack's Web API.

    Every method raises SlackRefused, SlackUnsure, and SlackLimited if a rate limit lasts longer than the method waits.
    """

    def __init__(self, client: AsyncWebClient, clock: Clock) -> None:
        """Call through `client`, which must not retry by itself."""
        self._client = client
        self._clock = clock
        self._limits = RateLimits(clock)

    async def start_stream(self, thread: Thread, text: str) -> str:
        """Begin a streamed message and return its `ts`. Does not wait for a rate limit."""
        args: JsonObject = {
            "channel": thread.channel_id,
            "thread_ts": thread.thread_ts,
            "recipient_user_id": thread.reader_id,
            "recipient_team_id": thread.reader_team_id,
            "markdown_text": text,
        }
        return str((await self._call("chat.startStream", args, max_wait_seconds=0))["ts"])

    async def append_stream(self, channel_id: str, ts: str, text: str) -> None:
        """Append text to a streamed message.

        Does not wait for a rate limit: the next piece, or the end of the stream, can contain this text as well.
        """
        args: JsonObject = {"channel": channel_id, "ts": ts, "markdown_text": text}
        await self._call("chat.appendStream", args, max_wait_seconds=0)

    async def stop_stream(self, channel_id: str, ts: str, text: str = "", metadata: JsonObject | None = None) -> None:
        """End a streamed message with its last piece. A blank piece is left out."""
        args: dict[str, JsonValue] = {"channel": channel_id, "ts": ts}
        if text.strip():
            args["markdown_text"] = text
        if metadata is not None:
            args["metadata"] = dict(metadata)
        await self._call("chat.stopStream", args)

    async def post(
        self, thread: Thread, text: str, metadata: JsonObject, *, max_wait_seconds: float = MAX_WAIT_SECONDS
    ) -> str:
        """Post a complete message and return its `ts`."""
        return await self._post(thread, {"markdown_text": text, "metadata": dict(metadata)}, max_wait_seconds)

    async def update(
        self, place: tuple[str, str], text: str, metadata: JsonObject, *, max_wait_seconds: float = MAX_WAIT_SECONDS
    ) -> None:
        """Replace the text of the message at (channel, ts)."""
        args: JsonObject = {"channel": place[0], "ts": place[1], "markdown_text": text, "metadata": dict(metadata)}
        await self._call("chat.update", args, max_wait_seconds=max_wait_seconds)

    async def post_blocks(self, thread: Thread, text: str, blocks: Sequence[JsonObject], metadata: JsonObject) -> str:
        """Post a message of blocks and return its `ts`. `text` is shown in notifications."""
        content: JsonObject = {"text": text, "blocks": [dict(block) for block in blocks], "metadata": dict(metadata)}
        return await self._post(thread, content, MAX_WAIT_SECONDS)

    async def _post(self, thread: Thread, content: JsonObject, max_wait_seconds: float) -> str:
        place: JsonObject = {"channel": thread.channel_id, "thread_ts": thread.thread_ts}
        args = {**place, **content, "unfurl_links": False, "unfurl_media": False}
        reply = await self._call("chat.postMessage", args, place=thread.channel_id, max_wait_seconds=max_wait_seconds)
        return str(reply["ts"])

    async def update_blocks(
        self, place: tuple[str, str], text: str, blocks: Sequence[JsonObject], metadata: JsonObject
    ) -> None:
        """Replace the blocks of the message at (channel, ts)."""
        args: JsonObject = {
            "channel": place[0],
            "ts": place[1],
            "text": text,
            "blocks": [dict(block) for block in blocks],
            "metadata": dict(metadata),
        }
        await self._call("chat.update", args)

    async def post_ephemeral(self, channel_id: str, thread_ts: str, user_id: str, text: str) -> None:
        """Show a text to one person alone, in the thread, or in the channel for the thread ''.

        Does not wait for a rate limit.
        """
        thread: JsonObject = {"thread_ts": thread_ts} if thread_ts else {}
        args: JsonObject = {"channel": channel_id, **thread, "user": user_id, "text": text}
        await self._call("chat.postEphemeral", args, max_wait_seconds=0)

    async def set_status(self, channel_id: str, thread_ts: str, status: str) -> None:
        """Show the bot's status in the thread. Slack removes it when the bot writes. Does not wait for a rate limit."""
        args: JsonObject = {"channel_id": channel_id, "thread_ts": thread_ts, "status": status}
        await self._call("assistant.threads.setStatus", args, max_wait_seconds=0)

    async def replies(self, channel_id: str, thread_ts: str, *, after_ts: str) -> tuple[Mapping[str, JsonValue], ...]:
        """Return up to 200 of the thread's messages after `after_ts`, with their metadata."""
        args = {"channel": channel_id, "ts": thread_ts, "oldest": after_ts, "limit": "200"}
        reply = await self._call("conversations.replies", {**args, "include_all_metadata": "true"}, is_reading=True)
        messages = reply.get("messages")
        found = messages if isinstance(messages, list) else []
        return tuple(message for message in found if isinstance(message, dict))

    async def user_info(self, user_id: str) -> Mapping[str, JsonValue]:
        """Return a Slack user with the profile (`users.info`), {} if the reply has none."""
        user = (await self._call("users.info", {"user": user_id}, is_reading=True)).get("user")
        return user if isinstance(user, dict) else {}

    async def _call(
        self,
        method: str,
        args: JsonObject,
        *,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        place: str = "",
        is_reading: bool = False,
    ) -> JsonObject:
        """Make the call once no rate limit blocks it.

        If Slack limits the call, repeat it after the pause that Slack demands.
        """
        key, since = (method, place), self._clock.monotonic()
        sent: _Sent = {"http_verb": "GET", "params": args} if is_reading else {"json": args}
        if not self._limits.is_limited(key) and (reply := await self._try(key, sent)) is not None:
            return reply
        async with self._limits.in_line(key, max_wait_seconds):
            while True:
                await self._limits.pause(key, max_wait_seconds, since)
                if (reply := await self._try(key, sent)) is not None:
                    self._limits.passed(key)
                    return reply

    async def _try(self, key: Key, sent: _Sent) -> JsonObject | None:
        """Make the call and return its reply, None if Slack limits the call."""
        method = key[0]
        try:
            response = await self._client.api_call(method, **sent)  # type: ignore[arg-type]  # its arguments by name
        except SlackApiError as error:
            self._limits.limit(key, _meaning(method, error))
            return None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SlackUnsure(f"{method}: {type(error).__name__}.") from None
        return response.data if isinstance(response.data, dict) else {}


def _meaning(method: str, error: SlackApiError) -> float:
    """Return the pause in seconds if Slack limits the method's rate. Raises for every other error.

    Slack states its reason in JSON. An answer without JSON comes from a proxy and says nothing about the call.
    """
    response, word = error.response, word_of(error)
    if not isinstance(response, AsyncSlackResponse):  # the client could not read it
        raise SlackUnsure(f"{method}: not readable.") from None
    if response.status_code == TOO_MANY_REQUESTS or word in LIMITS:
        return max(LEAST_PAUSE_SECONDS, retry_after(response.headers))
    if will_pass(error):
        raise SlackUnsure(f"{method}: status {response.status_code} {word}".rstrip() + ".") from None
    raise SlackRefused(method, word) from None
