"""Writes one growing answer into a thread: as streamed messages, else by editing, and in as many as it needs.

Every message is noted in the outbox before it is posted and again with the name Slack gave it. So whoever goes on
after a crash edits what is there, and looks for what may be there, before anything is posted anew.
"""

from dataclasses import dataclass
from itertools import pairwise

import structlog

from throughline.db.slack.outbox import Delivery, Part, PartStatus, SlackOutbox
from throughline.domain.clock import Clock
from throughline.domain.json_types import JsonObject
from throughline.slack.calls import MAX_WAIT_SECONDS, SlackCalls, Thread
from throughline.slack.config import Identity
from throughline.slack.markdown.cutting import closing, cut_before, part_of
from throughline.slack.own_messages import OwnMessages, metadata_of
from throughline.slack.refusals import GONE, TOKEN_ERRORS, TOO_LONG, UNEDITABLE, SlackLimited, SlackRefused, SlackUnsure

PART_CHARS = 10_000
"""Slack takes 12,000 characters of Markdown at a time; fences that are closed and opened again need some."""

ROLL_SECONDS = 240.0
"""Slack ends a stream after about five minutes; a fresh one is begun before."""

EDIT_SECONDS = 3.0
LEAST_CHARS = 500
"""What Slack refuses as too long is cut smaller, down to this."""

LOOK_SECONDS = 1.0
TRIES = 3
WITHDRAWN = "_(withdrawn)_"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryServices:
    """What writing needs: the outbox, the calls, the time, and who we are."""

    outbox: SlackOutbox
    calls: SlackCalls
    clock: Clock
    identity: Identity


@dataclass(slots=True)
class _Message:
    """The message being written: `sent` is where the text ends that Slack has, `exact` where it stands edited so."""

    number: int
    starts: int
    ts: str
    streams: bool
    since: float
    sent: int
    exact: int = -1
    edited: float = 0.0


class AnswerWriter:
    """`show` brings Slack to a text that is longer each time; a text that begins differently is written over."""

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        """Write for `delivery`; `begin` first."""
        self._outbox, self._calls = services.outbox, services.calls
        self._clock = services.clock
        self._own_messages = OwnMessages(services.outbox, services.calls, services.identity)
        self._delivery = delivery
        self._thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        self._known: dict[int, str] = {}
        self._message: _Message | None = None
        self._number, self._starts = 1, 0
        self._shown = ""
        self._part_chars = PART_CHARS
        self._inherited: tuple[Part, ...] = ()

    async def begin(self) -> None:
        """Find out what an earlier attempt has posted. Its last message is edited from now on, never streamed."""
        parts = await self._outbox.parts(self._delivery.lease.id)
        self._known = {part.number: part.ts for part in parts if part.ts}
        if not parts:
            return
        last = parts[-1]
        ts = last.ts or await self._find(last.number)
        self._number, self._starts, self._inherited = last.number, last.starts, parts
        if ts is None:
            await self._outbox.drop_parts(self._delivery.lease, last.number)
            return
        await self._take_over(last, ts)

    @property
    def has_shown(self) -> bool:
        """Whether anything of the text stands in Slack."""
        return bool(self._shown)

    def lacks(self, text: str) -> bool:
        """Whether showing `text`, which may have been shown before, would change anything in Slack."""
        return self._is_old() or _without_leading_lines(text).rstrip() != self._shown.rstrip()

    async def show(self, text: str, *, is_final: bool = False) -> None:
        """Show `text`, as Slack reads it; what is not final may wait for its turn. Raises as SlackCalls.

        Slack refuses text that shows nothing: none is sent, and blank lines at the beginning are left out.
        """
        text = _without_leading_lines(text)
        if not text.strip():
            return
        if not text.startswith(self._shown):
            await self._start_over()
        while not await self._brought_to(text, is_final=is_final):
            pass

    async def _brought_to(self, text: str, *, is_final: bool) -> bool:
        """Write what is missing; False where the text has to be cut otherwise, and the rest to be written so."""
        try:
            await self._bring_to(text, is_final=is_final)
        except SlackRefused as error:
            message = self._message
            if error.error == TOO_LONG and self._part_chars > LEAST_CHARS:
                self._cut_smaller()
            elif error.error in UNEDITABLE and message is not None:
                log.warning("a slack message can no longer be edited, another follows", error=error.error)
                await self._leave(message)
            else:
                raise
            return False
        return True

    def _cut_smaller(self) -> None:
        """Halve what goes into a message; the one that is open is edited to show no more than that."""
        self._part_chars //= 2
        log.info("slack takes no message this long", part_chars=self._part_chars)
        if self._message is not None:
            self._message.sent = self._starts

    async def _leave(self, message: _Message) -> None:
        """End the message with what it is known to show; where that is not known, all of it is written again."""
        await self._outbox.note_part(self._delivery.lease, message.number, message.ts, PartStatus.CLOSED)
        self._message, self._number, self._starts = None, message.number + 1, message.sent

    async def _bring_to(self, text: str, *, is_final: bool) -> None:
        if is_final:
            await self._settle_inherited(text)
        while (end := self._end_of_message(text)) < len(text):
            await self._write(text, end, is_last=True)
            await self._close(text, end)
        if not is_final and self._is_old():
            await self._close(text, max(self._sent(), text.rfind("\n") + 1))
        await self._write(text, len(text), is_last=is_final)
        if is_final:
            await self._close(text, len(text))
            await self._withdraw_rest()

    async def abandon(self, remark: str) -> None:
        """End what is open with `remark`: nothing more will come, and the outbox has forgotten the delivery."""
        message = self._message
        if message is None:
            return
        if message.streams:
            rest = closing(self._shown, len(self._shown)) + remark
            await self._calls.stop_stream(self._thread.channel_id, message.ts, rest)
        elif message.exact > message.starts:
            shown = part_of(self._shown, message.starts, message.exact) + remark
            await self._calls.update((self._thread.channel_id, message.ts), shown, self._metadata(message.number))

    def _sent(self) -> int:
        return self._starts if self._message is None else self._message.sent

    def _end_of_message(self, text: str) -> int:
        return max(cut_before(text, self._starts, self._part_chars), min(self._sent(), len(text)))

    def _is_old(self) -> bool:
        message = self._message
        return message is not None and message.streams and self._clock.monotonic() - message.since > ROLL_SECONDS

    async def _write(self, text: str, end: int, *, is_last: bool) -> None:
        message = self._message
        if end <= self._starts or (message is None and not text[self._starts : end].strip()):
            return
        if message is None:
            await self._open(text, end, is_last=is_last)
        elif message.streams:
            if text[message.sent : end].strip() and not is_last:  # the last piece goes with the end of the stream
                await self._append(message, text, end)
        else:
            await self._edit_in_time(message, text, end, is_last=is_last)

    async def _open(self, text: str, end: int, *, is_last: bool) -> None:
        """Begin a message. One that is whole at once is posted; one that will grow is streamed if Slack lets us."""
        number, lease = self._number, self._delivery.lease
        if number in self._known:
            await self._outbox.begin_part(lease, number, starts=self._starts)
            self._message = self._opened(self._known[number], streams=False)
            await self._edit(self._message, text, end)
            return
        self._message = await self._put_or_found(text, end, streams=not is_last)
        self._known[number] = self._message.ts
        await self._outbox.note_part(lease, number, self._message.ts, PartStatus.OPEN)
        self._shown = text[:end]
        if self._message.sent < end:  # found, not posted by us: what it shows is not known
            await self._edit(self._message, text, end)

    async def _put_or_found(self, text: str, end: int, *, streams: bool, tries: int = TRIES) -> _Message:
        """Post it; of a call whose outcome is unknown find what it posted, and post again where that is nothing."""
        await self._outbox.begin_part(self._delivery.lease, self._number, starts=self._starts)
        try:
            return await self._put(text, end, streams=streams)
        except SlackUnsure:
            ts = await self._find(self._number)
            if ts is None and tries == 1:
                raise
        if ts is None:
            streams = streams and tries == TRIES  # a stream that fails twice is not asked for again
            return await self._put_or_found(text, end, streams=streams, tries=tries - 1)
        return self._opened(ts, streams=False)

    async def _put(self, text: str, end: int, *, streams: bool) -> _Message:
        since = self._clock.monotonic()  # Slack's time begins no later
        if streams:
            try:
                piece = part_of(text, self._starts, end).removesuffix(closing(text, end))
                message = self._opened(await self._calls.start_stream(self._thread, piece), streams=True)
            except SlackLimited:
                log.info("slack limits streams, the answer is posted instead")
            except SlackRefused as error:
                if error.error in TOKEN_ERRORS - {"missing_scope"}:
                    raise
                log.info("slack takes no stream here, the answer is posted instead", error=error.error)
            else:
                message.sent, message.since = end, since
                return message
        ts = await self._calls.post(self._thread, part_of(text, self._starts, end), self._metadata(self._number))
        message = self._opened(ts, streams=False)
        message.sent = message.exact = end
        return message

    def _opened(self, ts: str, *, streams: bool) -> _Message:
        now = self._clock.monotonic()
        return _Message(self._number, self._starts, ts, streams=streams, since=now, sent=self._starts, edited=now)

    async def _append(self, message: _Message, text: str, end: int) -> None:
        try:
            await self._calls.append_stream(self._thread.channel_id, message.ts, text[message.sent : end])
        except SlackLimited:
            return
        except (SlackRefused, SlackUnsure) as error:
            await self._stop_streaming(message, error)
            await self._edit(message, text, end)
        else:
            message.sent = end
            self._shown = text[:end]

    async def _close(self, text: str, end: int) -> None:
        """End the message at `end`; what follows goes into another."""
        message = self._message
        if message is None:  # what would stand there shows nothing
            self._starts = end
            return
        if message.streams:
            await self._stop(message, text, end)
        elif message.exact != end:
            await self._edit(message, text, end)
        await self._outbox.note_part(self._delivery.lease, message.number, message.ts, PartStatus.CLOSED)
        self._message, self._number, self._starts = None, message.number + 1, end

    async def _stop(self, message: _Message, text: str, end: int) -> None:
        rest = text[message.sent : end] + closing(text, end)
        try:
            await self._calls.stop_stream(self._thread.channel_id, message.ts, rest, self._metadata(message.number))
        except (SlackRefused, SlackUnsure) as error:
            await self._stop_streaming(message, error)
            await self._edit(message, text, end)
        else:
            self._shown = text[:end]

    async def _stop_streaming(self, message: _Message, error: Exception) -> None:
        """Go on by editing: the stream is over, or what it shows is no longer known."""
        if isinstance(error, SlackRefused) and error.error in TOKEN_ERRORS:
            raise error
        message.streams = False
        if isinstance(error, SlackUnsure):
            message.sent = message.starts
            await self._end_stream(message.ts)

    async def _end_stream(self, ts: str) -> None:
        """End a stream, if it is one: only then may the message be edited."""
        try:
            await self._calls.stop_stream(self._thread.channel_id, ts)
        except SlackRefused as error:
            if error.error in TOKEN_ERRORS:
                raise
        except SlackUnsure:
            log.info("a slack stream may still be open")

    async def _edit_in_time(self, message: _Message, text: str, end: int, *, is_last: bool) -> None:
        now = self._clock.monotonic()
        if message.exact == end or (not is_last and now - message.edited < EDIT_SECONDS):
            return
        try:
            await self._edit(message, text, end, max_wait_seconds=MAX_WAIT_SECONDS if is_last else 0)
        except SlackLimited:
            message.edited = now

    async def _edit(
        self, message: _Message, text: str, end: int, *, max_wait_seconds: float = MAX_WAIT_SECONDS
    ) -> None:
        """Let the message show exactly its part of the text up to `end`; doing so twice is the same."""
        place, shown = (self._thread.channel_id, message.ts), part_of(text, message.starts, end)
        shown = shown if shown.strip() else WITHDRAWN
        metadata = self._metadata(message.number)
        for attempt in range(TRIES):
            try:
                await self._calls.update(place, shown, metadata, max_wait_seconds=max_wait_seconds)
                break
            except SlackUnsure:
                if attempt == TRIES - 1:
                    raise
                await self._clock.sleep(LOOK_SECONDS)
            except SlackRefused as error:
                if error.error == "streaming_state_conflict" and attempt < TRIES - 1:
                    await self._end_stream(message.ts)
                    continue
                if error.error not in GONE:
                    raise
                log.warning("a slack message is gone", error=error.error)
                break
        message.sent = message.exact = end
        message.edited = self._clock.monotonic()
        self._shown = text[:end]

    async def _start_over(self) -> None:
        """Another attempt of the turn says something else: write it over what was shown, from the first message."""
        if self._message is not None and self._message.streams:
            await self._end_stream(self._message.ts)
        self._message, self._number, self._starts, self._shown = None, 1, 0, ""
        self._inherited = ()

    async def _settle_inherited(self, text: str) -> None:
        """Bring the messages before the one that was taken over to the final text.

        What they show is not known: an earlier sender wrote it, of an attempt that may have said something else, or
        of an answer that was redacted since. A text that ends before the last of them began is written from the first.
        """
        inherited = self._inherited
        if not inherited or inherited[-1].number == 1:
            return
        if inherited[-1].starts >= len(text):
            await self._start_over()
            return
        self._inherited = ()
        shown = self._shown
        for part, following in pairwise(inherited):
            if part.ts and following.starts > part.starts:  # else it could not be edited, and was written again
                await self._settle(part, text, following.starts)
        self._shown = shown

    async def _settle(self, part: Part, text: str, end: int) -> None:
        """Edit a message that an earlier sender has closed. One that cannot be edited had been shown to its end."""
        message = _Message(part.number, part.starts, part.ts, streams=False, since=0.0, sent=part.starts)
        try:
            await self._edit(message, text, end)
        except SlackRefused as error:
            if error.error == TOO_LONG:  # its end is another's beginning: all are cut again
                await self._start_over()
            if error.error not in UNEDITABLE:
                raise
            log.warning("an earlier slack message can no longer be edited", error=error.error)

    async def _withdraw_rest(self) -> None:
        """Empty messages of an earlier attempt that the final text does not need; one that is gone is empty enough."""
        for number in sorted(self._known):
            if number < self._number:
                continue
            place = (self._thread.channel_id, self._known[number])
            try:
                await self._calls.update(place, WITHDRAWN, self._metadata(number))
            except SlackRefused as error:
                if error.error not in GONE | UNEDITABLE:
                    raise

    async def _take_over(self, last: Part, ts: str) -> None:
        if last.status is not PartStatus.CLOSED:
            await self._end_stream(ts)
        self._known[last.number] = ts
        await self._outbox.note_part(self._delivery.lease, last.number, ts, PartStatus.OPEN)
        self._message = self._opened(ts, streams=False)

    async def _find(self, number: int) -> str | None:
        await self._clock.sleep(LOOK_SECONDS)
        return await self._own_messages.unnoted(self._delivery, number)

    def _metadata(self, number: int) -> JsonObject:
        return metadata_of(self._delivery, number)


def _without_leading_lines(text: str) -> str:
    blank = text[: len(text) - len(text.lstrip())]
    return text[blank.rfind("\n") + 1 :]
