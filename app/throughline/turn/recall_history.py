"""Search of the history for what the user's message asks, beside the loading of the conversation.

The search reads only what the summary covers and what is indexed. One that is slow or fails costs the turn nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from throughline.context.policy import Recall
from throughline.context.quoted_history import FOUND, Quotation, choose_quotations, question_of, with_quotations
from throughline.domain.events import HistoryQuoted
from throughline.domain.message import NewMessage, text_of
from throughline.domain.recall import Found, HistoryFilter, HistoryQuery
from throughline.domain.run import Run
from throughline.execution.error_boundary import ErrorBoundary
from throughline.prompting.ready_agent import ReadyAgent
from throughline.turn.reduce_context import FittedContext
from throughline.turn.state import Turn

SEARCH_SECONDS = 0.5
"""Longest time of a search. Loading takes some of it anyway, and a user notices more."""

QUOTED = "history_quoted"
"""The name in the log line of a turn whose prompt quotes earlier messages."""

log = structlog.get_logger(__name__)


async def recall_history(turn: Turn, agent: ReadyAgent, run: Run, user: NewMessage) -> tuple[Quotation, ...]:
    """Return the earlier messages that the user's message asks for; none if the agent or the message asks for none."""
    text = text_of(user.content)
    question = question_of(text) if agent.definition.context.recall is Recall.AUTO else ""
    if not question:
        return ()
    query = HistoryQuery(
        question,
        FOUND,
        HistoryFilter(behind_cursor_of=run.session_id),
        turn.dependencies.clock.now().date(),
        only_indexed=True,
        is_plain=True,
    )
    found = Found(())
    with ErrorBoundary(log.warning, "history search failed", run_id=str(run.id)):
        async with asyncio.timeout(SEARCH_SECONDS):
            found = await turn.dependencies.history.search(run.owner_id, run.session_id, query)
    return choose_quotations(found, text)


def quote_history(turn: Turn, context: FittedContext, quotations: Sequence[Quotation]) -> FittedContext:
    """Return the prompt with the quotations that it has room for, and report them at the turn's first call."""
    fitted, quoted = with_quotations(context.fitted, quotations)
    if not quoted:
        return context
    if len(context.conversation.own) == 1:
        tokens = fitted.tokens - context.fitted.tokens
        positions = tuple(found.message.position for found in quoted)
        turn.events.emit(HistoryQuoted(positions, tuple(found.score for found in quoted), tokens))
    return replace(context, fitted=fitted, stages=(*context.stages, QUOTED))
