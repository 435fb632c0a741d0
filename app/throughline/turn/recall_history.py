"""Search of the history for what the user's message asks, where the prompt does not show all of it.

A search that fails is dropped. If all together take too long, nothing is quoted; the turn continues in any case.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from throughline.context.fit_prompt import FittedPrompt
from throughline.context.policy import Recall
from throughline.context.questions import questions_of
from throughline.context.quoted_history import (
    FOUND,
    WHOLE_CHARACTERS,
    WHOLE_QUOTED,
    Quotation,
    choose_quotations,
    last_hidden_position,
    merge_quotations,
    with_quotations,
)
from throughline.context.view.view import View
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.events import Event, HistoryQuoted
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
    dependencies: TurnDependencies, recall: Recall, asked: Asked, view: View
) -> tuple[Quotation, ...]:
    """Return the earlier messages that the user's message asks for, up to the last one that the view hides.

    Empty if `recall` is off, the message asks for nothing, or the search fails or takes longer than SEARCH_SECONDS.
    """
    questions = questions_of(asked.text) if recall is Recall.AUTO else ()
    through_position = last_hidden_position(view) if questions else 0
    if through_position == 0:
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
    queries = [replace(query, text=question) for question in questions]
    with ErrorBoundary(log.warning, "history search failed", session_id=str(asked.session_id)):
        async with asyncio.timeout(SEARCH_SECONDS):
            found = await dependencies.history.search_before_turn(asked.owner_id, asked.session_id, queries)
            return merge_quotations([choose_quotations(result, asked.text) for result in found])
    return ()


def quote_history(turn: Turn, context: FittedContext, quotations: Sequence[Quotation]) -> FittedContext:
    """Return the prompt with the quotations that it has room for. Emit `HistoryQuoted` at the turn's first call."""
    fitted, quoted = with_quotations(context.fitted, quotations)
    positions, scores = tuple(one.message.position for one in quoted), tuple(one.score for one in quoted)
    return report_note(turn, context, fitted, QUOTED, partial(HistoryQuoted, positions, scores))


def report_note(
    turn: Turn, context: FittedContext, fitted: FittedPrompt, stage: str, event_of: Callable[[int], Event]
) -> FittedContext:
    """Return the context with the prompt to which a note was added; the same context if the prompt is the same.

    `stage` names the note in the log line. At the turn's first call, the event that `event_of` makes of the note's
    tokens is emitted.
    """
    if fitted is context.fitted:
        return context
    if len(context.conversation.own) == 1:
        turn.events.emit(event_of(fitted.tokens - context.fitted.tokens))
    return replace(context, fitted=fitted, stages=(*context.stages, stage))
