"""Writing the next summary ahead, between turns, so that the turn that needs it does not wait for a model."""

from dataclasses import replace

import structlog

from app.context.explain import NEXT_MESSAGE, is_summary_due
from app.context.plan import ContextPlan
from app.context.reopen import waiting_for_growth
from app.context.triggers import Cause
from app.domain.errors import SummaryConflict, ThroughlineError
from app.domain.session import Session
from app.execution.off_loop import run_off_loop_if_large
from app.prompting.conversation import at_rest, with_summary
from app.prompting.planning import characters_planned, context_input, plan_off_loop
from app.summary.compact import Compaction, Writing, hook_event
from app.summary.parts import SummaryParts

PREPARE_SECONDS = 60.0
"""Nobody waits for it, so it may take its time; a session has one such job at a time."""

log = structlog.get_logger(__name__)


async def prepare_next(parts: SummaryParts, session: Session) -> bool:
    """Write the next summary if a trigger has fired, and keep it as prepared; return whether one was stored.

    It holds no lease and moves no cursor: a turn that runs meanwhile is not disturbed. Whatever fails is logged and
    counted, and tried again after a later turn.
    """
    try:
        agent, conversation = await at_rest(parts, session)
        inp = context_input(agent, conversation, None)
        if not await run_off_loop_if_large(characters_planned(inp), lambda: is_summary_due(inp)):
            return False
        task = Compaction(agent=agent, conversation=conversation, pending=NEXT_MESSAGE)
        return await _prepare(parts, task, await plan_off_loop(inp))
    except ThroughlineError as error:
        log.warning("summary was not prepared", session_id=str(session.id), error=error.code)
        return False


async def _prepare(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> bool:
    further = await _plan_further(task)
    if further.cause is None:
        return False
    is_further = task.conversation.prepared is not None
    told = hook_event(task, further, extends_prepared=is_further)
    event = replace(told, trigger="auto", tokens=plan.tokens, must_compact=False)
    writing = Writing(parts, task, further, event, PREPARE_SECONDS, extends_prepared=is_further)
    ended = await writing.run()
    writer = writing.writer
    if writer is None or writer.draft.through_position <= _reach(task):
        log.info("summary was not prepared", session_id=event.session_id, outcome=ended.outcome)
        if ended.is_not_worth_it:
            await _wait_for_growth(parts, task.conversation.session, further)
        return False
    try:
        await parts.summaries.prepare_summary(writer.adoption())
    except SummaryConflict:
        writing.calls.wasted("stale")
        return False
    log.info("summary prepared", session_id=event.session_id, through_position=writer.draft.through_position)
    return True


async def _wait_for_growth(parts: SummaryParts, session: Session, plan: ContextPlan) -> None:
    """Note that a summary was not worth it, so that the next job does not pay for finding that out again."""
    skipped = waiting_for_growth(plan.view).state.skipped_through_position
    await parts.summaries.save_skipped(session.id, skipped, session.summary_version)


async def _plan_further(task: Compaction) -> ContextPlan:
    """Return what is to be summarised beyond the newest summary: all but the newest messages, the next one included."""
    conversation = task.conversation
    prepared = conversation.prepared
    if prepared is not None:
        there = replace(
            conversation.session,
            conversation_summary=prepared.text,
            summary_tokens=prepared.token_count,
            summary_through_position=prepared.through_position,
        )
        conversation = with_summary(conversation, there)
    return await plan_off_loop(context_input(task.agent, conversation, task.pending), forced=Cause.MANUAL)


def _reach(task: Compaction) -> int:
    prepared = task.conversation.prepared
    adopted = task.conversation.session.summary_through_position
    return adopted if prepared is None else max(adopted, prepared.through_position)
