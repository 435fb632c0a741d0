"""The messages that a summary is written from, read from the database batch by batch."""

import math
from collections.abc import Sequence

from throughline.context.plan_context import ContextPlan, backlog
from throughline.domain.message import ImageBlock, Message
from throughline.domain.session import Session
from throughline.execution.compute_threads import characters_of
from throughline.ports.storage import MessageStore
from throughline.turn.prompting.planning import plan_call, with_summary
from throughline.turn.summary.compaction import Compaction

PAGE_MESSAGES = 20
"""Size of the first page, small because a message may be megabytes; it doubles while pages are short."""

MOST_PAGE_MESSAGES = 640
SHORT_PAGE_CHARACTERS = 200_000

BATCH_CHARACTERS = 8_000_000
"""Most characters kept in memory for one batch, even if the summary model could read more."""


async def plan_batch(compaction: Compaction, plan: ContextPlan, session: Session) -> ContextPlan:
    """Return the plan that the next batch is read by; `session` includes all earlier batches.

    Once messages that had to be loaded are read, more of the loaded ones may be summarised than `plan` says. If
    summarised messages are read again, the plan does not change.
    """
    has_read = session.summary_through_position > compaction.session.summary_through_position
    if not plan.decision.must_load_first or not has_read or compaction.is_reread:
        return plan
    there = with_summary(compaction.conversation, session)
    return await plan_call(compaction.agent, there, compaction.pending, forced=plan.decision.trigger)


async def read_batch(
    messages: MessageStore, plan: ContextPlan, session: Session, room_tokens: int
) -> tuple[tuple[Message, ...], bool]:
    """Return the messages after the cursor of `session`, and whether further ones are to be read after them.

    The batch fills `room_tokens`, by our count, if there are enough messages. It is empty at the end. Raises
    DatabaseUnavailable.
    """
    if plan.decision.must_load_first:
        return await _read_backlog(messages, plan.decision.through_position, session, room_tokens)
    cursor = session.summary_through_position
    return tuple(row for row in plan.decision.to_summarise if row.position > cursor), False


async def _read_backlog(
    messages: MessageStore, through_position: int | None, session: Session, room_tokens: int
) -> tuple[tuple[Message, ...], bool]:
    """Read messages after the cursor until they exceed `room_tokens` or BATCH_CHARACTERS.

    The batch ends with a whole group; the rest is read again for the next one.
    """
    rows: list[Message] = []
    tokens = characters = 0
    after, limit = session.summary_through_id, PAGE_MESSAGES
    while True:
        page = await messages.get_messages_after(session.id, after, limit=limit)
        rows += page
        tokens += sum(row.token_count for row in page)
        of_page = _characters_held(page)
        characters += of_page
        is_all = len(page) < limit or page[-1].position >= (through_position or math.inf)
        if is_all or tokens > room_tokens or characters >= BATCH_CHARACTERS:
            behind = backlog(rows, through_position)
            if behind or is_all:
                return behind, not is_all
        after = page[-1].id
        limit = _next_limit(limit, of_page)


def _characters_held(messages: Sequence[Message]) -> int:
    """Return the characters in memory, images included, of which summary models see only a placeholder."""
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    return characters_of(messages) + sum(len(block.url) for block in blocks if isinstance(block, ImageBlock))


def _next_limit(limit: int, characters: int) -> int:
    return min(2 * limit, MOST_PAGE_MESSAGES) if characters <= SHORT_PAGE_CHARACTERS else PAGE_MESSAGES
