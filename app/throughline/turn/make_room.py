"""Before every model call: plan, prune, compact, fit, keep what was done to the view, and tell readers of it."""

from dataclasses import dataclass, replace

import structlog

from throughline.context.calibration import scale
from throughline.context.context_input import ContextInput
from throughline.context.fit import FittedPrompt, fit_view
from throughline.context.plan import ContextPlan, in_force
from throughline.context.reopen import kept_state, reopen, waiting_for_growth
from throughline.context.triggers import Cause
from throughline.context.view import View
from throughline.context.view_state import view_state_json
from throughline.domain.conversation import Conversation
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import CompactionFinished, CompactionStarted
from throughline.domain.message import NewMessage, Role
from throughline.execution.off_loop import run_off_loop_if_large
from throughline.prompting.conversation import reload_conversation
from throughline.prompting.planning import characters_planned, context_input, plan_off_loop
from throughline.prompting.ready_agent import ReadyAgent
from throughline.summary.compact import Compacted, Compaction, compact
from throughline.turn.state import Turn

LESS_THAN_REFUSED = 0.9
"""After a refusal the next prompt takes at most this share of the refused one, whatever the refusal taught."""


MOST_TRIES = 3
"""Where somebody else, a job as a rule, has changed the summary meanwhile, the plan is made anew, so often in all."""

MEASURED = ("adopted", "pruned", "fitted")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Room:
    """What a model call goes on with; `stages` names all that was done to make room, in order."""

    conversation: Conversation
    view: View
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """A prompt that fits, and the conversation it was made of."""

    conversation: Conversation
    fitted: FittedPrompt
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """The model call that room is made for; `cap_tokens` (ours) is set where its prompt was refused before."""

    agent: ReadyAgent
    pending: NewMessage | None
    cap_tokens: int | None

    def input(self, conversation: Conversation) -> ContextInput:
        return replace(context_input(self.agent, conversation, self.pending), cap_tokens=self.cap_tokens)

    async def plan(self, conversation: Conversation) -> ContextPlan:
        inp, forced = self.input(conversation), None if self.cap_tokens is None else Cause.OVERFLOW
        return await plan_off_loop(inp, forced=forced)


async def make_room(
    turn: Turn,
    agent: ReadyAgent,
    conversation: Conversation,
    *,
    pending: NewMessage | None = None,
    refused_tokens: int | None = None,
) -> Room:
    """Prune and compact as the plan says; after a refusal of a prompt of `refused_tokens` (ours), harder.

    `pending` is the user's message while it is not stored. Raises LeaseLost, DatabaseUnavailable; a summariser that
    fails never does: the view is then trimmed when the prompt is fitted.
    """
    call = _Call(agent, pending, None if refused_tokens is None else max(int(LESS_THAN_REFUSED * refused_tokens), 1))
    plan = await call.plan(conversation)
    await _leave_to_the_background(turn, conversation, plan)
    if not plan.fired and not _may_compact(turn, agent, plan):
        return Room(conversation, plan.view)
    turn.events.emit(CompactionStarted(_cause(plan), plan.tokens_before))
    done = None
    for _ in range(MOST_TRIES):
        if not _may_compact(turn, agent, plan):
            break
        done = await _compact(turn, call, conversation, plan)
        conversation = done.conversation
        if not done.is_stale:
            break
        conversation = await reload_conversation(turn.parts.messages, turn.lease.run_id, agent, conversation)
        plan = await call.plan(conversation)
    view = await _view_after(call, conversation, plan, done)
    conversation = await _keep(turn, conversation, view)
    _tell(turn, view, plan, done)
    return Room(conversation, view, (*plan.fired, *(() if done is None else (f"summary_{done.outcome}",))))


async def fit_room(turn: Turn, room: Room) -> Ready:
    """Return the prompt itself, measured whole and cut as far as it must be. Raises PromptCannotFit, LeaseLost."""
    view = room.view
    fitted = await run_off_loop_if_large(characters_planned(view.inp), lambda: fit_view(view))
    if not fitted.notes:
        return Ready(room.conversation, fitted, room.stages)
    before = scale(room.view.tokens, room.view.inp.factor)
    turn.events.emit(CompactionStarted(Cause.THRESHOLD, before))
    conversation = await _keep(turn, room.conversation, fitted.view)
    _announce(turn, _Stage(Cause.THRESHOLD, fitted.notes, before).finished(fitted.view, "fitted"))
    return Ready(conversation, fitted, (*room.stages, *fitted.notes))


def _may_compact(turn: Turn, agent: ReadyAgent, plan: ContextPlan) -> bool:
    """Whether a summary is adopted or written now.

    Adopting costs no model call and is always open. Writing is for prompts that would else be cut, and no longer open
    once time is up or a summariser has failed.
    """
    if plan.cause is None or (turn.waited.is_cancelled and plan.tokens <= agent.budget.budget_tokens):
        return False
    if plan.adopts_prepared:
        return True
    return plan.writes_now and not turn.waited.has_failed and _seconds_left(turn, agent) > 0


async def _leave_to_the_background(turn: Turn, conversation: Conversation, plan: ContextPlan) -> None:
    """Have a summary that is due, and that this call does not wait for, written while the turn goes on.

    In the tool loop also one that is only near: a turn of many calls may need it before its end. Where that cannot be
    asked for, the end of the turn does it.
    """
    if turn.waited.is_preparing or plan.compacts_now:
        return
    has_called = any(row.role is Role.TOOL for row in plan.view.inp.own)
    if plan.cause is None and not (has_called and plan.is_summary_due):
        return
    turn.waited.is_preparing = True
    try:
        await turn.parts.summaries.ask_for_next(conversation.session.id)
    except ThroughlineError as error:
        log.warning("summary was not asked for", session_id=str(conversation.session.id), error=error.code)


def _seconds_left(turn: Turn, agent: ReadyAgent) -> float:
    return agent.definition.context.summary.timeout_seconds - turn.waited.seconds


async def _compact(turn: Turn, call: _Call, conversation: Conversation, plan: ContextPlan) -> Compacted:
    started = turn.parts.clock.monotonic()
    left = max(_seconds_left(turn, call.agent), 0)
    task = Compaction(call.agent, conversation, pending=call.pending, lease=turn.lease, seconds_left=left)
    done = await compact(turn.parts, task, plan)
    turn.waited.seconds += turn.parts.clock.monotonic() - started
    turn.waited.has_failed = turn.waited.has_failed or done.outcome == "failed"
    turn.waited.is_cancelled = turn.waited.is_cancelled or done.outcome == "cancelled"
    return done


async def _view_after(call: _Call, conversation: Conversation, plan: ContextPlan, done: Compacted | None) -> View:
    """Return the plan's view, or a new one where the summary under it has changed."""
    if done is not None and done.is_not_worth_it:
        return waiting_for_growth(plan.view)
    if done is None or done.outcome != "adopted":
        return plan.view
    inp = in_force(replace(call.input(conversation), view_state=plan.view_state))
    return await run_off_loop_if_large(characters_planned(inp), lambda: reopen(inp))


async def _keep(turn: Turn, conversation: Conversation, view: View) -> Conversation:
    """Store what was done to the view. Where somebody else changed the summary meanwhile, it holds for this turn."""
    session = conversation.session
    stored = view_state_json(kept_state(view))
    await turn.parts.summaries.save_view(session.id, stored, session.summary_version, turn.lease)
    return replace(conversation, session=replace(session, view_state=stored))


def _tell(turn: Turn, view: View, plan: ContextPlan, done: Compacted | None) -> None:
    outcome, detail = ("pruned" if plan.fired else "skipped", "") if done is None else (done.outcome, done.detail)
    stage = _Stage(_cause(plan), plan.fired, plan.tokens_before)
    _announce(turn, stage.finished(view, outcome, detail))


@dataclass(frozen=True, slots=True)
class _Stage:
    """Room being made: why, by which rungs, and of how many tokens (the model's)."""

    cause: Cause
    fired: tuple[str, ...]
    tokens_before: int

    def finished(self, view: View, outcome: str, detail: str = "") -> CompactionFinished:
        return CompactionFinished(
            cause=self.cause,
            outcome=outcome,
            detail=detail,
            fired=self.fired,
            tokens_before=self.tokens_before,
            tokens_after=scale(view.tokens, view.inp.factor),
            through_position=view.inp.summary_through_position,
        )


def _announce(turn: Turn, finished: CompactionFinished) -> None:
    """Emit the end of a stage, count its rungs, and record what the prompt took before and after."""
    for rung in finished.fired:
        turn.parts.metrics.rung_fired(rung=rung)
    if finished.outcome in MEASURED:
        turn.parts.metrics.compaction_measured(tokens_before=finished.tokens_before, tokens_after=finished.tokens_after)
    turn.events.emit(finished)


def _cause(plan: ContextPlan) -> Cause:
    """What the stages are for: a summary's own cause, else the prompt's size."""
    return plan.cause or Cause.THRESHOLD
