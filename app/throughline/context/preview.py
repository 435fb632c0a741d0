"""The plan for the next model call, as a user may ask for it before sending: nothing is changed by looking."""

from dataclasses import replace
from enum import StrEnum

from throughline.context.calibration import scale
from throughline.context.context_input import ContextInput
from throughline.context.fit import FittedPrompt, fit_view
from throughline.context.forms import ShownMessage, shown_messages
from throughline.context.plan import ContextPlan, plan_context
from throughline.context.reopen import reopen
from throughline.context.view import View
from throughline.domain.json_types import JsonObject, JsonValue


class Action(StrEnum):
    """The strongest thing that would happen before the call."""

    NONE = "none"
    PRUNE = "prune"
    FIT = "fit"
    COMPACT = "compact"
    ADOPT = "adopt"


def preview_json(inp: ContextInput) -> JsonObject:
    """Return the plan for the first call of the next turn, in its wire form; `inp.user` is the text to be sent.

    Where a summary would have to be written first, sizes and messages are those before it; a prepared one is taken as
    adopted.
    """
    plan = _done_now(plan_context(inp))
    fitted = fit_view(_once_adopted(plan))
    view = plan.view if _action(plan, fitted) is Action.COMPACT else fitted.view
    budget, tokens = view.inp.budget, scale(view.tokens, view.inp.factor)
    return {
        "action": _action(plan, fitted).value,
        "cause": None if plan.cause is None else plan.cause.value,
        "fired": list(plan.fired if view is plan.view else (*plan.fired, *fitted.notes)),
        "tokens": tokens,
        "unreduced_tokens": scale(view.unreduced_tokens, view.inp.factor),
        "window": budget.window_tokens,
        "usage_percent": round(100 * tokens / budget.window_tokens, 1),
        "threshold_tokens": budget.threshold_tokens,
        "budget_tokens": budget.budget_tokens,
        "floor_too_high": plan.floor_too_high,
        "summarised_through": inp.summary_through_position,
        "summarise": _to_summarise(plan, inp),
        "messages": [_message_json(shown, view.inp.factor) for shown in _with_plan(plan, shown_messages(view))],
    }


def _done_now(plan: ContextPlan) -> ContextPlan:
    """Return the plan without a summary that is left to the background."""
    if plan.compacts_now:
        return plan
    return replace(plan, cause=None, to_summarise=(), through_position=None)


def _once_adopted(plan: ContextPlan) -> View:
    prepared, inp = plan.view.inp.prepared, plan.view.inp
    if not plan.adopts_prepared or prepared is None:
        return plan.view
    through = prepared.through_position
    pins = (row for row in inp.rows if row.position in plan.view.pinned and row.position <= through)
    adopted = replace(
        inp,
        summary=prepared.text,
        summary_tokens=prepared.token_count,
        summary_through_position=through,
        prepared=None,
        view_state=plan.view_state,
        pinned=(*inp.pinned, *pins),
    )
    return reopen(adopted)


def _action(plan: ContextPlan, fitted: FittedPrompt) -> Action:
    if plan.adopts_prepared:
        return Action.ADOPT
    if plan.cause is not None:
        return Action.COMPACT
    if fitted.notes:
        return Action.FIT
    return Action.PRUNE if plan.fired else Action.NONE


def _to_summarise(plan: ContextPlan, inp: ContextInput) -> JsonValue:
    if plan.cause is None or plan.through_position is None:
        return None
    first = inp.summary_through_position + 1
    return {
        "from_position": first,
        "through_position": plan.through_position,
        "message_count": plan.through_position - first + 1,
    }


def _with_plan(plan: ContextPlan, messages: tuple[ShownMessage, ...]) -> list[ShownMessage]:
    """Mark what the planned summary will stand for; pins and the text being answered are shown all the same."""
    if plan.cause is None or plan.through_position is None:
        return list(messages)
    if plan.adopts_prepared:
        listed = {message.position for message in messages}
        behind = (row for row in shown_messages(plan.view) if row.position <= plan.through_position)
        gone = (row.summarised() for row in behind if row.position not in listed)
        return sorted((*gone, *messages), key=lambda message: message.position)
    current = plan.view.inp.current
    return [
        message.summarised()
        if message.position <= plan.through_position
        and not message.is_pinned
        and (current is None or message.position != current.position)
        else message
        for message in messages
    ]


def _message_json(shown: ShownMessage, factor: float) -> JsonValue:
    return {
        "position": shown.position,
        "role": shown.role.value,
        "form": shown.form.value,
        "reason": shown.reason,
        "tokens": scale(shown.tokens, factor),
        "pinned": shown.is_pinned,
    }
