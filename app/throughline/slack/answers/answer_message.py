"""Writer of one growing answer in a Slack thread, and the plan that it follows.

The answer is written as streamed messages if Slack allows it, else by editing messages. Every message is recorded in
the outbox before it is posted, and again with the `ts` that Slack gave it. After a crash, the next process therefore
edits the recorded messages, and searches for messages that may have been posted before it posts again.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

import structlog

from throughline.slack.answers.cut_text import closing, cut_before, part_of
from throughline.slack.answers.sent_messages import TRIES, DeliveryServices, SentMessages, metadata_of
from throughline.slack.store.outbox import Delivery, Part, PartStatus
from throughline.slack.web_api import (
    MAX_WAIT_SECONDS,
    TOKEN_ERRORS,
    TOO_LONG,
    UNEDITABLE,
    SlackLimited,
    SlackRefused,
    SlackUnsure,
    Thread,
)

# Plan of the next step for a growing answer, in pure functions. AnswerWriter carries it out. An answer consists of one
# or more messages. At most one of them is open: it is streamed, or edited as it grows.

PART_CHARS = 10_000
"""Most characters of one message. Slack accepts 12,000; fences that are closed and reopened need some of them."""

ROLL_SECONDS = 240.0
"""Age in seconds at which a stream is replaced by a new one. Slack ends a stream after about five minutes."""

EDIT_SECONDS = 3.0


Step: TypeAlias = Literal["open", "append", "stop", "edit", "nothing"]


@dataclass(frozen=True, slots=True)
class AnswerState:
    """State of an answer in Slack: its open message if `ts` is set, else the message to open next.

    The message shows the text from `starts` and was sent up to `sent`. `exact` is the end of the shown text, -1 if it
    is not known.
    """

    part_chars: int = PART_CHARS
    shown: str = ""
    number: int = 1
    starts: int = 0
    ts: str = ""
    streams: bool = False
    since: float = 0.0
    sent: int = 0
    exact: int = -1
    edited: float = 0.0

    def is_old(self, now: float) -> bool:
        """Return whether the open message is a stream that Slack may end soon."""
        return self.streams and now - self.since > ROLL_SECONDS

    def lacks(self, text: str, now: float) -> bool:
        """Return whether showing `text` would change anything in Slack: it differs, or the stream must be replaced."""
        return self.is_old(now) or visible(text).rstrip() != self.shown.rstrip()

    def opened(self, ts: str, now: float, *, streams: bool = False) -> "AnswerState":
        """Return the state with the open message `ts`; what that message shows is not known yet."""
        return replace(self, ts=ts, streams=streams, since=now, sent=self.starts, exact=-1, edited=now)

    def grown(self, text: str, end: int) -> "AnswerState":
        """Return the state after the stream's next piece, up to `end`, was sent."""
        return replace(self, shown=text[:end], sent=end)

    def rewritten(self, text: str, end: int, now: float) -> "AnswerState":
        """Return the state with an open message that shows exactly its part of `text`, up to `end`."""
        return replace(self, shown=text[:end], sent=end, exact=end, edited=now)

    def closed(self, end: int) -> "AnswerState":
        """Return the state with the message closed at `end`.

        If no message is open, the text up to `end` has no visible content and the message number stays the same.
        """
        return AnswerState(self.part_chars, self.shown, self.number + bool(self.ts), starts=end, sent=end)

    def cut_smaller(self) -> "AnswerState":
        """Return the state with messages of half the length. The open message is then edited to that length."""
        return replace(self, part_chars=self.part_chars // 2, sent=self.starts)


@dataclass(frozen=True, slots=True)
class Piece:
    """Position up to which the current message is written. The message is closed there if `is_last`."""

    end: int
    is_last: bool


def visible(text: str) -> str:
    """Return `text` without blank lines at its beginning, because Slack would refuse them as a message."""
    blank = text[: len(text) - len(text.lstrip())]
    return text[blank.rfind("\n") + 1 :]


def next_piece(written: AnswerState, text: str, *, is_final: bool, now: float) -> Piece:
    """Return how far to write next. The text is complete once a piece ends at the end of `text`."""
    end = max(cut_before(text, written.starts, written.part_chars), min(written.sent, len(text)))
    if end < len(text):
        return Piece(end, is_last=True)
    if not is_final and written.is_old(now):
        return Piece(max(written.sent, text.rfind("\n") + 1), is_last=True)
    return Piece(end, is_last=is_final)


def next_step(written: AnswerState, text: str, piece: Piece, now: float) -> Step:
    """Return the step for `piece`. A piece that does not close its message may wait for more text."""
    if not written.ts:
        return "open" if text[written.starts : piece.end].strip() else "nothing"
    if written.streams:
        return _next_of_stream(text[written.sent : piece.end], is_last=piece.is_last)
    is_due = piece.is_last or (piece.end > written.starts and now - written.edited >= EDIT_SECONDS)
    return "edit" if is_due and written.exact != piece.end else "nothing"


def _next_of_stream(added: str, *, is_last: bool) -> Step:
    if is_last:
        return "stop"
    return "append" if added.strip() else "nothing"


LEAST_CHARS = 500
"""Smallest number of characters per message to which messages are shortened when Slack refuses them as too long."""

log = structlog.get_logger(__name__)


class AnswerWriter:
    """Writer of one answer.

    Each call of `show` passes a longer text. A text that begins differently replaces everything shown before.
    """

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        """Write for `delivery`. Call `begin` before any other method."""
        self._outbox, self._calls, self._clock = services.outbox, services.calls, services.clock
        self._asked = services.slack.asked
        self._messages = SentMessages(services, delivery)
        self._delivery, self._channel = delivery, delivery.channel_id
        self._known: dict[int, str] = {}
        self._inherited: tuple[Part, ...] = ()
        self._written = AnswerState()

    async def begin(self) -> None:
        """Load the messages that an earlier attempt has posted. The last one is edited from now on, never streamed."""
        parts = await self._outbox.parts(self._delivery.lease.id)
        self._known = {part.number: part.ts for part in parts if part.ts}
        if not parts:
            return
        last = parts[-1]
        rest_starts = self._delivery.rest_starts
        if rest_starts > last.starts:  # the text before a wait is whole: what follows begins a new message
            rest = Part(last.number + 1, "", PartStatus.SENDING, rest_starts, last.begun)
            self._written = AnswerState(number=rest.number, starts=rest_starts, sent=rest_starts)
            self._inherited = (*parts, rest)
            return
        self._written, self._inherited = AnswerState(number=last.number, starts=last.starts, sent=last.starts), parts
        ts = last.ts or await self._messages.find(last.number)
        if ts is None:
            await self._outbox.drop_parts(self._delivery.lease, last.number)
            return
        if last.status is not PartStatus.CLOSED:
            await self._messages.end_stream(ts)
        self._written = self._written.opened(ts, self._now())
        await self._note(PartStatus.OPEN)

    @property
    def has_shown(self) -> bool:
        """Whether any of the text is visible in Slack."""
        return bool(self._written.shown)

    def lacks(self, text: str) -> bool:
        """Return whether showing `text`, which may have been shown before, would change anything in Slack."""
        return self._written.lacks(text, self._now())

    async def show(self, text: str, *, is_final: bool = False) -> None:
        """Show `text`, which is in Slack's Markdown.

        Unless `is_final`, part of the text may be left for a later call. Raises the errors of SlackWebApi.
        """
        text = visible(text)
        if not text.strip():
            return
        if not text.startswith(self._written.shown):
            await self._start_over()
        while not await self._try_to_show(text, is_final=is_final):
            pass

    async def pause(self, text: str) -> None:
        """Show `text` whole and close its message. What follows it begins a new message, for a later sender too.

        Text that stood there before the run waited again is not shown again. Raises the errors of SlackWebApi.
        """
        shown = visible(text)
        if shown.strip() and len(shown) > self._delivery.rest_starts:
            await self.show(shown.rstrip(), is_final=True)
            await self._asked.end_text(self._delivery.lease, len(shown))

    async def abandon(self, remark: str) -> None:
        """End the open message in Slack with `remark`. Used after the delivery was deleted from the outbox.

        Does nothing if no message is open, or if what it shows is not known.
        """
        written = self._written
        if written.streams:
            rest = closing(written.shown, len(written.shown)) + remark
            await self._calls.stop_stream(self._channel, written.ts, rest)
        elif written.ts and written.exact > written.starts:
            shown = part_of(written.shown, written.starts, written.exact) + remark
            await self._messages.rewrite(written.number, written.ts, shown)

    async def _try_to_show(self, text: str, *, is_final: bool) -> bool:
        """Write the missing text. Return False if the text must be cut differently and written again."""
        try:
            if is_final:
                await self._update_inherited(text)
            end = -1
            while end < len(text):
                piece = next_piece(self._written, text, is_final=is_final, now=self._now())
                await self._execute_step(text, piece)
                end = piece.end
            if is_final:
                await self._withdraw_rest()
        except SlackRefused as error:
            await self._handle_refusal(error)
            return False
        return True

    async def _handle_refusal(self, error: SlackRefused) -> None:
        """Handle a refused message: use shorter messages, or close a message that cannot be edited.

        A message that cannot be edited keeps the text it is known to show. All other errors are raised again.
        """
        if error.error == TOO_LONG and self._written.part_chars > LEAST_CHARS:
            self._written = self._written.cut_smaller()
            log.info("slack message refused as too long, part length halved", part_chars=self._written.part_chars)
        elif error.error in UNEDITABLE and self._written.ts:
            log.warning("slack answer edit refused, continued in a new message", error=error.error)
            await self._close(self._written.sent)
        else:
            raise error

    async def _execute_step(self, text: str, piece: Piece) -> None:
        step = next_step(self._written, text, piece, self._now())
        if step == "open":
            await self._open(text, piece)
        elif step == "edit":
            await self._edit(text, piece.end, may_wait=piece.is_last)
        elif step != "nothing":
            await self._stream(text, piece)
        if piece.is_last:
            await self._close(piece.end)

    async def _close(self, end: int) -> None:
        """Close the current message at `end`. Later text goes into a new message."""
        if self._written.ts:
            await self._note(PartStatus.CLOSED)
        self._written = self._written.closed(end)

    async def _open(self, text: str, piece: Piece) -> None:
        """Open the next message. It is posted if it is complete, and streamed if it will grow and Slack allows streams.

        A message that an earlier attempt has posted is edited instead.
        """
        known = self._known.get(self._written.number)
        if known is None:
            self._written = await self._post_or_find(text, piece.end, streams=not piece.is_last)
            await self._note(PartStatus.OPEN)
        else:
            await self._note_begun()
            self._written = self._written.opened(known, self._now())
        if self._written.sent < piece.end:  # not posted just now: what the message shows is unknown
            await self._edit(text, piece.end)

    async def _post_or_find(self, text: str, end: int, *, streams: bool, tries: int = TRIES) -> AnswerState:
        """Post the message and return the new state.

        If the outcome of the call is unknown, search for the posted message, and post again if it is not found. Post
        `tries` times at most.
        """
        await self._note_begun()
        try:
            return await self._post(text, end, streams=streams)
        except SlackUnsure:
            ts = await self._messages.find(self._written.number)
            if ts is None and tries == 1:
                raise
        if ts is not None:
            return replace(self._written.opened(ts, self._now()), shown=text[:end])
        # After two failed attempts to stream, the message is posted.
        return await self._post_or_find(text, end, streams=streams and tries == TRIES, tries=tries - 1)

    async def _post(self, text: str, end: int, *, streams: bool) -> AnswerState:
        delivery, written, part = self._delivery, self._written, part_of(text, self._written.starts, end)
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        if streams:
            since = self._now()  # before the call: Slack measures the stream's age from later on
            try:
                ts = await self._calls.start_stream(thread, part.removesuffix(closing(text, end)))
                return written.opened(ts, since, streams=True).grown(text, end)
            except SlackLimited:
                log.info("slack stream rate limited, answer shown by editing a message")
            except SlackRefused as error:
                if error.error in TOKEN_ERRORS - {"missing_scope"}:
                    raise
                log.info("slack stream refused, answer shown by editing a message", error=error.error)
        ts = await self._calls.post(thread, part, metadata_of(self._delivery, written.number))
        return written.opened(ts, self._now()).rewritten(text, end, self._now())

    async def _stream(self, text: str, piece: Piece) -> None:
        """Append the piece to the stream, or end the stream with it. If Slack refuses it, continue by editing."""
        written, rest = self._written, text[self._written.sent : piece.end]
        try:
            if piece.is_last:
                rest += closing(text, piece.end)
                await self._calls.stop_stream(
                    self._channel, written.ts, rest, metadata_of(self._delivery, written.number)
                )
            else:
                await self._calls.append_stream(self._channel, written.ts, rest)
            self._written = written.grown(text, piece.end)
        except SlackLimited:
            if piece.is_last:
                raise
        except SlackRefused as error:  # the stream is over
            if error.error in TOKEN_ERRORS:
                raise
            self._written = replace(written, streams=False)
            await self._edit(text, piece.end)
        except SlackUnsure:  # what the message shows is unknown now
            self._written = replace(written, streams=False, sent=written.starts)
            await self._messages.end_stream(written.ts)
            await self._edit(text, piece.end)

    async def _edit(self, text: str, end: int, *, may_wait: bool = True) -> None:
        """Edit the open message to show exactly its part of the text up to `end`. Repeating the edit does no harm."""
        written, part = self._written, part_of(text, self._written.starts, end)
        try:
            await self._messages.rewrite(written.number, written.ts, part, MAX_WAIT_SECONDS if may_wait else 0)
            self._written = written.rewritten(text, end, self._now())
        except SlackLimited:
            if may_wait:
                raise
            self._written = replace(written, edited=self._now())

    async def _start_over(self) -> None:
        """Go back to the first message, because the new text does not continue the text shown before."""
        if self._written.streams:
            await self._messages.end_stream(self._written.ts)
        self._written, self._inherited = AnswerState(self._written.part_chars), ()

    async def _update_inherited(self, text: str) -> None:
        """Edit the messages of an earlier sender, except its last one, to show the final text.

        What these messages show is not known: the earlier attempt of the turn may have produced another text, or the
        answer was redacted since. If the final text ends before the last of these messages begins, it is written again
        from the first message.
        """
        inherited, self._inherited = self._inherited, ()
        if inherited and inherited[-1].starts >= len(text):
            await self._start_over()
            return
        for part, following in pairwise(inherited):
            if part.ts and following.starts > part.starts:  # else it could not be edited and was written again
                await self._settle(part.number, part.ts, part_of(text, part.starts, following.starts))

    async def _settle(self, number: int, ts: str, shown: str) -> None:
        """Edit a closed message to show `shown`, or a withdrawal note if that is ''.

        A message that can no longer be edited stays as it is: it was complete when it was closed.
        """
        try:
            await self._messages.rewrite(number, ts, shown)
        except SlackRefused as error:
            if error.error == TOO_LONG:  # its end is the next message's start: cut all again
                await self._start_over()
            if error.error not in UNEDITABLE:
                raise
            log.warning("slack edit of earlier answer message refused, left unchanged", error=error.error)

    async def _withdraw_rest(self) -> None:
        """Edit messages of an earlier attempt that the final text does not need: they then show a withdrawal note."""
        for number, ts in sorted(self._known.items()):
            if number >= self._written.number:
                await self._settle(number, ts, "")

    async def _note_begun(self) -> None:
        await self._outbox.begin_part(self._delivery.lease, self._written.number, starts=self._written.starts)

    async def _note(self, status: PartStatus) -> None:
        self._known[self._written.number] = self._written.ts
        await self._outbox.note_part(self._delivery.lease, self._written.number, self._written.ts, status)

    def _now(self) -> float:
        return self._clock.monotonic()
