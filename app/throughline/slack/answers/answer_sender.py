"""Delivery of one answer to Slack: follow its run, show the status, and write the text into the thread."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from throughline.context.find_citations import find_citations
from throughline.context.markdown import spans
from throughline.db.runs.followed_runs import RunFollower
from throughline.db.sessions.citations import CitationReader
from throughline.domain.basic_types import RunId
from throughline.domain.errors import LeaseLost, NotFound, TemporaryError, ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    MessageCompleted,
    MessageDelta,
    RunEnded,
    RunEvent,
    ToolAnswered,
    ToolCalled,
)
from throughline.domain.message import text_of
from throughline.domain.recall import Citation, CitationStatus
from throughline.domain.run import Run, RunError, RunStatus
from throughline.slack.answers.answer_message import AnswerWriter
from throughline.slack.answers.markdown import settled, to_slack
from throughline.slack.answers.questions import AskedMessages
from throughline.slack.answers.sent_messages import DeliveryServices, metadata_of
from throughline.slack.store.outbox import Delivery
from throughline.slack.web_api import SlackRefused, Thread
from throughline.turn.follow_run import Followed, Following, Idle

EMPTY_ANSWER = "_(no text)_"
STOPPED = "_Stopped._"
LONGEST_SENTENCE = 300
BETWEEN_STEPS = "\n\n"


class GrowingAnswer:
    """Text of a run in progress, joined from the texts of its steps. `changes` counts the changes of the text."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._current = ""
        self._tools: dict[str | None, str] = {}
        self.changes = 0

    @property
    def text(self) -> str:
        """All text of the run so far."""
        return _joined([*self._steps, self._current])

    @property
    def is_silent(self) -> bool:
        """Whether the current step has no text yet: a tool is running, or the model has not begun."""
        return not self._current.strip()

    @property
    def status(self) -> str:
        """Description of the run's current activity while it produces no text."""
        return f"is using {list(self._tools.values())[-1]}…" if self._tools else "is thinking…"

    def settled_text(self) -> str:
        """Return the beginning of the text whose display in Slack cannot be changed by later text.

        A complete step is included as a whole, because a blank line follows it.
        """
        text = self.text
        return text[: settled(f"{text}{BETWEEN_STEPS}" if self.is_silent else text)]

    def feed(self, event: RunEvent) -> None:
        """Add one run event: text, a tool call or its result, or the reset of the answer. Ignore other events."""
        match event.event:
            case MessageDelta(text=text):
                self._say(self._steps, self._current + text)
            case MessageCompleted(message=message):
                self._say([*self._steps, text_of(message.content)], "")
            case ToolCalled(call=call):
                self._tools[call.id] = call.name
            case ToolAnswered(message=message):
                self._tools.pop(message.tool_call_id, None)
            case AnswerReset():
                self._tools.clear()
                self._say([], "")
            case _:
                pass

    def _say(self, steps: Sequence[str], current: str) -> None:
        self._steps, self._current = list(steps), current
        self.changes += 1


def final_text(run: Run, stored: Sequence[str], shown: str) -> str:
    """Return the text that Slack shows for an ended run, '' for a run cancelled before it began.

    `stored` are the run's assistant messages. `shown` is the streamed text, which a failed run has not stored.
    """
    said = _joined(stored)
    match run.status:
        case RunStatus.SUCCEEDED:
            return said or EMPTY_ANSWER
        case RunStatus.CANCELLED:
            return _joined([said, STOPPED]) if said or run.started_at is not None else ""
        case _:
            before = shown if shown.startswith(said) else said
            return _joined([before, sentence(run.error)])


def text_before_rest(stored: Sequence[str]) -> str:
    """Return the text of a waiting run's steps up to where that of the next step begins, '' without text."""
    said = _joined(stored)
    return f"{said}{BETWEEN_STEPS}" if said else ""


def sentence(error: RunError | None) -> str:
    """Return the error text that a person sees: one short sentence without internal details."""
    text = (
        error.detail if error is not None and error.detail else "An unexpected error occurred. Send the message again."
    )
    line = " ".join(text.split())
    return f":warning: {line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + '…'}"


def _joined(texts: Sequence[str]) -> str:
    return BETWEEN_STEPS.join(text for text in texts if text.strip())


_Key: TypeAlias = tuple[int, int, str]


class CitedLinks:
    """Links of one answer's citations.

    A citation keeps its link while the answer grows, because a text that begins differently is written again.
    """

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        self._services = services
        self._delivery = delivery
        self._links: dict[_Key, str] = {}

    async def linked(self, run: Run, text: str) -> str:
        """Return the Markdown `text` of the run's answer with links from valid citations `[#12]` to Slack messages.

        A citation stays without a link if the cited message is not known to be posted in this channel.

        Citations that are seen for the first time are looked up in two SQL statements; the others need none.
        """
        citations = find_citations(text)
        if any(_key(citation) not in self._links for citation in citations):
            await self._look_up(run, text, citations)
        return _with_links(text, citations, self._links)

    async def _look_up(self, run: Run, text: str, citations: Sequence[Citation]) -> None:
        reader = CitationReader(run.session_id, run.owner_id, run.owner_id)
        (checked,) = await self._services.citations.check(reader, [text])
        new = {
            _key(citation): result.status is CitationStatus.VALID and result.session_id == run.session_id
            for citation, result in zip(citations, checked, strict=True)
            if _key(citation) not in self._links
        }
        positions = {first for (first, _, _), is_readable in new.items() if is_readable}
        outbox, identity = self._services.outbox, self._services.identity
        posted = await outbox.posted_messages(self._delivery, run.session_id, positions)
        for key, is_readable in new.items():
            message = posted.get(key[0]) if is_readable else None
            self._links[key] = (
                identity.permalink(self._delivery.channel_id, message.ts, message.thread_ts) if message else ""
            )


def _key(citation: Citation) -> _Key:
    return citation.from_position, citation.to_position, f"{citation.session_id or ''} {citation.quotation}"


def _with_links(text: str, citations: Sequence[Citation], links: Mapping[_Key, str]) -> str:
    pieces, at = list[str](), 0
    for citation in citations:
        link = links[_key(citation)]
        if link and _may_be_link(text, citation):
            pieces += text[at : citation.end + 1], f"({link})"
            at = citation.end + 1
    return "".join((*pieces, text[at:]))


def _may_be_link(text: str, citation: Citation) -> bool:
    """Return whether nothing else is in the brackets, and a link after them changes nothing around them.

    A table is shown as aligned text, in which an address would take the room of the words. A citation behind an open
    code span may become code when later text ends the span.
    """
    start, end = citation.start - 1, citation.end + 1
    line_end = text.find("\n", end)
    line = text[text.rfind("\n", 0, start) + 1 : len(text) if line_end < 0 else line_end]
    is_whole = text[start] == "[" and text[citation.end : end] == "]" and text[end : end + 1] != "]"
    _, may_become_code = spans(text[text.rfind("\n\n", 0, start) + 1 : start])
    return is_whole and not text.endswith("\\", 0, start) and "|" not in line and not may_become_code


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

    def __init__(self, runs: RunFollower, services: DeliveryServices) -> None:
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
