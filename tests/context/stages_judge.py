"""Judges the order of the stages: what a stage takes away, a milder one could not have given.

Each promise is about one call, and holds only for stages that fired in it. `STAGE_PROMISES` names them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from context.play import STAGES, Step
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.fit_prompt import MessageVariant
from throughline.domain.message import Message, Role
from throughline.domain.prompt import PromptMessage

BIG_SHARE, BIG_TOKENS = 0.05, 2000
"""Above this share of the room, or so many tokens, a message is big enough to be truncated."""

RESULT_SHARE = 0.125
"""What a tool's result may have of the room so that the newest step is shown as it is."""

SMALLEST = 48
SLACK = 60
"""What a truncated message may take above its level: its call's id and name, the mark of what is left out."""

SUMMARY_SHARE, SUMMARY_FLOOR_SHARE = 0.30, 0.15
OVERSIZED_SHARE = 0.5
ROOM_SHARE, LEAST_AIM = 0.20, 0.5
GOOD_ENOUGH = 0.85
"""Of the tokens that a truncated message may take it takes so much, about."""

PRUNE_SHARE = 0.15
WORTHWHILE_SHARE = 0.05
SMALLEST_JUDGED = 1000
MOST_SQUEEZED = 4 * SMALLEST
AFTER_FOLDING = {
    "summary_dropped",
    "pins_truncated",
    "user_text_truncated",
    "notes_dropped",
    "user_text_truncated_hard",
}
"""Where one of these gave room too, what is shown does not tell how much there was before."""


def big_ones_before_old_ones(step: Step) -> str:
    """While big messages are shown whole, none is trimmed; a newest step within a tool's share is not called big."""
    view = step.fitted.view
    is_truncated = view.state.truncated_through_position > view.context_input.summary_through_position
    if "oldest_trimmed" not in step.fitted.notes or step.raw.has_gap or is_truncated:
        return ""
    room = _room(step)
    level = max(min(int(BIG_SHARE * room), BIG_TOKENS), SMALLEST)
    shown = [(message, tokens) for message, tokens in _free(step) if not message.tool_calls]
    newest = max((message.position or 0 for message in view.messages if message.tool_calls), default=math.inf)
    share = max(
        level, int(RESULT_SHARE * view.context_input.budget.budget_tokens / view.context_input.factor)
    )  # whatever was refused
    big = [
        message.position
        for message, tokens in shown
        if tokens > (share if (message.position or 0) > newest else level) + SLACK
    ]
    return f"messages {big} are whole" if big else ""


def no_more_is_truncated_than_has_to_be(step: Step) -> str:
    """Where texts are truncated and nothing else is done, one never truncated before takes the room that there is."""
    view, before = step.fitted.view, step.raw.view_state.truncated_through_position
    cut = [item.position for item in step.shown if item.form is MessageVariant.TRUNCATED and not item.pinned]
    rows = [step.rows[position - 1] for position in cut]
    is_uneven = any(row.tool_calls or not isinstance(row.content, str) for row in rows)  # calls and images go whole
    if step.fitted.notes != ("messages_truncated",) or step.raw.has_gap or is_uneven or max(cut, default=0) <= before:
        return ""
    aim = max(
        _room(step) - int(ROOM_SHARE * view.context_input.budget.window_tokens / view.context_input.factor),
        LEAST_AIM * _room(step),
    )
    return f"{view.tokens} of {aim} tokens are shown" if view.tokens < GOOD_ENOUGH * aim - SLACK else ""


def the_past_before_the_running_turn(step: Step) -> str:
    """While anything older than the user's message is shown, no step of its turn is folded, no text squeezed."""
    harsh = {"steps_folded", "messages_squeezed", "all_steps_folded", "summary_dropped", "user_text_truncated"}
    current = step.fitted.view.current
    if not harsh & set(step.fitted.notes) or current is None:
        return ""
    last = current.position or math.inf
    older = [
        message.position
        for message, _ in _free(step)
        if message.role is not Role.TOOL and message.position and message.position < last
    ]
    return f"messages {older} are still there" if older else ""


def old_steps_before_the_newest_ones_words(step: Step) -> str:
    """The oldest steps of the running turn are folded before any message is squeezed: what goes on keeps its words."""
    notes, current = step.fitted.notes, step.fitted.view.current
    if "messages_squeezed" not in notes or "all_steps_folded" in notes or current is None:
        return ""
    place = current.position or math.inf
    heads = [m.position for m, _ in _free(step) if m.role is not Role.TOOL and m.position and m.position > place]
    return f"steps {heads[:-1]} are still there" if heads[:-1] else ""


def the_newest_step_last(step: Step) -> str:
    """The newest step is folded only where not even it, squeezed, has room."""
    view, current = step.fitted.view, step.fitted.view.current
    if "all_steps_folded" not in step.fitted.notes or "user_text_truncated" in step.fitted.notes or current is None:
        return ""
    running = [row for row in view.context_input.rows if row.position > (current.position or 0)]
    newest = running[max((index for index, row in enumerate(running) if row.tool_calls), default=len(running)) :]
    is_kept = any(row.position in view.pinned for row in newest)  # pinned steps are never folded
    if not newest or is_kept or any(row.counter != view.context_input.counter_name for row in running):
        return ""
    state = view.state
    level = state.truncated_to(newest[0].position)
    is_squeezed = level is not None and 0 < level <= MOST_SQUEEZED
    if not is_squeezed and _has_big_result(step, newest):
        return "it was not squeezed before it was folded"
    tokens = _squeezed(newest, view.context_input.count) + view.tokens
    is_alone = all(row.role is Role.TOOL for row in newest[1:]) and not AFTER_FOLDING & set(step.fitted.notes)
    return f"{tokens} tokens of {_room(step)} were enough" if is_alone and tokens <= _room(step) else ""


def _has_big_result(step: Step, rows: Sequence[Message]) -> bool:
    """Whether a result that was not pruned took more than a squeezed one, as it was shown before the last stages."""
    view, pruned = step.plan.view, step.fitted.view.state.pruned_through_position
    shown = {message.position: tokens for message, tokens in zip(view.messages, view.counts, strict=True)}
    results = [row for row in rows if row.role is Role.TOOL and row.position > pruned]
    return any(
        min(row.token_count, shown.get(row.position, row.token_count)) > MOST_SQUEEZED + SLACK for row in results
    )


def _squeezed(step_rows: Sequence[Message], count: Callable[[str], int]) -> int:
    """Return the most that a step takes once it is squeezed, with a result for each of its calls."""
    calls = [call for row in step_rows for call in row.tool_calls]
    missing = max(len(calls) - len(step_rows) + 1, 0)
    return (len(step_rows) + missing) * (SMALLEST + SLACK) + sum(30 + 2 * count(call.id + call.name) for call in calls)


def the_summary_before_the_users_text(step: Step) -> str:
    """The user's text is cut once nothing else is left to give, but for a text that could never fit."""
    if not {"user_text_truncated", "user_text_truncated_hard"} & set(step.fitted.notes):
        return ""
    if step.fitted.view.summary:
        return "the summary is still there"
    big = [m.position for m, tokens in _pinned(step) if tokens > SMALLEST + SLACK and not m.tool_calls]
    return f"pins {big} are whole" if big else ""


def notes_before_the_last_words(step: Step) -> str:
    """Notes are dropped only where they leave next to nothing of the user's text."""
    view = step.fitted.view
    if "notes_dropped" not in step.fitted.notes or view.current is None:
        return ""
    tokens = view.counts[view.current_index]
    return f"{tokens} tokens of the text are shown" if tokens > SMALLEST + 4 * SLACK else ""


def an_oversized_text_does_not_push_all_else_out(step: Step) -> str:
    """A text that would not fit alone takes at most its share of the room."""
    view = step.fitted.view
    text = view.context_input.user or view.context_input.current
    if text is None or view.current is None or not step.fitted.notes or getattr(text, "pinned", False):
        return ""
    if view.current.position in dict(step.raw.view_state.user_cuts):
        return ""
    alone = (
        text.token_count + view.context_input.tools_tokens + view.context_input.count(view.context_input.system_prompt)
    )
    tokens = view.counts[view.current_index]
    is_oversized = alone > 1.2 * _room(step) and text.token_count > tokens
    most = OVERSIZED_SHARE * _room(step) + SLACK
    return f"{tokens} of {_room(step)} tokens are its" if is_oversized and tokens > most else ""


def a_long_summary_gives_way_first(step: Step) -> str:
    """Before a step of the running turn is folded, a summary is cut to its share."""
    view = step.fitted.view
    if not {"steps_folded", "messages_squeezed", "all_steps_folded"} & set(step.fitted.notes) or not view.summary:
        return ""
    tokens = view.context_input.count(view.summary)
    most = SUMMARY_SHARE * _room(step) + SLACK
    return f"{tokens} of {_room(step)} tokens are the summary's" if tokens > most else ""


def a_summary_is_shortened_first(step: Step) -> str:
    """Of a prompt over the budget the summary gives first: all that is too much, or what it has above its share.

    It gives all that is too much where its floor is left to it then.
    """
    view, before = step.fitted.view, step.compacted or step.plan.view
    room = _room(step)
    over = before.tokens - room
    if over <= 0 or step.raw.has_gap or "user_text_capped" in step.fitted.notes or not view.summary:
        return ""
    was, tokens = view.context_input.count(before.summary), view.context_input.count(view.summary)
    most = was - over if was - over >= SUMMARY_FLOOR_SHARE * room else SUMMARY_SHARE * room
    return f"{tokens} of {was} tokens of it are shown, {over} were too many" if tokens > most + SLACK else ""


def outputs_are_pruned_before_a_summary(step: Step) -> str:
    """No summary is written for what pruning would have made room for."""
    plan = step.plan
    view, policy = plan.view, plan.view.context_input.policy.prune
    is_tiny = view.context_input.budget.window_tokens < SMALLEST_JUDGED
    if (
        plan.decision.trigger is not CompactionTrigger.THRESHOLD
        or step.forced is not None
        or view.context_input.has_gap
        or is_tiny
    ):
        return ""
    if plan.tokens_before <= policy.start * view.context_input.budget.window_tokens:
        return ""
    outputs = sorted(
        (message.position, tokens)
        for message, tokens in zip(view.messages, view.counts, strict=True)
        if message.role is Role.TOOL and message.position is not None and message.position not in view.pinned
    )
    last_said = max((row.position for row in view.context_input.rows if row.role is Role.ASSISTANT), default=0)
    is_harder = plan.tokens > policy.aggressive * view.context_input.budget.window_tokens
    keep = policy.keep_last_aggressive if is_harder else policy.keep_last
    old = outputs[: max(len(outputs) - keep, 0)]
    freed = sum(max(tokens - 2 * SLACK, 0) for position, tokens in old if position < last_said)
    share = freed * view.context_input.factor / view.context_input.budget.window_tokens
    return f"{freed} tokens of outputs are whole" if share > PRUNE_SHARE else ""


def no_output_is_pruned_before_it_is_seen(step: Step) -> str:
    """The call right after a result shows it, whole or truncated; only where nothing else helps it is folded."""
    last_said = max((row.position for row in step.raw.own if row.role is Role.ASSISTANT), default=math.inf)
    hidden = [
        item.position
        for item in step.shown
        if item.role is Role.TOOL
        and item.position > last_said
        and item.form in {MessageVariant.PRUNED, MessageVariant.TRIMMED}
    ]
    return f"results {hidden} are not shown, and no call has seen them" if hidden else ""


def a_stage_is_worth_it_and_leaves_room(step: Step) -> str:
    """A strategy's stage frees a real share of the window, and leaves a fifth below the threshold if it may."""
    plan, view = step.plan, step.plan.view
    budget, factor = view.context_input.budget, view.context_input.factor
    if not STAGES & set(plan.fired) or budget.window_tokens < SMALLEST_JUDGED:
        return ""
    freed = plan.tokens_before - plan.tokens
    if freed < WORTHWHILE_SHARE * budget.window_tokens - 1:
        return f"{freed} tokens of {budget} are freed"
    past = view.messages[: view.current_index]
    heads = [m for m in past if m.role is not Role.TOOL and m.position is not None and m.position not in view.pinned]
    most = max(budget.threshold_tokens - ROOM_SHARE * budget.window_tokens, LEAST_AIM * budget.threshold_tokens)
    is_full = plan.tokens > max(most, budget.target_tokens) + 3 * SLACK * factor
    is_more = len(heads) > max(view.context_input.policy.min_recent_messages, 1)
    return f"{plan.tokens} tokens are left of {budget}, old ones among them" if is_full and is_more else ""


STAGE_PROMISES: Mapping[str, Callable[[Step], str]] = {
    promise.__name__: promise
    for promise in (
        big_ones_before_old_ones,
        no_more_is_truncated_than_has_to_be,
        the_past_before_the_running_turn,
        old_steps_before_the_newest_ones_words,
        the_newest_step_last,
        the_summary_before_the_users_text,
        notes_before_the_last_words,
        an_oversized_text_does_not_push_all_else_out,
        a_long_summary_gives_way_first,
        a_summary_is_shortened_first,
        outputs_are_pruned_before_a_summary,
        no_output_is_pruned_before_it_is_seen,
        a_stage_is_worth_it_and_leaves_room,
    )
}


def _room(step: Step) -> int:
    """Return the room of a prompt by our count."""
    context_input = step.fitted.view.context_input
    room = int(context_input.budget.budget_tokens / context_input.factor)
    return room if context_input.cap_tokens is None else min(room, context_input.cap_tokens)


def _shown(step: Step) -> Iterator[tuple[PromptMessage, int]]:
    view = step.fitted.view
    for message, tokens in zip(view.messages, view.counts, strict=True):
        if message.position is not None and message is not view.current:
            yield message, tokens


def _free(step: Step) -> Iterator[tuple[PromptMessage, int]]:
    """Yield what is shown that a stage may take away."""
    return ((message, tokens) for message, tokens in _shown(step) if message.position not in step.fitted.view.pinned)


def _pinned(step: Step) -> Iterator[tuple[PromptMessage, int]]:
    return ((message, tokens) for message, tokens in _shown(step) if message.position in step.fitted.view.pinned)
