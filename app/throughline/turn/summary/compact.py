"""Compaction: writes a new summary or adopts the prepared one, and moves the session's cursor (last position covered).

Turns call `compact` before a model call, and requests on demand call it too. `prepare` writes summaries ahead with the
same class `SummaryWriting`.
"""

from dataclasses import replace

import structlog

from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.plan_context import ContextPlan
from throughline.domain.errors import SummaryConflict
from throughline.domain.session import Session
from throughline.domain.summary import CompactionOutcome, CompactionResult, Conversation
from throughline.execution.error_boundary import UNEXPECTED
from throughline.ports.hooks import PreCompact
from throughline.ports.tracing import CompactionPart, traced
from throughline.turn.prompting.planning import ModelCall, plan_call, with_prepared, with_summary
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.write_segments import SegmentWriter
from throughline.turn.summary.write_summary import (
    CANCELLED_BY_HOOK,
    NOT_WRITTEN,
    Compaction,
    SummaryWriting,
    ask_pre_compact,
    changed_meanwhile,
    hook_event,
    unchanged,
)

SAYS_THE_SAME = (
    "The new text is the same as the old one, so the summary stays as it is. Give other instructions to change it."
)
NOT_SMALLER = "The summary would not make the prompt smaller."
log = structlog.get_logger(__name__)


async def compact(
    dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan
) -> tuple[Conversation, CompactionResult]:
    """Carry out the plan: write a new summary or adopt the prepared one; return the conversation to continue with.

    If writing fails, the segments finished until then are adopted as one version; without any, the cursor stays where
    it is. Nothing is adopted that would not make the prompt smaller. A summary model that fails, is slow or writes
    nonsense raises nothing. Raises LeaseLost, DatabaseUnavailable.
    """
    with traced(CompactionPart(plan.decision.trigger or "none", plan.decision.action.value)) as span:
        conversation, done = await _compact_and_record(dependencies, task, plan)
        span.add_result(done)
        return conversation, done


async def _compact_and_record(
    dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan
) -> tuple[Conversation, CompactionResult]:
    started = dependencies.clock.monotonic()
    adopts_prepared = plan.decision.action is CompactionAction.ADOPT
    conversation, done = await (_adopt_prepared if adopts_prepared else _write_and_adopt)(dependencies, task, plan)
    if done.outcome is CompactionOutcome.FAILED:
        session = await dependencies.summaries.save_failure(conversation.session, done.detail)
        conversation, done = replace(conversation, session=session), replace(done, session=session)
    dependencies.metrics.compaction_finished(
        cause=plan.decision.trigger or "none",
        outcome=done.outcome,
        seconds=dependencies.clock.monotonic() - started,
        tokens_freed=max(done.tokens_before - done.tokens_after, 0),
    )
    log.info(
        "compaction finished",
        session_id=str(task.conversation.session.id),
        cause=plan.decision.trigger,
        outcome=done.outcome,
        detail=done.detail,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        through_position=done.session.summary_through_position,
    )
    return conversation, done


async def _adopt_prepared(
    dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan
) -> tuple[Conversation, CompactionResult]:
    """Adopt the prepared summary, unless the hook cancels it.

    The hook's instructions were applied when the summary was written.
    """
    session, prepared = task.conversation.session, task.conversation.prepared
    if prepared is None:
        raise AssertionError("a plan adopts a prepared summary that the conversation does not have")
    tokens = await _tokens_after(task, with_prepared(session, prepared))
    if _is_no_smaller(task, plan, tokens):
        return task.conversation, unchanged(task, plan, CompactionOutcome.SKIPPED, NOT_SMALLER)
    if (await ask_pre_compact(dependencies, task, hook_event(task, plan))).cancel:
        return task.conversation, unchanged(task, plan, CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
    try:
        adopted = await dependencies.summaries.adopt_prepared(
            session.id, prepared.id, session.summary_version, task.lease
        )
    except SummaryConflict:
        return task.conversation, changed_meanwhile(task, plan)
    return _adopted(task, plan, adopted, tokens)


async def _write_and_adopt(
    dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan
) -> tuple[Conversation, CompactionResult]:
    extends_prepared = _extends_prepared(task, plan)
    event = hook_event(task, plan, extends_prepared=extends_prepared)
    writing = SummaryWriting(dependencies, task, plan, event, extends_prepared=extends_prepared)
    ended = await writing.run()
    ended = replace(ended, spent=writing.calls.spent)
    writer = writing.writer
    if writer is None or not writer.reaches_further:
        return task.conversation, ended
    if writer.draft.through_position < task.must_reach:
        return task.conversation, replace(ended, outcome=CompactionOutcome.FAILED, detail=_what_is_read(task, writer))
    tokens = await _tokens_after(task, await writer.session())
    adoption = await writer.adoption()
    says_the_same = adoption.is_rewritten and adoption.text == task.conversation.session.conversation_summary
    if says_the_same or _is_no_smaller(task, plan, tokens):
        writing.calls.count_unused("not_smaller")
        detail = SAYS_THE_SAME if says_the_same else NOT_SMALLER
        return task.conversation, replace(ended, outcome=CompactionOutcome.SKIPPED, detail=detail)
    try:
        session = await dependencies.summaries.adopt_summary(adoption, task.lease)
    except SummaryConflict:
        writing.calls.count_unused("conflict")
        return task.conversation, changed_meanwhile(task, plan)
    except ValueError as error:  # segments with gaps: no turn fails because of a summary
        log.error(UNEXPECTED, task="summary", session_id=event.session_id, error=type(error).__name__)
        return task.conversation, unchanged(task, plan, CompactionOutcome.FAILED, NOT_WRITTEN)
    left = _what_is_left(ended, writer.draft.through_position, event)
    conversation, done = _adopted(task, plan, session, tokens, left)
    return conversation, replace(done, spent=ended.spent)


def _what_is_left(ended: CompactionResult, reached: int, event: PreCompact) -> str:
    """Return the text that says how far an interrupted summary reaches; '' if it covers all planned messages."""
    if ended.outcome is not CompactionOutcome.FAILED or reached >= event.through_position:
        return ""
    return f"It reaches #{reached}; up to #{event.through_position} is left for the next one. {ended.detail}"


def _what_is_read(task: Compaction, writer: SegmentWriter) -> str:
    return (
        f"Read again up to #{writer.draft.through_position} of #{task.must_reach}; the summary stays as it was. "
        "What is read is kept: ask for the same again to go on."
    )


def _extends_prepared(task: Compaction, plan: ContextPlan) -> bool:
    """Return whether to continue the prepared summary instead of reading its messages again.

    A user's instructions require reading them again, because it was written without them.
    """
    prepared = task.conversation.prepared
    if prepared is None or task.instructions:
        return False
    return prepared.through_position < (plan.decision.through_position or 0)


async def _tokens_after(task: Compaction, session: Session) -> int:
    """Return the tokens that the prompt would have with the summary of `session`."""
    return (await plan_call(ModelCall(task.agent, task.pending), with_summary(task.conversation, session))).tokens


def _is_no_smaller(task: Compaction, plan: ContextPlan, tokens: int) -> bool:
    """Return whether a summary would free nothing.

    A history too long to be loaded in one piece is exempt: each summary is a step towards one that frees something.
    Written segments stay stored, so that they are not paid for again.
    """
    history, cursor = task.conversation.history, task.conversation.session.summary_through_position
    is_whole = not history or history[0].position <= cursor + 1
    return is_whole and tokens >= plan.tokens


def _adopted(
    task: Compaction, plan: ContextPlan, session: Session, tokens: int, detail: str = ""
) -> tuple[Conversation, CompactionResult]:
    result = CompactionResult(CompactionOutcome.ADOPTED, session, detail, plan.tokens, tokens)
    return with_summary(task.conversation, session), result
