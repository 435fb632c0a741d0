"""Search of the owner's memories for those that fit the user's message, at the same time as the conversation is loaded.

A search that fails or takes too long is dropped, and the turn continues without memories.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from throughline.context.policy import Recall
from throughline.context.quoted_memories import MOST_QUOTED, with_memories
from throughline.domain.events import MemoriesQuoted
from throughline.domain.recall import Memory
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.recall_history import SEARCH_SECONDS, Asked, report_note
from throughline.turn.reduce_context import FittedContext
from throughline.turn.state import Turn, TurnDependencies

QUOTED = "memories_quoted"
"""Name, in the log line about a turn's context, for a prompt that quotes memories."""

log = structlog.get_logger(__name__)


async def recall_memories(dependencies: TurnDependencies, recall: Recall, asked: Asked) -> tuple[Memory, ...]:
    """Return the owner's memories that fit the user's message, best first.

    Empty if `recall` is off, none fits, or the search fails or takes longer than SEARCH_SECONDS.
    """
    if recall is not Recall.AUTO:
        return ()
    with ErrorBoundary(log.warning, "memory search failed", session_id=str(asked.session_id)):
        async with asyncio.timeout(SEARCH_SECONDS):
            return await dependencies.memories.find_fitting(asked.owner_id, asked.text, MOST_QUOTED)
    return ()


def quote_memories(turn: Turn, context: FittedContext, memories: Sequence[Memory]) -> FittedContext:
    """Return the prompt with the memories that it has room for. Emit `MemoriesQuoted` at the turn's first call."""
    fitted, quoted = with_memories(context.fitted, memories)
    ids = tuple(str(memory.id) for memory in quoted)
    return report_note(turn, context, fitted, QUOTED, partial(MemoriesQuoted, ids))
