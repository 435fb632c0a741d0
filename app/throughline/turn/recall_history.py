"""Search of the history for what the user's message asks, where the prompt does not show all of it.

A search that fails is dropped. If all together take too long, nothing is quoted; the turn continues in any case.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from throughline.context.policy import Recall
from throughline.context.questions import questions_of
from throughline.context.quoted_history import (
    FOUND,
    WHOLE_CHARACTERS,
    WHOLE_QUOTED,
    Quotation,
    choose_quotations,
    merge_quotations,
    with_quotations,
)
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.events import HistoryQuoted
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.reduce_context import FittedContext
from throughline.turn.state import Turn, TurnDependencies

SEARCH_SECONDS = 0.5
"""Seconds after which the searches of a turn are given up."""

QUOTED = "history_quoted"
"""Name, in the log line about a turn's context, for a prompt that quotes earlier messages."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A user's message in a session, and the session's owner."""

    owner_id: UserId
    session_id: SessionId
    text: str


async def recall_history(
    dependencies: TurnDependencies, recall: Recall, asked: Asked, through_position: int
) -> tuple[Quotation, ...]:
    """Return the earlier messages, up to `through_position`, that the user's message asks for.

    Empty if `recall` is off, the message asks for nothing, or the search fails or takes longer than SEARCH_SECONDS.
    """
    questions = questions_of(asked.text) if recall is Recall.AUTO and through_position > 0 else ()
    if not questions:
        return ()
    only, today = HistoryFilter(before=through_position + 1), dependencies.clock.now().date()
    query = HistoryQuery(
        "",
        FOUND,
        only,
        today,
        is_before_turn=True,
        is_plain=True,
        whole_characters=WHOLE_CHARACTERS,
        whole_hit_count=WHOLE_QUOTED,
    )
    boundary = partial(ErrorBoundary, log.warning, "history search failed", session_id=str(asked.session_id))

    async def find(question: str) -> tuple[Quotation, ...]:
        with boundary():
            history, text = dependencies.history, replace(query, text=question)
            return choose_quotations(await history.search(asked.owner_id, asked.session_id, text), asked.text)
        return ()

    with boundary():
        async with asyncio.timeout(SEARCH_SECONDS):
            return merge_quotations(await asyncio.gather(*map(find, questions)))
    return ()


def quote_history(turn: Turn, context: FittedContext, quotations: Sequence[Quotation]) -> FittedContext:
    """Return the prompt with the quotations that it has room for. Emit `HistoryQuoted` at the turn's first call."""
    fitted, quoted = with_quotations(context.fitted, quotations)
    if not quoted:
        return context
    if len(context.conversation.own) == 1:
        tokens = fitted.tokens - context.fitted.tokens
        positions = tuple(found.message.position for found in quoted)
        turn.events.emit(HistoryQuoted(positions, tuple(found.score for found in quoted), tokens))
    return replace(context, fitted=fitted, stages=(*context.stages, QUOTED))
