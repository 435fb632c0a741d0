"""Writes one growing answer into a thread, as `plan_answer.py` says: as streamed messages, else by editing.

Every message is noted in the outbox before it is posted and again with the name Slack gave it. So whoever goes on
after a crash edits what is there, and looks for what may be there, before anything is posted anew.
"""

from dataclasses import replace
from itertools import pairwise

import structlog

from throughline.db.slack.outbox import Delivery, Part, PartStatus
from throughline.slack.markdown.cut_text import closing, part_of
from throughline.slack.plan_answer import Piece, Written, next_piece, next_step, visible
from throughline.slack.sent_messages import TRIES, DeliveryServices, SentMessages, metadata_of
from throughline.slack.slack_errors import TOKEN_ERRORS, TOO_LONG, UNEDITABLE, SlackLimited, SlackRefused, SlackUnsure
from throughline.slack.web_api import MAX_WAIT_SECONDS, Thread

LEAST_CHARS = 500
"""What Slack refuses as too long is cut smaller, down to this."""

log = structlog.get_logger(__name__)


class AnswerWriter:
    """`show` brings Slack to a text that is longer each time; a text that begins differently is written over."""

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        """Write for `delivery`; `begin` first."""
        self._outbox, self._calls, self._clock = services.outbox, services.calls, services.clock
        self._messages = SentMessages(services, delivery)
        self._delivery, self._channel = delivery, delivery.channel_id
        self._known: dict[int, str] = {}
        self._inherited: tuple[Part, ...] = ()
        self._written = Written()

    async def begin(self) -> None:
        """Find out what an earlier attempt has posted. Its last message is edited from now on, never streamed."""
        parts = await self._outbox.parts(self._delivery.lease.id)
        self._known = {part.number: part.ts for part in parts if part.ts}
        if not parts:
            return
        last = parts[-1]
        self._written, self._inherited = Written(number=last.number, starts=last.starts, sent=last.starts), parts
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
        """Whether anything of the text stands in Slack."""
        return bool(self._written.shown)

    def lacks(self, text: str) -> bool:
        """Whether showing `text`, which may have been shown before, would change anything in Slack."""
        return self._written.lacks(text, self._now())

    async def show(self, text: str, *, is_final: bool = False) -> None:
        """Show `text`, as Slack reads it; what is not final may wait for its turn. Raises as SlackWebApi."""
        text = visible(text)
        if not text.strip():
            return
        if not text.startswith(self._written.shown):
            await self._start_over()
        while not await self._try_to_show(text, is_final=is_final):
            pass

    async def abandon(self, remark: str) -> None:
        """End what is open with `remark`: nothing more will come, and the outbox has forgotten the delivery."""
        written = self._written
        if written.streams:
            rest = closing(written.shown, len(written.shown)) + remark
            await self._calls.stop_stream(self._channel, written.ts, rest)
        elif written.ts and written.exact > written.starts:
            shown = part_of(written.shown, written.starts, written.exact) + remark
            await self._messages.rewrite(written.number, written.ts, shown)

    async def _try_to_show(self, text: str, *, is_final: bool) -> bool:
        """Write what is missing; False where the text has to be cut otherwise, and the rest to be written so."""
        try:
            if is_final:
                await self._settle_inherited(text)
            end = -1
            while end < len(text):
                piece = next_piece(self._written, text, is_final=is_final, now=self._now())
                await self._bring_to(text, piece)
                end = piece.end
            if is_final:
                await self._withdraw_rest()
        except SlackRefused as error:
            await self._cut_otherwise(error)
            return False
        return True

    async def _cut_otherwise(self, error: SlackRefused) -> None:
        """Cut smaller, or leave a message that cannot be edited with what it is known to show. Raises other errors."""
        if error.error == TOO_LONG and self._written.part_chars > LEAST_CHARS:
            self._written = self._written.cut_smaller()
            log.info("slack takes no message this long", part_chars=self._written.part_chars)
        elif error.error in UNEDITABLE and self._written.ts:
            log.warning("a slack message can no longer be edited, another follows", error=error.error)
            await self._close(self._written.sent)
        else:
            raise error

    async def _bring_to(self, text: str, piece: Piece) -> None:
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
        """End the message at `end`; what follows goes into another."""
        if self._written.ts:
            await self._note(PartStatus.CLOSED)
        self._written = self._written.closed(end)

    async def _open(self, text: str, piece: Piece) -> None:
        """Begin a message. One that is whole at once is posted; one that will grow is streamed if Slack lets us."""
        known = self._known.get(self._written.number)
        if known is None:
            self._written = await self._post_or_find(text, piece.end, streams=not piece.is_last)
            await self._note(PartStatus.OPEN)
        else:
            await self._note_begun()
            self._written = self._written.opened(known, self._now())
        if self._written.sent < piece.end:  # not posted by us now: what it shows is not known
            await self._edit(text, piece.end)

    async def _post_or_find(self, text: str, end: int, *, streams: bool, tries: int = TRIES) -> Written:
        """Post it; of a call whose outcome is unknown find what it posted, and post again where that is nothing."""
        await self._note_begun()
        try:
            return await self._post(text, end, streams=streams)
        except SlackUnsure:
            ts = await self._messages.find(self._written.number)
            if ts is None and tries == 1:
                raise
        if ts is not None:
            return replace(self._written.opened(ts, self._now()), shown=text[:end])
        # A stream that fails twice is not asked for again.
        return await self._post_or_find(text, end, streams=streams and tries == TRIES, tries=tries - 1)

    async def _post(self, text: str, end: int, *, streams: bool) -> Written:
        delivery, written, part = self._delivery, self._written, part_of(text, self._written.starts, end)
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        if streams:
            since = self._now()  # Slack's time begins no later
            try:
                ts = await self._calls.start_stream(thread, part.removesuffix(closing(text, end)))
                return written.opened(ts, since, streams=True).grown(text, end)
            except SlackLimited:
                log.info("slack limits streams, the answer is posted instead")
            except SlackRefused as error:
                if error.error in TOKEN_ERRORS - {"missing_scope"}:
                    raise
                log.info("slack takes no stream here, the answer is posted instead", error=error.error)
        ts = await self._calls.post(thread, part, metadata_of(self._delivery, written.number))
        return written.opened(ts, self._now()).rewritten(text, end, self._now())

    async def _stream(self, text: str, piece: Piece) -> None:
        """Send the stream's next piece, or its end; where Slack does not take it, go on by editing."""
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
        except SlackUnsure:  # what it shows is no longer known
            self._written = replace(written, streams=False, sent=written.starts)
            await self._messages.end_stream(written.ts)
            await self._edit(text, piece.end)

    async def _edit(self, text: str, end: int, *, may_wait: bool = True) -> None:
        """Let the open message show exactly its part of the text up to `end`; doing so twice is the same."""
        written, part = self._written, part_of(text, self._written.starts, end)
        try:
            await self._messages.rewrite(written.number, written.ts, part, MAX_WAIT_SECONDS if may_wait else 0)
            self._written = written.rewritten(text, end, self._now())
        except SlackLimited:
            if may_wait:
                raise
            self._written = replace(written, edited=self._now())

    async def _start_over(self) -> None:
        """Another attempt of the turn says something else: write it over what was shown, from the first message."""
        if self._written.streams:
            await self._messages.end_stream(self._written.ts)
        self._written, self._inherited = Written(self._written.part_chars), ()

    async def _settle_inherited(self, text: str) -> None:
        """Bring the messages before the one that was taken over to the final text.

        What they show is not known: an earlier sender wrote it, of an attempt that may have said something else, or
        of an answer that was redacted since. A text that ends before the last of them began is written from the first.
        """
        inherited, self._inherited = self._inherited, ()
        if inherited and inherited[-1].starts >= len(text):
            await self._start_over()
            return
        for part, following in pairwise(inherited):
            if part.ts and following.starts > part.starts:  # else it could not be edited, and was written again
                await self._settle(part.number, part.ts, part_of(text, part.starts, following.starts))

    async def _settle(self, number: int, ts: str, shown: str) -> None:
        """Edit a message that is closed. One that cannot be edited had been shown to its end."""
        try:
            await self._messages.rewrite(number, ts, shown)
        except SlackRefused as error:
            if error.error == TOO_LONG:  # its end is another's beginning: all are cut again
                await self._start_over()
            if error.error not in UNEDITABLE:
                raise
            log.warning("an earlier slack message can no longer be edited", error=error.error)

    async def _withdraw_rest(self) -> None:
        """Empty messages of an earlier attempt that the final text does not need."""
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
