"""A summary on demand: what `POST …/summarize` and `/summarize` do. It runs outside any turn, by compare-and-set."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from throughline.context.triggers import CompactionTrigger
from throughline.domain.compaction import CompactionOutcome, CompactionResult
from throughline.domain.errors import TemporaryError
from throughline.domain.ids import SessionId
from throughline.domain.session import Session
from throughline.execution.heartbeats import Heartbeats
from throughline.execution.running_beside import running_beside
from throughline.ports.summaries import SummaryStore
from throughline.prompting.conversation import at_rest
from throughline.prompting.planning import ModelCall, plan_call
from throughline.summary.compact import compact
from throughline.summary.parts import SummaryParts
from throughline.summary.writing import Compaction

LEASE_SECONDS = 15.0
"""How long a process that died keeps others from summarizing; one that lives renews in time."""

ON_DEMAND_SECONDS = 60.0
"""Who asks for a summary waits for it and no turn does: it has longer than a turn, as one written ahead has."""

log = structlog.get_logger(__name__)


async def summarize_now(parts: SummaryParts, session: Session, instructions: str) -> CompactionResult:
    """Summarise all but the newest messages of `session`, whatever the triggers say.

    One at a time for a session, in all processes. A turn that runs meanwhile is not disturbed: whoever changes the
    summary first wins, the other's work is dropped. Raises SummaryInProgress, NotFound, DatabaseUnavailable.
    """
    async with _summary_lease(parts.summaries, session.id):
        return await _summarize(parts, session, instructions)


async def _summarize(parts: SummaryParts, session: Session, instructions: str) -> CompactionResult:
    agent, conversation = await at_rest(parts, session)
    plan = await plan_call(ModelCall(agent), conversation, forced=CompactionTrigger.MANUAL)
    if plan.decision.trigger is None:
        detail = _nothing_to_do(conversation.session)
        return CompactionResult(CompactionOutcome.SKIPPED, conversation.session, detail, plan.tokens, plan.tokens)
    seconds = max(ON_DEMAND_SECONDS, agent.definition.context.summary.timeout_seconds)
    task = Compaction(agent, conversation, instructions=instructions, seconds_left=seconds)
    _, done = await compact(parts, task, plan)
    if done.outcome is CompactionOutcome.ADOPTED:
        parts.metrics.compaction_measured(tokens_before=done.tokens_before, tokens_after=done.tokens_after)
    if done.is_stale:
        return replace(done, session=(await at_rest(parts, session))[1].session)
    return done


def _nothing_to_do(session: Session) -> str:
    if session.summary_through_position == 0:
        return "There is nothing to summarize yet: the newest messages always stay as they are."
    done = session.summary_through_position
    return f"There is nothing new to summarize: all up to #{done} is, and the newest messages always stay as they are."


@asynccontextmanager
async def _summary_lease(summaries: SummaryStore, session_id: SessionId) -> AsyncGenerator[None]:
    """Keep others from summarizing the session on demand inside the block."""
    lease = await summaries.take_lease(session_id, LEASE_SECONDS)
    try:
        heartbeat = Heartbeats(summaries.renew_leases, LEASE_SECONDS).of(lease)
        async with running_beside(heartbeat.hold(), f"summarize {session_id}"):
            yield
    finally:
        try:
            await summaries.release_lease(lease)
        except TemporaryError as error:
            log.warning("summary lease is left to its time", session_id=str(session_id), error=error.code)
