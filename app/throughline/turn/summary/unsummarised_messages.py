"""The messages that a compaction has to read, in batches: first those that were not loaded, then those of the plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.plan_context import ContextPlan, backlog
from throughline.domain.message import ImageBlock, Message, NewMessage
from throughline.domain.session import Session
from throughline.domain.summary import Conversation
from throughline.execution.compute_threads import characters_of
from throughline.ports.storage import MessageStore
from throughline.turn.prompting.planning import ModelCall, plan_call, with_summary
from throughline.turn.prompting.ready_agent import ReadyAgent

PAGE_MESSAGES = 20
"""Size of the first page, small because a message may be megabytes; it doubles while pages are short."""

MOST_PAGE_MESSAGES = 640
SHORT_PAGE_CHARACTERS = 200_000

BATCH_CHARACTERS = 8_000_000
"""Most characters kept in memory for one batch, even if the summary model could read more."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages; `more_follows` says that further messages are to be read after them."""

    messages: tuple[Message, ...]
    more_follows: bool = False


@dataclass(slots=True)
class Unsummarised:
    """Reader of the messages that `plan` wants summarised. `pending` is the user's message while it is not stored.

    `is_reread`: the messages were summarised before, and the plan does not change.
    """

    messages: MessageStore
    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None
    plan: ContextPlan
    is_reread: bool = False

    async def next_batch(self, session: Session, room_tokens: int) -> Batch:
        """Return the messages after the cursor of `session`, which already includes all earlier batches.

        The batch fills `room_tokens`, by our count, if there are enough messages. It is empty at the end. Raises
        DatabaseUnavailable.
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
        """Read messages after the cursor until they exceed `room_tokens` or BATCH_CHARACTERS.

        The batch ends with a whole group; the rest is read again for the next one.
        """
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
    """Return the characters in memory, images included, of which summary models see only a placeholder."""
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    return characters_of(messages) + sum(len(block.url) for block in blocks if isinstance(block, ImageBlock))


def _next_limit(limit: int, characters: int) -> int:
    return min(2 * limit, MOST_PAGE_MESSAGES) if characters <= SHORT_PAGE_CHARACTERS else PAGE_MESSAGES
