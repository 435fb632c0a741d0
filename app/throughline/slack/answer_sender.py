"""Delivers one answer: shows that work goes on, follows the run, and brings what it says into the thread."""

from collections.abc import Sequence

import structlog

from throughline.db.connection.wakeup import RunWakeup, Seen
from throughline.db.database import Database
from throughline.db.slack.outbox import Delivery
from throughline.domain.errors import LeaseLost, TemporaryError, ThroughlineError
from throughline.domain.events import RunEvent
from throughline.domain.ids import RunId
from throughline.domain.run import Run
from throughline.slack.answer_message import AnswerWriter
from throughline.slack.answer_text import final_text
from throughline.slack.calls import Thread
from throughline.slack.markdown.shown import as_slack
from throughline.slack.progress import Growth, Progress
from throughline.slack.refusals import SlackRefused
from throughline.slack.sent_messages import DeliveryServices, metadata_of

POLL_SECONDS = 1.0
PAGE = 500
ERASED = "\n\n_(This conversation was deleted.)_"
NOT_SHOWN = (
    ":warning: The answer could not be shown here: {reason}; it is kept in the session `{session}`, "
    "where it can be read over REST."
)
NO_PART = 0
"""Parts are counted from one: what is no part of an answer is never taken for one."""

log = structlog.get_logger(__name__)


class AnswerSender:
    """Delivers, one delivery at a time; any number of senders may be at work."""

    def __init__(self, database: Database, services: DeliveryServices) -> None:
        """Follow runs in `database`, write with `services`."""
        self._database = database
        self._services = services
        self._growth = Growth()

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
        await Progress(self._services, delivery, writer, self._growth).tell("")

    async def _answer(self, run_id: RunId, delivery: Delivery, writer: AnswerWriter) -> None:
        run = await self._services.outbox.run_of(run_id)
        if run is None:
            return
        progress = Progress(self._services, delivery, writer, self._growth)
        if not run.status.is_final:
            try:
                run = await self._follow(run, progress)
            finally:
                progress.end()
        if run is None:
            return
        text = final_text(run, await self._services.outbox.texts_of(run.id), progress.growing.text)
        if text:
            await writer.show(as_slack(text), is_final=True)
            await progress.withdraw_status()
        else:
            await progress.tell("")

    async def _follow(self, run: Run, progress: Progress) -> Run | None:
        """Show the answer as it grows; return the run as it ended, None if it was erased meanwhile."""
        after, has_news = 0, True
        followed: Run | None = run
        async with self._database.watch.follow(run.id) as wakeup:
            while followed is not None and not followed.status.is_final:
                events = await self._events(run, after, wakeup) if has_news else ()
                for event in events:
                    progress.growing.feed(event)
                after = events[-1].seq if events else after
                is_over = bool(events) and events[-1].is_last
                if not is_over:  # what is over is shown whole
                    await progress.show()
                if is_over or (has_news and not events):
                    followed, has_news = await self._services.outbox.run_of(run.id), False
                elif not events:  # one look for all that wait finds what no notification told
                    has_news = await wakeup.wait_behind(Seen(run.id, after, followed.status), POLL_SECONDS)
        return followed

    async def _events(self, run: Run, after: int, wakeup: RunWakeup) -> Sequence[RunEvent]:
        """Take the events that came with the wakeup, else look into the table."""
        brought = wakeup.after(after)
        if brought:
            return brought
        async with self._database.watch.reading:
            return await self._database.events.read_events(run.id, after, PAGE)
