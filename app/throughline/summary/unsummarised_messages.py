"""What a compaction has to read, batch by batch: what the plan names, after what lies before the loaded rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.plan_context import ContextPlan, backlog
from throughline.domain.conversation import Conversation
from throughline.domain.message import ImageBlock, Message, NewMessage
from throughline.domain.session import Session
from throughline.execution.compute_threads import characters_of
from throughline.ports.storage import MessageStore
from throughline.prompting.conversation import with_summary
from throughline.prompting.planning import ModelCall, plan_call
from throughline.prompting.ready_agent import ReadyAgent

PAGE_MESSAGES = 20
"""The first page is so small, as each message may be megabytes; while they are short the next one is twice as large."""

MOST_PAGE_MESSAGES = 640
SHORT_PAGE_CHARACTERS = 200_000

BATCH_CHARACTERS = 8_000_000
"""No more is held of what is to be read, though the summary model could take it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that follow each other; `more_follows` where they are only the beginning of what is to be read."""

    messages: tuple[Message, ...]
    more_follows: bool = False


@dataclass(slots=True)
class Unsummarised:
    """The messages that `plan` wants summarised. `pending` is the user's message while it is not stored yet.

    `is_reread`: they were summarised before, and the plan stays as it is.
    """

    messages: MessageStore
    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None
    plan: ContextPlan
    is_reread: bool = False

    async def next_batch(self, session: Session, room_tokens: int) -> Batch:
        """Return what follows the cursor of `session`, which is as it will be once all before is adopted.

        It fills `room_tokens`, by our count, where there is as much. Empty where nothing is left.
        Raises DatabaseUnavailable.
        """
        has_read = session.summary_through_position > self._position
        if self.plan.decision.must_load_first and has_read and not self.is_reread:
            there = with_summary(self.conversation, session)
            call = ModelCall(self.agent, self.pending)
            self.plan = await plan_call(call, there, forced=self.plan.decision.trigger)
        if self.plan.decision.must_load_first:
            return await self._read_backlog(session, room_tokens)
        return Batch(
            tuple(row for row in self.plan.decision.to_summarise if row.position > session.summary_through_position)
        )

    @property
    def _position(self) -> int:
        return self.conversation.session.summary_through_position

    async def _read_backlog(self, session: Session, room_tokens: int) -> Batch:
        """Read what follows the cursor until it fills the room or is long, and on to the end of a group."""
        rows: list[Message] = []
        tokens = characters = 0
        after, limit = session.summary_through_id, PAGE_MESSAGES
        while True:
            page = await self.messages.get_messages_after(session.id, after, limit=limit)
            rows += page
            tokens += sum(row.token_count for row in page)
            of_page = _characters_held(page)
            characters += of_page
            is_all = len(page) < limit or page[-1].position >= (self.plan.decision.through_position or math.inf)
            if is_all or tokens > room_tokens or characters >= BATCH_CHARACTERS:
                behind = backlog(rows, self.plan.decision.through_position)
                if behind or is_all:
                    return Batch(behind, more_follows=not is_all)
            after = page[-1].id
            limit = _next_limit(limit, of_page)


def _characters_held(messages: Sequence[Message]) -> int:
    """Images count here, which summarisers are shown by name only."""
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    return characters_of(messages) + sum(len(block.url) for block in blocks if isinstance(block, ImageBlock))


def _next_limit(limit: int, characters: int) -> int:
    return min(2 * limit, MOST_PAGE_MESSAGES) if characters <= SHORT_PAGE_CHARACTERS else PAGE_MESSAGES
