"""Preparation of the next summary between turns, so that the turn which needs it does not wait for a model.

A side job calls it.
"""

import math
from dataclasses import replace

import structlog

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.explain_context import NEXT_MESSAGE, next_plan
from throughline.context.plan_context import ContextPlan
from throughline.context.summaries.keep_lines import KEEP_TOKENS
from throughline.context.view.view import waiting_for_growth
from throughline.domain.errors import NotFound, SummaryConflict, TemporaryError, ThroughlineError, provider_words
from throughline.domain.session import Session
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.ports.tracing import SpanUnderWay, SummaryTrace
from throughline.turn.prompting.planning import (
    at_rest,
    compute_context,
    make_context_input,
    plan_call,
    with_prepared,
    with_summary,
)
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import summary_models, summary_tokens
from throughline.turn.summary.write_summary import SummaryWriter, begin_summary

PREPARE_SECONDS = 60.0
"""Least time limit of one preparation. No user waits for it, so it is never less than a turn would give.

A model that is known to be slow gets longer (`model_paces.py`). A session has only one such job at a time.
"""

ROUND_SECONDS = 20.0
"""Time after which a preparation ends between two calls and keeps its segments, so that other jobs can run.

The time limit, in contrast, interrupts a running call.
"""

log = structlog.get_logger(__name__)


async def prepare_next(dependencies: SummaryDependencies, session: Session) -> CompactionResult:
    """Write the next summary if one is due, and store it as prepared; return the outcome, also of a failure.

    No ThroughlineError is raised. The job holds no lease and moves no cursor, so that it does not disturb a running
    turn. If something fails, the part written until then becomes the next summary.
    """
    try:
        task = await _load_task(dependencies, session)
        if not task.plan.is_summary_due:
            return task.unchanged(CompactionOutcome.SKIPPED)
        summary = SummaryTrace("prepare summary", session.id, session.agent)
        with SpanUnderWay(dependencies.tracing.begin_summary(summary)) as span:
            span.add_result(done := await _write_ahead(dependencies, task))
            return done
    except NotFound:
        return CompactionResult(CompactionOutcome.SKIPPED, session)
    except SummaryConflict:
        return CompactionResult(CompactionOutcome.SKIPPED, session, is_stale=True)
    except ThroughlineError as error:
        log.warning("summary preparation failed", session_id=str(session.id), error=error.code, **provider_words(error))
        delay = error.delay_seconds if isinstance(error, TemporaryError) else None
        return CompactionResult(CompactionOutcome.FAILED, session, delay_seconds=delay or 0.0)


async def is_next_due(dependencies: SummaryDependencies, session: Session) -> bool:
    """Return whether another summary is due after the newest one, prepared or adopted.

    Raises NotFound, DatabaseUnavailable.
    """
    return (await _load_task(dependencies, session)).plan.is_summary_due


async def _load_task(dependencies: SummaryDependencies, session: Session) -> Compaction:
    agent, conversation = await at_rest(dependencies, session)
    plan = await compute_context(make_context_input(agent, conversation, None), next_plan)
    seconds = _limit_seconds(dependencies, agent)
    return Compaction(agent, conversation, plan, pending=NEXT_MESSAGE, seconds_left=seconds)


def _limit_seconds(dependencies: SummaryDependencies, agent: ReadyAgent) -> float:
    """Return the time limit in seconds: enough for the slowest summary model to write the longest summary."""
    usual = max(PREPARE_SECONDS, agent.definition.context.summary.timeout_seconds)
    tokens = math.ceil(summary_tokens(agent) * max(agent.factor, 1.0)) + KEEP_TOKENS
    keys = [model.calibration_key for model in summary_models(dependencies, agent)]
    return max(dependencies.paces.patient_seconds(key, tokens, at_least=usual) for key in keys)


async def _write_ahead(dependencies: SummaryDependencies, task: Compaction) -> CompactionResult:
    further = replace(task, plan=await _plan_after_newest(task))
    if further.plan.decision.trigger is None:
        return task.unchanged(CompactionOutcome.SKIPPED)
    event = replace(further.hook_event, trigger="auto", tokens=task.plan.tokens, must_compact=False)
    writer = begin_summary(dependencies, further, event, round_seconds=ROUND_SECONDS)
    ended = await writer.run()
    reached = writer.draft.through_position
    if reached <= _reached_position(task):
        log.info("summary not prepared", session_id=event.session_id, outcome=ended.outcome)
        return await _nothing_written(dependencies, writer, ended)
    try:
        await dependencies.summaries.prepare_summary(await writer.adoption())
    except SummaryConflict:
        writer.calls.count_unused("stale")
        raise
    log.info("summary prepared", session_id=event.session_id, through_position=reached)
    return CompactionResult(CompactionOutcome.PREPARED, task.session)


async def _nothing_written(
    dependencies: SummaryDependencies, writer: SummaryWriter, ended: CompactionResult
) -> CompactionResult:
    session = writer.compaction.session
    if ended.is_not_worth_it:
        await _wait_for_growth(dependencies, session, writer.compaction.plan)
    if ended.outcome is CompactionOutcome.FAILED:
        await dependencies.summaries.save_failure(session, ended.detail)
        return replace(ended, delay_seconds=writer.rest_seconds)
    return ended


async def _wait_for_growth(dependencies: SummaryDependencies, session: Session, plan: ContextPlan) -> None:
    """Record that a summary was not worth writing, so that the next job does not pay to find that out again."""
    skipped = waiting_for_growth(plan.view).state.skipped_through_position
    await dependencies.summaries.save_skipped(session.id, skipped, session.summary_version)


async def _plan_after_newest(task: Compaction) -> ContextPlan:
    """Return the plan for a summary of everything after the newest summary, except the newest messages.

    The next message, which is not written yet, counts as one of the newest.
    """
    conversation = task.conversation
    prepared = conversation.prepared
    if prepared is not None:
        there = with_prepared(conversation.session, prepared)
        conversation = with_summary(conversation, there)
    return await plan_call(task.agent, conversation, task.pending, forced=CompactionTrigger.MANUAL)


def _reached_position(task: Compaction) -> int:
    prepared = task.conversation.prepared
    adopted = task.conversation.session.summary_through_position
    return adopted if prepared is None else max(adopted, prepared.through_position)
