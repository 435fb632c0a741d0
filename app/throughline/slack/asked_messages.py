"""The messages of one delivery that ask about calls: posted once for each call, and edited once it is decided.

Each message is recorded before it is posted, and again with the `ts` that Slack gave it, as those of an answer are.
"""

from collections.abc import Sequence

import structlog

from throughline.db.slack.asked_calls import AskedCall
from throughline.db.slack.outbox import Delivery, PartStatus
from throughline.db.slack.people import SlackId
from throughline.domain.run import Run
from throughline.domain.waiting import AwaitedCall, Wait, WaitKind
from throughline.slack.blocks import escaped
from throughline.slack.call_blocks import CallMessage, ask_message, ended_message, key_of
from throughline.slack.call_ends import CallHistory, end_of
from throughline.slack.sent_messages import DeliveryServices, SentMessages, metadata_of
from throughline.slack.slack_errors import TOKEN_ERRORS, SlackRefused, SlackUnsure
from throughline.slack.web_api import Thread

log = structlog.get_logger(__name__)


class AskedMessages:
    """Questions of one delivery about its run's calls."""

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        self._services, self._delivery = services, delivery
        self._asked = services.slack.asked
        self._messages = SentMessages(services, delivery)

    async def update(self, run: Run) -> None:
        """Ask about the open calls of the run that were not asked about yet, and say what became of all others.

        Raises LeaseLost and the errors of SlackWebApi.
        """
        asked = await self._asked.of(self._delivery.lease.id)
        await self._end_decided(run, [one for one in asked if one.is_open])
        wait = run.waiting_for
        if wait is not None:
            await self._ask_open(run, wait, asked)

    async def _end_decided(self, run: Run, asked: Sequence[AskedCall]) -> None:
        if not asked:
            return
        messages = await self._asked.messages(run, [one.call_id for one in asked])
        history = CallHistory(run, messages, self._services.clock.now())
        for one in asked:
            if not history.is_open(one.call_id):
                await self._end(history, one)

    async def _end(self, history: CallHistory, asked: AskedCall) -> None:
        """Edit the message to say what became of its call. One that was never posted is forgotten."""
        ts, call = asked.ts or await self._messages.find(asked.number), history.call(asked.call_id)
        if not ts:
            await self._asked.drop(self._delivery.lease, asked.number)
            return
        if call is not None:
            given = history.given(asked.call_id)
            who = await self._named(None if given is None else given.author)
            await self._edit(asked.number, ts, ended_message(call, end_of(history, call, who)))
        await self._services.outbox.note_part(self._delivery.lease, asked.number, ts, PartStatus.CLOSED)

    async def _edit(self, number: int, ts: str, shown: CallMessage) -> None:
        """Edit a message. One that can no longer be edited, or was deleted, stays as it is."""
        place, metadata = (self._delivery.channel_id, ts), metadata_of(self._delivery, number)
        try:
            await self._services.calls.update_blocks(place, shown.text, shown.blocks, metadata)
        except SlackRefused as error:
            if error.error in TOKEN_ERRORS:
                raise
            log.warning("slack edit of question refused, left unchanged", error=error.error)

    async def _ask_open(self, run: Run, wait: Wait, asked: Sequence[AskedCall]) -> None:
        known = {one.call_id: one for one in asked}
        number = -len(asked)
        for call in wait.calls:
            if call.kind is WaitKind.TOOL_RESULT:
                continue
            found = known.get(call.id)
            if found is None:
                number -= 1
                await self._asked.begin(self._delivery.lease, number, call.id)
                await self._post(run, wait, call, number)
            elif not found.ts:
                await self._post(run, wait, call, found.number, ts=await self._messages.find(found.number))

    async def _post(self, run: Run, wait: Wait, call: AwaitedCall, number: int, *, ts: str | None = None) -> None:
        """Post the question, unless it was found under `ts`, and record it. Raises SlackUnsure if it may be posted."""
        shown = ask_message(call, self._delivery.reader_id, wait.until, key_of(run.id, number))
        if ts is None:
            ts = await self._posted(shown, number)
        await self._services.outbox.note_part(self._delivery.lease, number, ts, PartStatus.OPEN)

    async def _posted(self, shown: CallMessage, number: int) -> str:
        delivery = self._delivery
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        try:
            return await self._services.calls.post_blocks(
                thread, shown.text, shown.blocks, metadata_of(delivery, number)
            )
        except SlackUnsure:
            ts = await self._messages.find(number)
            if ts is None:
                raise
            return ts

    async def _named(self, author: str | None) -> str:
        """Return the person who decided, as a mention if it is the one whom the message asked."""
        if author is None:
            return "Somebody"
        reader = SlackId(self._delivery.reader_team_id, self._delivery.reader_id)
        person = await self._services.slack.people.find(reader)
        is_reader = person is not None and person.user_name == author
        return f"<@{reader.user_id}>" if is_reader else escaped(author)
