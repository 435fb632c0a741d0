"""Delivers one answer: shows that work goes on, follows the run, and brings what it says into the thread."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app.db.connection.wakeup import RunWakeup
from app.db.database import Database
from app.db.slack.outbox import Delivery
from app.domain.errors import LeaseLost, TemporaryError, ThroughlineError
from app.domain.events import RunEvent
from app.domain.ids import RunId
from app.domain.run import Run
from app.slack.answer_text import GrowingAnswer, final_text
from app.slack.calls import Thread
from app.slack.markdown.shown import as_slack, settled
from app.slack.own_messages import metadata_of
from app.slack.refusals import SlackRefused
from app.slack.writer import AnswerWriter, DeliveryServices

POLL_SECONDS = 1.0
FLUSH_SECONDS = 1.0
FLUSH_CHARS = 256
STATUS_SECONDS = 90.0
"""Slack takes a status away after two minutes."""

PAGE = 500
ERASED = "\n\n_(This conversation was deleted.)_"
NOT_SHOWN = (
    ":warning: The answer could not be shown here: {reason}; it is kept in the session `{session}`, "
    "where it can be read over REST."
)
NO_PART = 0
"""Parts are counted from one: what is no part of an answer is never taken for one."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pace:
    """When something was last shown, and how much of it."""

    flushed: float
    length: int = 0
    told: str = ""
    told_at: float = 0.0


class AnswerSender:
    """Delivers, one delivery at a time; any number of senders may be at work."""

    def __init__(self, database: Database, services: DeliveryServices) -> None:
        """Follow runs in `database`, write with `services`."""
        self._database = database
        self._services = services

    async def deliver(self, delivery: Delivery) -> None:
        """Bring the delivery to its end. Raises LeaseLost, SlackRefused, and temporary errors: try again later."""
        writer = AnswerWriter(self._services, delivery)
        try:
            await self._write(delivery, writer)
        except LeaseLost:
            if not await self._services.outbox.is_erased(delivery):
                raise
            await self._abandon(delivery, writer)

    async def tell_failed(self, delivery: Delivery, reason: str) -> None:
        """Say in the thread that an answer is not shown there, and where it is; tried once, whatever comes of it."""
        if delivery.run_id is None:
            return
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        try:
            run = await self._services.outbox.run_of(delivery.run_id)
            if run is not None:
                told = NOT_SHOWN.format(reason=reason, session=run.session_id)
                await self._services.calls.post(thread, told, metadata_of(delivery, NO_PART), max_wait_seconds=0)
        except ThroughlineError as error:
            log.warning("nobody was told that a slack delivery failed", error=error.code)

    async def _write(self, delivery: Delivery, writer: AnswerWriter) -> None:
        await writer.begin()
        if delivery.run_id is None:
            await writer.show(as_slack(delivery.notice), is_final=True)
        else:
            await self._answer(delivery.run_id, delivery, writer)
        await self._services.outbox.finish(delivery.lease)  # lost where the session was erased meanwhile

    async def _abandon(self, delivery: Delivery, writer: AnswerWriter) -> None:
        """Close what stands open in the thread: with the session its delivery is gone, so nobody will after us."""
        try:
            await writer.abandon(ERASED)
        except (SlackRefused, TemporaryError) as error:
            log.warning("the answer of an erased session is left as it stands", error=error.code)
        await self._tell(delivery, "")

    async def _answer(self, run_id: RunId, delivery: Delivery, writer: AnswerWriter) -> None:
        run = await self._services.outbox.run_of(run_id)
        if run is None:
            return
        growing = GrowingAnswer()
        if not run.status.is_final:
            run = await self._follow(delivery, run, growing, writer)
        if run is None:
            return
        text = final_text(run, await self._services.outbox.texts_of(run.id), growing.text)
        if text:
            await writer.show(as_slack(text), is_final=True)
        else:
            await self._tell(delivery, "")

    async def _follow(self, delivery: Delivery, run: Run, growing: GrowingAnswer, writer: AnswerWriter) -> Run | None:
        """Show the answer as it grows; return the run as it ended, None if it was erased meanwhile."""
        clock, after = self._services.clock, 0
        pace = _Pace(clock.monotonic())
        followed: Run | None = run
        async with self._database.hub.subscribe(run.id) as wakeup:
            while followed is not None and not followed.status.is_final:
                events = await self._events(run, after, wakeup)
                for event in events:
                    growing.feed(event)
                after = events[-1].seq if events else after
                await self._show(delivery, growing, writer, pace)
                is_over = bool(events) and events[-1].is_last
                if is_over or not (events or await wakeup.wait(POLL_SECONDS)):
                    followed = await self._services.outbox.run_of(run.id)
        return followed

    async def _events(self, run: Run, after: int, wakeup: RunWakeup) -> Sequence[RunEvent]:
        return wakeup.after(after) or await self._database.events.read_events(run.id, after, PAGE)

    async def _show(self, delivery: Delivery, growing: GrowingAnswer, writer: AnswerWriter, pace: _Pace) -> None:
        now, text = self._services.clock.monotonic(), growing.text
        if not text:
            if pace.told != growing.status or now - pace.told_at > STATUS_SECONDS:
                pace.told, pace.told_at = growing.status, now
                await self._tell(delivery, growing.status)
            return
        if len(text) - pace.length < FLUSH_CHARS and now - pace.flushed < FLUSH_SECONDS:
            return
        pace.flushed, pace.length = now, len(text)
        await writer.show(as_slack(text[: settled(text)]))

    async def _tell(self, delivery: Delivery, status: str) -> None:
        """Set the status; an answer does not depend on it."""
        try:
            await self._services.calls.set_status(delivery.channel_id, delivery.thread_ts, status)
        except (SlackRefused, TemporaryError) as error:
            log.debug("slack status not shown", error=error.code)
