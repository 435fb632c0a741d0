"""Display of an answer while it grows: its text at intervals, and the run's status while there is no text."""

from dataclasses import dataclass

import structlog

from throughline.db.slack.outbox import Delivery
from throughline.domain.errors import TemporaryError
from throughline.domain.run import Run
from throughline.slack.answer_message import AnswerWriter
from throughline.slack.answer_text import GrowingAnswer
from throughline.slack.cited_links import CitedLinks
from throughline.slack.markdown.convert import to_slack
from throughline.slack.sent_messages import DeliveryServices
from throughline.slack.slack_errors import SlackRefused

FLUSH_SECONDS = 1.0
FLUSH_CHARS = 256
APPENDS_PER_MINUTE = 100
"""Least number of chat.appendStream calls a minute that Slack accepts from a workspace: its rate limit tier 4.

See https://docs.slack.dev/reference/methods/chat.appendStream/ .
"""

FULL_PACE_ANSWERS = APPENDS_PER_MINUTE * FLUSH_SECONDS / 60
"""Number of answers that can each be updated every FLUSH_SECONDS. With more answers, each is updated less often."""

STATUS_SECONDS = 90.0
"""Interval in seconds at which a status is sent again, because Slack removes it after two minutes."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class DisplayPace:
    """Number of growing answers that a process is showing."""

    answers: int = 0

    @property
    def slowdown(self) -> float:
        """Factor by which updates are slower than FLUSH_SECONDS, so that all answers together keep Slack's limit."""
        return max(1.0, self.answers / FULL_PACE_ANSWERS)


class Progress:
    """Display of one growing answer in its thread. Calling `show` without new text is cheap."""

    def __init__(
        self, services: DeliveryServices, delivery: Delivery, writer: AnswerWriter, growth: DisplayPace
    ) -> None:
        """Start without text. Call `end` when the answer no longer grows."""
        self.growing, self.links = GrowingAnswer(), CitedLinks(services, delivery)
        self._services = services
        self._delivery = delivery
        self._writer = writer
        self._flushed = services.clock.monotonic()
        self._seen, self._length, self._text = 0, 0, ""
        self._status, self._status_at = "", 0.0
        self._is_status_beside_message = False
        self._growth = growth
        self._is_counted = False

    def end(self) -> None:
        """Release this answer's share of Slack's rate limit to the other growing answers. May be called again."""
        self._growth.answers -= self._is_counted
        self._is_counted = False

    async def show(self, run: Run) -> None:
        """Show new text of `run` once there is enough of it or the last text was shown long enough ago.

        The thread's status is set while no text is shown, or the present step has none yet.
        """
        await self._show_text(run)
        if self.growing.is_silent or not self._writer.has_shown:
            await self._set_status()

    async def set_status(self, status: str) -> None:
        """Set the thread's status. Failures are only logged, because an answer does not depend on its status."""
        try:
            await self._services.calls.set_status(self._delivery.channel_id, self._delivery.thread_ts, status)
        except (SlackRefused, TemporaryError) as error:
            log.debug("slack status not shown", error=error.code)

    async def withdraw_status(self) -> None:
        """Remove a status that was set while a message was visible.

        Slack removes a status when a new message arrives, but not when an existing message grows.
        """
        if self._is_status_beside_message:
            self._is_status_beside_message = False
            await self.set_status("")

    async def _show_text(self, run: Run) -> None:
        is_new = self.growing.changes != self._seen
        if not (is_new or self._writer.lacks(self._text)) or not self._is_due():
            return
        self._flushed = self._services.clock.monotonic()
        if is_new:
            self._seen, self._length = self.growing.changes, len(self.growing.text)
            self._text = to_slack(await self.links.linked(run, self.growing.settled_text()))
        if self._writer.lacks(self._text):
            await self._writer.show(self._text)
            if not self._writer.lacks(self._text):
                self._status = ""  # Slack removes the status with a new message
            if not self.growing.is_silent:
                await self.withdraw_status()
            self._count()

    def _count(self) -> None:
        if not self._is_counted:
            self._is_counted = True
            self._growth.answers += 1

    def _is_due(self) -> bool:
        """Return whether to show new text now. The first text is not slowed down for other answers."""
        slowdown = self._growth.slowdown if self._is_counted else 1.0
        grown, passed = len(self.growing.text) - self._length, self._services.clock.monotonic() - self._flushed
        return grown >= FLUSH_CHARS * slowdown or passed >= FLUSH_SECONDS * slowdown

    async def _set_status(self) -> None:
        now, status = self._services.clock.monotonic(), self.growing.status
        if self._status == status and now - self._status_at <= STATUS_SECONDS:
            return
        self._status, self._status_at = status, now
        self._is_status_beside_message = self._writer.has_shown
        await self.set_status(status)
