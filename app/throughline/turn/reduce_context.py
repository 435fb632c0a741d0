"""Reduction of the context before every model call: plan the prompt, compact as decided, fit it, report each stage.

The nodes `retrieve_context` and `llm_node` call it. The decisions are made in `context/`; this module carries them out
and stores the result.
"""

from dataclasses import dataclass, replace

import structlog

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.fit_prompt import FittedPrompt, fit_view
from throughline.context.plan_context import ContextPlan
from throughline.context.view.view import View, kept_state, waiting_for_growth
from throughline.context.view.view_state import view_state_json
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import CompactionFinished, CompactionStarted
from throughline.domain.message import NewMessage
from throughline.domain.summary import CompactionOutcome, CompactionResult, Conversation
from throughline.turn.prompting.planning import compute_context, plan_call, reload_conversation
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.state import Turn
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction

LESS_THAN_REFUSED = 0.9
"""Largest size of the prompt after a refusal, as a share of the refused prompt, whatever the refusal said."""

MOST_TRIES = 3
"""Number of plans made in all if another process, usually a side job, keeps changing the session's summary."""

MEASURED = {CompactionOutcome.ADOPTED, CompactionOutcome.PRUNED, CompactionOutcome.FITTED}
"""Outcomes for which the prompt's tokens before and after are recorded as a metric."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReducedContext:
    """The conversation and its view for a model call; `stages` names the reductions that were made, in order."""

    conversation: Conversation
    view: View
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FittedContext:
    """A prompt that fits the budget, the conversation it was made from, and the names of all reductions."""

    conversation: Conversation
    fitted: FittedPrompt
    stages: tuple[str, ...]


async def reduce_context(
    turn: Turn,
    agent: ReadyAgent,
    conversation: Conversation,
    *,
    pending: NewMessage | None = None,
    refused_tokens: int | None = None,
) -> ReducedContext:
    """Prune and compact the conversation as the plan says.

    `pending` is the user's message while it is not stored yet. `refused_tokens` is our count of a prompt that the
    provider refused; the new prompt is then made smaller than that. Raises LeaseLost and DatabaseUnavailable. A failed
    summary raises nothing: the view is trimmed later, when the prompt is fitted.
    """
    cap_tokens = None if refused_tokens is None else max(int(LESS_THAN_REFUSED * refused_tokens), 1)
    plan = turn.compaction_usage.limited(await plan_call(agent, conversation, pending, cap_tokens=cap_tokens), agent)
    if plan.decision.action is CompactionAction.WRITE_IN_BACKGROUND:
        await _request_background_summary(turn, conversation)
    if not plan.fired and not plan.decision.is_now:
        return ReducedContext(conversation, plan.view)
    turn.events.emit(CompactionStarted(_trigger(plan), plan.tokens_before))
    compaction = Compaction(agent, conversation, plan, pending=pending, cap_tokens=cap_tokens, lease=turn.lease)
    compaction, view, done = await _carry_out(turn, compaction)
    plan, conversation = compaction.plan, await _keep(turn, compaction.conversation, view)
    _report_compaction(turn, view, plan, done)
    stages = plan.fired if done is None else (*plan.fired, f"summary_{done.outcome}")
    return ReducedContext(conversation, view, stages)


async def _carry_out(turn: Turn, compaction: Compaction) -> tuple[Compaction, View, CompactionResult | None]:
    """Compact as planned, and make a new plan if another process has changed the session's summary meanwhile.

    Returns the compaction with the conversation and the plan in force, and the view to continue with. If the summary
    was not worth writing, the triggers count from the newest message on.
    """
    view, done = compaction.plan.view, None
    for _ in range(MOST_TRIES):
        if not compaction.plan.decision.is_now:
            break
        conversation, view, done = await _compact(turn, compaction)
        compaction = replace(compaction, conversation=conversation)
        if not done.is_stale:
            break
        compaction = await _planned_again(turn, compaction)
        view = compaction.plan.view
    is_waiting = done is not None and done.is_not_worth_it
    return compaction, waiting_for_growth(view) if is_waiting else view, done


async def _planned_again(turn: Turn, compaction: Compaction) -> Compaction:
    messages, agent, run_id = turn.dependencies.messages, compaction.agent, turn.lease.run_id
    conversation = await reload_conversation(messages, run_id, agent, compaction.conversation)
    plan = await plan_call(agent, conversation, compaction.pending, cap_tokens=compaction.cap_tokens)
    return replace(compaction, conversation=conversation, plan=turn.compaction_usage.limited(plan, agent))


async def fit_context(turn: Turn, reduced: ReducedContext, note_tokens: int = 0) -> FittedContext:
    """Return the prompt, measured as a whole and cut until it fits, with room for notes of `note_tokens`.

    If it was cut, the new view state is stored with the session, and the cut is reported by events. Raises
    PromptCannotFit, LeaseLost.
    """
    view = reduced.view
    fitted = await compute_context(view.context_input, lambda _: fit_view(view, note_tokens))
    if not fitted.notes:
        return FittedContext(reduced.conversation, fitted, reduced.stages)
    turn.events.emit(CompactionStarted(CompactionTrigger.THRESHOLD, view.model_tokens))
    conversation = await _keep(turn, reduced.conversation, fitted.view)
    finished = CompactionFinished(
        cause=CompactionTrigger.THRESHOLD,
        outcome=CompactionOutcome.FITTED,
        detail="",
        fired=fitted.notes,
        tokens_before=view.model_tokens,
        tokens_after=fitted.view.model_tokens,
        through_position=view.context_input.summary_through_position,
    )
    _report(turn, finished)
    return FittedContext(conversation, fitted, (*reduced.stages, *fitted.notes))


async def _request_background_summary(turn: Turn, conversation: Conversation) -> None:
    """Request, once per turn, that a side job writes the next summary.

    A failed request is only logged: it is made again at the end of the turn.
    """
    if turn.compaction_usage.is_requested:
        return
    turn.compaction_usage.is_requested = True
    try:
        await turn.dependencies.summaries.ask_for_next(conversation.session.id)
    except ThroughlineError as error:
        log.warning("summary job not enqueued", session_id=str(conversation.session.id), error=error.code)


async def _compact(turn: Turn, compaction: Compaction) -> tuple[Conversation, View, CompactionResult]:
    usage, started = turn.compaction_usage, turn.dependencies.clock.monotonic()
    task = replace(compaction, seconds_left=usage.seconds_left(compaction.agent))
    conversation, view, done = await compact(turn.dependencies, task)
    usage.seconds += turn.dependencies.clock.monotonic() - started
    usage.has_failed = usage.has_failed or done.outcome is CompactionOutcome.FAILED
    usage.is_cancelled = usage.is_cancelled or done.outcome is CompactionOutcome.CANCELLED
    return conversation, view, done


async def _keep(turn: Turn, conversation: Conversation, view: View) -> Conversation:
    """Store the view state with the session, and return the conversation with it.

    If another process has changed the summary meanwhile, nothing is stored and the state holds for this turn only.
    """
    session = conversation.session
    stored = view_state_json(kept_state(view))
    await turn.dependencies.summaries.save_view(session.id, stored, session.summary_version, turn.lease)
    return replace(conversation, session=replace(session, view_state=stored))


def _report_compaction(turn: Turn, view: View, plan: ContextPlan, done: CompactionResult | None) -> None:
    without = CompactionOutcome.PRUNED if plan.fired else CompactionOutcome.SKIPPED
    finished = CompactionFinished(
        cause=_trigger(plan),
        outcome=without if done is None else done.outcome,
        detail="" if done is None else done.detail,
        fired=plan.fired,
        tokens_before=plan.tokens_before,
        tokens_after=view.model_tokens,
        through_position=view.context_input.summary_through_position,
    )
    _report(turn, finished)


def _report(turn: Turn, finished: CompactionFinished) -> None:
    """Emit the event that ends a reduction, count its stages, and record the prompt's tokens before and after."""
    for stage in finished.fired:
        turn.dependencies.metrics.stage_fired(stage=stage)
    if finished.outcome in MEASURED:
        turn.dependencies.metrics.compaction_measured(
            tokens_before=finished.tokens_before, tokens_after=finished.tokens_after
        )
    turn.events.emit(finished)


def _trigger(plan: ContextPlan) -> CompactionTrigger:
    """Return what triggered the summary, or THRESHOLD if the plan only prunes."""
    return plan.decision.trigger or CompactionTrigger.THRESHOLD
