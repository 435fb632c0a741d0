"""Delivery of one answer to Slack: follow its run, show the status, and write the text into the thread."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from throughline.db.runs.followed_runs import FollowedRuns
from throughline.db.slack.outbox import Delivery
from throughline.domain.errors import LeaseLost, NotFound, TemporaryError, ThroughlineError
from throughline.domain.events import RunEnded
from throughline.domain.ids import RunId
from throughline.domain.run import Run, RunStatus
from throughline.slack.answer_message import AnswerWriter
from throughline.slack.answer_text import final_text, text_before_rest
from throughline.slack.asked_messages import AskedMessages
from throughline.slack.markdown.convert import to_slack
from throughline.slack.progress import DisplayPace, Progress
from throughline.slack.sent_messages import DeliveryServices, metadata_of
from throughline.slack.slack_errors import SlackRefused
from throughline.slack.web_api import Thread
from throughline.turn.follow_run import Followed, Following, Idle

HEARTBEAT_SECONDS = 1.0
"""Interval in seconds at which the status in the thread is checked while the run produces no events."""

ERASED = "\n\n_(This conversation was deleted.)_"
NOT_SHOWN = (
    ":warning: The answer could not be shown here: {reason}; it is kept in the session `{session}`, "
    "where it can be read over REST."
)
NO_PART = 0
"""Part number for a message that is no part of an answer. Parts of an answer are numbered from 1."""

log = structlog.get_logger(__name__)


class AnswerSender:
    """Sender of answers to Slack. Several deliveries may be in progress at the same time."""

    def __init__(self, runs: FollowedRuns, services: DeliveryServices) -> None:
        self._runs = runs
        self._following = Following(runs, services.clock.monotonic, heartbeat_seconds=HEARTBEAT_SECONDS)
        self._services = services
        self._growth = DisplayPace()

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver the whole answer of the delivery's run, or its notice if it has no run.

        If the run waits, what it waits for is asked in the thread, and the delivery is put aside until it goes on.

        If the session was deleted meanwhile, the open message is closed with a remark instead. Raises LeaseLost,
        SlackRefused, and temporary errors that call for a retry.
        """
        writer = AnswerWriter(self._services, delivery)
        try:
            await self._write(delivery, writer)
        except LeaseLost:
            if not await self.is_erased(delivery):
                raise
            await self._abandon(delivery, writer)

    async def is_erased(self, delivery: Delivery) -> bool:
        """Return whether the delivery's run was deleted, and with it the delivery's outbox rows."""
        return delivery.run_id is not None and await self._runs.find(delivery.run_id) is None

    async def tell_failed(self, delivery: Delivery, reason: str) -> None:
        """Post in the thread that the answer could not be shown there, why, and where to read it.

        Does nothing for a delivery without a run. Failures are only logged.
        """
        if delivery.run_id is None:
            return
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        try:
            run = await self._runs.find(delivery.run_id)
            if run is not None:
                text = NOT_SHOWN.format(reason=reason, session=run.session_id)
                await self._services.calls.post(thread, text, metadata_of(delivery, NO_PART), max_wait_seconds=0)
        except ThroughlineError as error:
            log.warning("notice of undelivered slack answer not sent", error=error.code)

    async def _write(self, delivery: Delivery, writer: AnswerWriter) -> None:
        await writer.begin()
        waiting = None
        if delivery.run_id is None:
            await writer.show(to_slack(delivery.notice), is_final=True)
        else:
            waiting = await self._answer(delivery.run_id, delivery, writer)
        if waiting is None:
            await self._services.outbox.finish(delivery.lease)  # LeaseLost if the session was erased meanwhile
        else:
            await self._services.slack.asked.put_aside(delivery.lease, waiting)

    async def _abandon(self, delivery: Delivery, writer: AnswerWriter) -> None:
        """Close the open message in the thread.

        The delivery was deleted together with its session, so no other process would close the message.
        """
        try:
            await writer.abandon(ERASED)
        except (SlackRefused, TemporaryError) as error:
            log.warning("partial slack answer of erased session not closed", error=error.code)
        await Progress(self._services, delivery, writer, self._growth).set_status("")

    async def _answer(self, run_id: RunId, delivery: Delivery, writer: AnswerWriter) -> Run | None:
        """Show the answer. Return the run if it waits, so that its answer is not whole, else None."""
        run = await self._runs.find(run_id)
        if run is None:
            return None
        progress = Progress(self._services, delivery, writer, self._growth)
        asked = AskedMessages(self._services, delivery)
        if delivery.has_asked:
            await asked.update(run)
        if run.status.needs_worker:
            try:
                run = await self._follow(run, progress)
            except NotFound:
                return None
            finally:
                progress.end()
        stored = await self._services.outbox.texts_of(run.id)
        if not run.status.is_final:
            await writer.pause(to_slack(await progress.links.linked(run, text_before_rest(stored))))
            await asked.update(run)
            await progress.withdraw_status()
            return run
        text = final_text(run, stored, progress.growing.text)
        if text:
            await writer.show(to_slack(await progress.links.linked(run, text)), is_final=True)
            await progress.withdraw_status()
        else:
            await progress.set_status("")
        return None

    async def _follow(self, run: Run, progress: Progress) -> Run:
        """Show the answer as it grows, and return the ended or waiting run. Raises NotFound if the run was deleted."""
        await progress.show(run)
        async with aclosing(self._events(run)) as followed:
            async for item in followed:
                ended = _feed(progress, item)
                if ended is not None:  # the caller shows the whole answer
                    return ended
                await progress.show(run)
        return await self._runs.reload(run)

    async def _events(self, run: Run) -> AsyncGenerator[Followed]:
        """Yield the run's events from the first one on, until it ends or waits."""
        after = 0
        while run.status is not RunStatus.WAITING:
            async with aclosing(self._following.events(run, after=after)) as followed:
                async for item in followed:
                    after = after if isinstance(item, Idle) else item[-1].seq
                    yield item
            run = await self._runs.reload(run)  # it may have been resumed since


def _feed(progress: Progress, item: Followed) -> Run | None:
    """Add the events to the growing answer. Return the run if the last event ended it, else None."""
    if isinstance(item, Idle):
        return None
    for event in item:
        progress.growing.feed(event)
    last = item[-1].event
    return last.run if isinstance(last, RunEnded) else None
