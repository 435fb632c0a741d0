"""The preview: the plan for the next model call, which a user may request before sending. It changes nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

from throughline.context.calibration import scale
from throughline.context.compaction.compaction_triggers import CompactionTrigger, reducing_tokens
from throughline.context.compaction.decide_compaction import NOTHING_DUE, CompactionAction
from throughline.context.compaction.prune import stage_mark
from throughline.context.compaction.strategy import score_messages
from throughline.context.fit_prompt import FittedPrompt, ShownMessage, fit_view, list_variants
from throughline.context.plan_context import ContextPlan, plan_context
from throughline.context.policy import Strategy
from throughline.context.prompt_parts import PromptPart, list_parts
from throughline.context.quoted_history import Quotation, with_quotations
from throughline.context.quoted_memories import tokens_of_notes, with_memories
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view import View, next_view
from throughline.domain.basic_types import MemoryId
from throughline.domain.recall import Memory


class Action(StrEnum):
    """The strongest action before the call: none, prune outputs, fit by the last stages, write or adopt a summary."""

    NONE = "none"
    PRUNE = "prune"
    FIT = "fit"
    COMPACT = "compact"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class SegmentToSummarise:
    """The range of messages that would be summarised before the model is called."""

    from_position: int
    through_position: int

    @property
    def message_count(self) -> int:
        """The number of messages in the range."""
        return self.through_position - self.from_position + 1


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan for one model call. Tokens are the model's; `wire/context.py` describes each field.

    Two are for pages alone: `parts`, which add up to `tokens`, and `prune_tokens`, the two sizes of a prompt above
    which old tool outputs become stubs.
    """

    action: Action
    cause: CompactionTrigger | None
    fired: tuple[str, ...]
    tokens: int
    unreduced_tokens: int
    window: int
    usage_percent: float
    threshold_tokens: int
    budget_tokens: int
    floor_too_high: bool
    summarised_through: int
    summarise: SegmentToSummarise | None
    messages: tuple[ShownMessage, ...]
    min_score_threshold: float | None = None
    quoted: tuple[int, ...] = ()
    quoted_memories: tuple[MemoryId, ...] = ()
    parts: tuple[PromptPart, ...] = ()
    prune_tokens: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NextCall:
    """The plan for the first model call of the next turn, and the view that it leads to."""

    plan: ContextPlan
    view: View


def plan_next_call(context_input: ContextInput) -> NextCall:
    """Return the plan for the next turn's first model call; `context_input.user` is the text to be sent.

    A summary to be written in the background is left out, and a prepared one is assumed to be adopted.
    """
    plan = _done_now(plan_context(context_input))
    return NextCall(plan, _once_adopted(plan))


def preview_call(planned: NextCall, quotations: Sequence[Quotation] = (), memories: Sequence[Memory] = ()) -> Preview:
    """Return how the planned call would show each message.

    `quotations` are earlier messages to quote, `memories` the owner's to quote. If a summary would have to be written
    first, sizes and messages are those before it, without quotations.
    """
    plan, context_input = planned.plan, planned.plan.view.context_input
    note_tokens = tokens_of_notes(planned.view, quotations, memories)
    fitted, quoted = with_quotations(fit_view(planned.view, note_tokens), quotations)
    fitted, quoted_memories = with_memories(fitted, memories)
    view = plan.view if _action(plan, fitted) is Action.COMPACT else fitted.view
    budget, tokens = view.context_input.budget, view.model_tokens
    return Preview(
        action=_action(plan, fitted),
        cause=plan.decision.trigger,
        fired=plan.fired if view is plan.view else (*plan.fired, *fitted.notes),
        tokens=tokens,
        unreduced_tokens=scale(view.unreduced_tokens, view.context_input.factor),
        window=budget.window_tokens,
        usage_percent=round(100 * tokens / budget.window_tokens, 1),
        threshold_tokens=reducing_tokens(view.context_input),
        budget_tokens=budget.budget_tokens,
        floor_too_high=plan.floor_too_high,
        summarised_through=context_input.summary_through_position,
        summarise=_to_summarise(plan, context_input),
        messages=_scored(context_input, view, _with_plan(plan, list_variants(view))),
        min_score_threshold=context_input.policy.min_score_threshold if _has_scores(context_input) else None,
        quoted=tuple(sorted(found.message.position for found in quoted)) if view is fitted.view else (),
        quoted_memories=tuple(memory.id for memory in quoted_memories) if view is fitted.view else (),
        parts=list_parts(view),
        prune_tokens=_prune_tokens(context_input),
    )


def _prune_tokens(context_input: ContextInput) -> tuple[int, int]:
    policy = context_input.policy.prune
    return int(stage_mark(context_input, policy.start)), int(stage_mark(context_input, policy.aggressive))


def _scored(context_input: ContextInput, view: View, messages: Iterable[ShownMessage]) -> tuple[ShownMessage, ...]:
    """Return the messages with their sizes in the model's tokens and, with the strategy `importance`, their scores."""
    scores, messages = score_messages(context_input) if _has_scores(context_input) else {}, list(messages)
    sums = [
        scale(tokens, view.context_input.factor) for tokens in accumulate((one.tokens for one in messages), initial=0)
    ]
    # Rounded one by one, the sizes would add up to more than the prompt.
    sizes = [after - before for before, after in pairwise(sums)]
    return tuple(
        replace(one, tokens=tokens, score=scores.get(one.position)) for one, tokens in zip(messages, sizes, strict=True)
    )


def _has_scores(context_input: ContextInput) -> bool:
    return context_input.policy.strategy is Strategy.IMPORTANCE


def _done_now(plan: ContextPlan) -> ContextPlan:
    """Return the plan without a summary that would be written in the background."""
    if plan.decision.is_now:
        return plan
    return replace(plan, decision=NOTHING_DUE)


def _once_adopted(plan: ContextPlan) -> View:
    prepared, context_input = plan.view.context_input.prepared, plan.view.context_input
    if plan.decision.action is not CompactionAction.ADOPT or prepared is None:
        return plan.view
    through = prepared.through_position
    pins = (row for row in context_input.rows if row.position in plan.view.pinned and row.position <= through)
    adopted = replace(
        context_input,
        summary=prepared.text,
        summary_tokens=prepared.token_count,
        summary_through_position=through,
        prepared=None,
        view_state=plan.view_state,
        pinned=(*context_input.pinned, *pins),
    )
    return next_view(adopted)


def _action(plan: ContextPlan, fitted: FittedPrompt) -> Action:
    if plan.decision.action is CompactionAction.ADOPT:
        return Action.ADOPT
    if plan.decision.trigger is not None:
        return Action.COMPACT
    if fitted.notes:
        return Action.FIT
    return Action.PRUNE if plan.fired else Action.NONE


def _to_summarise(plan: ContextPlan, context_input: ContextInput) -> SegmentToSummarise | None:
    if plan.decision.trigger is None or plan.decision.through_position is None:
        return None
    return SegmentToSummarise(context_input.summary_through_position + 1, plan.decision.through_position)


def _with_plan(plan: ContextPlan, messages: tuple[ShownMessage, ...]) -> list[ShownMessage]:
    """Return the messages, with those marked as summarised that the planned summary will cover.

    Pins and the text being answered stay shown.
    """
    through, current = plan.decision.through_position, plan.view.context_input.current
    if plan.decision.trigger is None or through is None:
        return list(messages)
    if plan.decision.action is CompactionAction.ADOPT:
        return _with_adopted(messages, list_variants(plan.view), through)
    stays = {message.position for message in messages if message.pinned or message.position > through}
    if current is not None:
        stays.add(current.position)
    return [message if message.position in stays else message.summarised() for message in messages]


def _with_adopted(
    messages: tuple[ShownMessage, ...], before: Iterable[ShownMessage], through: int
) -> list[ShownMessage]:
    listed = {message.position for message in messages}
    gone = (row.summarised() for row in before if row.position <= through and row.position not in listed)
    return sorted((*gone, *messages), key=lambda message: message.position)
