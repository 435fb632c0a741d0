"""Compaction: writes a new summary or adopts the prepared one, and moves the session's cursor (last position covered).

Turns call `compact` before a model call, and requests on demand call it too. `prepare` writes summaries ahead with the
same `SummaryWriter`.
"""

from dataclasses import replace

import structlog

from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.plan_context import with_effective_state
from throughline.context.view.view import View, next_view
from throughline.domain.errors import SummaryConflict
from throughline.domain.session import Session
from throughline.domain.summary import CompactionOutcome, CompactionResult, Conversation
from throughline.execution.error_boundary import UNEXPECTED
from throughline.ports.tracing import CompactionPart, traced
from throughline.turn.prompting.planning import (
    compute_context,
    make_context_input,
    plan_call,
    with_prepared,
    with_summary,
)
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.pre_compact import CANCELLED_BY_HOOK, ask_hook
from throughline.turn.summary.write_summary import NOT_WRITTEN, SummaryWriter, begin_summary

SAYS_THE_SAME = (
    "The new text is the same as the old one, so the summary stays as it is. Give other instructions to change it."
)
NOT_SMALLER = "The summary would not make the prompt smaller."
EXTRACTED = "Sentences out of the messages stand in its place; the next summary on demand reads these again."

log = structlog.get_logger(__name__)


async def compact(
    dependencies: SummaryDependencies, compaction: Compaction
) -> tuple[Conversation, View, CompactionResult]:
    """Carry out the plan: write a new summary or adopt the prepared one.

    Returns the conversation and the view to continue with. If writing fails, the segments finished until then are
    adopted as one version; without any, the cursor stays where it is. Nothing is adopted that would not make the prompt
    smaller. A summary model that fails, is slow or writes nonsense raises nothing. Raises LeaseLost,
    DatabaseUnavailable.
    """
    decision, started = compaction.plan.decision, dependencies.clock.monotonic()
    with traced(CompactionPart(decision.trigger or "none", decision.action.value)) as span:
        adopts_prepared = decision.action is CompactionAction.ADOPT
        view, done = await (_adopt_prepared if adopts_prepared else _write_and_adopt)(dependencies, compaction)
        conversation = compaction.conversation
        if done.outcome is CompactionOutcome.ADOPTED:
            conversation = with_summary(conversation, done.session)
        elif done.outcome is CompactionOutcome.FAILED:
            session = await dependencies.summaries.save_failure(conversation.session, done.detail)
            conversation, done = replace(conversation, session=session), replace(done, session=session)
        _record(dependencies, compaction, done, dependencies.clock.monotonic() - started)
        span.add_result(done)
        return conversation, view, done


def _record(dependencies: SummaryDependencies, compaction: Compaction, done: CompactionResult, seconds: float) -> None:
    trigger = compaction.plan.decision.trigger
    dependencies.metrics.compaction_finished(
        cause=trigger or "none",
        outcome=done.outcome,
        seconds=seconds,
        tokens_freed=max(done.tokens_before - done.tokens_after, 0),
    )
    log.info(
        "compaction finished",
        session_id=str(compaction.session.id),
        cause=trigger,
        outcome=done.outcome,
        detail=done.detail,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        through_position=done.session.summary_through_position,
    )


async def _adopt_prepared(dependencies: SummaryDependencies, compaction: Compaction) -> tuple[View, CompactionResult]:
    """Adopt the prepared summary, unless the hook cancels it.

    The hook's instructions were applied when the summary was written.
    """
    session, prepared, view = compaction.session, compaction.conversation.prepared, compaction.plan.view
    if prepared is None:
        raise AssertionError("a plan adopts a prepared summary that the conversation does not have")
    after = await _view_after(compaction, with_prepared(session, prepared))
    if _is_no_smaller(compaction, after):
        return view, compaction.unchanged(CompactionOutcome.SKIPPED, NOT_SMALLER)
    if (await ask_hook(dependencies, compaction, compaction.hook_event)).cancel:
        return view, compaction.unchanged(CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
    try:
        adopted = await dependencies.summaries.adopt_prepared(
            session.id, prepared.id, session.summary_version, compaction.lease
        )
    except SummaryConflict:
        return view, compaction.overtaken()
    done = compaction.unchanged(CompactionOutcome.ADOPTED)
    return after, replace(done, session=adopted, tokens_after=after.model_tokens)


async def _write_and_adopt(dependencies: SummaryDependencies, compaction: Compaction) -> tuple[View, CompactionResult]:
    writer, view = begin_summary(dependencies, compaction, compaction.hook_event), compaction.plan.view
    ended = await writer.run()
    ended = replace(ended, spent=writer.calls.spent)
    if not writer.reaches_further:
        return view, ended
    if writer.draft.through_position < compaction.must_reach:
        return view, replace(ended, outcome=CompactionOutcome.FAILED, detail=_what_is_read(writer))
    after = await _view_after(compaction, await writer.session())
    adoption = await writer.adoption()
    says_the_same = adoption.is_rewritten and adoption.text == compaction.session.conversation_summary
    if says_the_same or _is_no_smaller(compaction, after):
        writer.calls.count_unused("not_smaller")
        return view, _not_used(writer, ended, SAYS_THE_SAME if says_the_same else NOT_SMALLER)
    try:
        session = await dependencies.summaries.adopt_summary(adoption, compaction.lease)
    except SummaryConflict:
        writer.calls.count_unused("conflict")
        return view, compaction.overtaken()
    except ValueError as error:  # segments with gaps: no turn fails because of a summary
        log.error(UNEXPECTED, task="summary", session_id=writer.event.session_id, error=type(error).__name__)
        return view, compaction.unchanged(CompactionOutcome.FAILED, NOT_WRITTEN)
    if writer.extract_reason:
        reason = f"{writer.extract_reason.rstrip('.')}. {EXTRACTED}"
        session = await dependencies.summaries.save_failure(session, reason)
    done = compaction.unchanged(CompactionOutcome.ADOPTED, _what_is_left(writer, ended))
    return after, replace(done, session=session, tokens_after=after.model_tokens, spent=ended.spent)


def _not_used(writer: SummaryWriter, ended: CompactionResult, detail: str) -> CompactionResult:
    """Return the result of a summary that is not used; `detail` says why, unless the models' texts were refused."""
    if writer.extract_reason:
        return replace(ended, outcome=CompactionOutcome.FAILED, detail=writer.extract_reason)
    return replace(ended, outcome=CompactionOutcome.SKIPPED, detail=detail)


def _what_is_left(writer: SummaryWriter, ended: CompactionResult) -> str:
    """Return the text that says how far an interrupted summary reaches; '' if it covers all planned messages."""
    reached, planned = writer.draft.through_position, writer.event.through_position
    if ended.outcome is not CompactionOutcome.FAILED or reached >= planned:
        return ""
    return f"It reaches #{reached}; up to #{planned} is left for the next one. {ended.detail}"


def _what_is_read(writer: SummaryWriter) -> str:
    return (
        f"Read again up to #{writer.draft.through_position} of #{writer.compaction.must_reach}; the summary stays as "
        "it was. What is read is kept: ask for the same again to go on."
    )


async def _view_after(compaction: Compaction, session: Session) -> View:
    """Return the view with the summary of `session`.

    In a turn it is the next prompt's: what the plan's stages did to messages still shown stays. Outside turns no view
    is kept; the next turn plans from the stored one.
    """
    there = with_summary(compaction.conversation, session)
    if compaction.lease is None:
        return (await plan_call(compaction.agent, there, compaction.pending)).view
    context_input = replace(
        make_context_input(compaction.agent, there, compaction.pending),
        cap_tokens=compaction.cap_tokens,
        view_state=compaction.plan.view_state,
    )
    return await compute_context(context_input, lambda context_input: next_view(with_effective_state(context_input)))


def _is_no_smaller(compaction: Compaction, after: View) -> bool:
    """Return whether a summary would free nothing.

    A history too long to be loaded in one piece is exempt: each summary is a step towards one that frees something.
    Written segments stay stored, so that they are not paid for again.
    """
    history, cursor = compaction.conversation.history, compaction.session.summary_through_position
    is_whole = not history or history[0].position <= cursor + 1
    return is_whole and after.model_tokens >= compaction.plan.tokens
