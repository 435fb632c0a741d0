"""Judges each step of a played session: one method for one promise, sharing nothing with the engine's parts.

`PROMISES` names them; a violation names its promise, so that a test (and a mutant's test) can ask for one alone.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from context.play import STAGES, Step
from context.prompt_judge import (
    anthropic_faults,
    begins_alike,
    faults,
    is_as_stored,
    is_same_text,
    is_sendable,
    is_true,
    weigh,
)
from context.random_session import is_torn
from context.stages_judge import STAGE_PROMISES
from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.compaction.compaction_triggers import (
    CompactionTrigger,
    has_hidden_messages,
    is_reducing,
    is_summarising,
    is_summary_skipped,
)
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.fit_prompt import MessageVariant, fit_view
from throughline.context.measure import tokens_of
from throughline.context.plan_context import plan_context
from throughline.context.view.groups import OPENING
from throughline.context.view.view import View, show
from throughline.context.view.view_state import COMPACTED, PENDING, ViewState, view_state_from, view_state_json
from throughline.domain.message import Message, NewMessage, Role, text_of
from throughline.domain.prompt import PromptMessage

EDGES = ("pruned_through_position", "trimmed_through_position")


def moved_back(before: ViewState, after: ViewState, cursor: int, *, is_compacted: bool) -> str:
    """Return what has moved back, '' where nothing has."""
    moved = next((edge for edge in EDGES if getattr(after, edge) < getattr(before, edge)), "")
    if moved:
        return moved
    cursor = max(cursor, after.trimmed_through_position)  # what lies before it is not shown, whatever was done to it
    if any(_level(after, position) > _level(before, position) for position in _boundaries(before, after, cursor)):
        return "truncations"
    hidden = [p for first, last in before.left_out for p in range(first, last + 1) if p > cursor]
    if not all(after.is_left_out(position) for position in hidden):
        return "left_out"
    folded = [pair for pair in before.folded if pair[1] > cursor]
    if not all(any(new[0] <= old[0] and old[1] <= new[1] for new in after.folded) for old in folded):
        return "folded"
    return "" if is_compacted else _loosened(before, after, cursor)


def kept_in_vain(state: ViewState, cursor: int, shown: frozenset[int]) -> list[tuple[int, int]]:
    """Return what a state says of messages that are not shown any more; those at `shown` are, wherever they stand."""
    hidden = max(cursor, state.trimmed_through_position)
    ranges = [pair for pair in (*state.left_out, *state.folded) if pair[1] <= hidden]
    cuts = [cut for cut in state.user_cuts if cut[0] <= hidden and cut[0] not in shown]
    return [*ranges, *cuts, *(pair for pair in state.truncations if pair[0] <= hidden)]


def _boundaries(before: ViewState, after: ViewState, cursor: int) -> list[int]:
    """Return the positions after the cursor at which what a message may take can change."""
    ends = [end for state in (before, after) for end, _ in state.truncations]
    return [position for end in ends for position in (end, end + 1) if position > cursor]


def _level(state: ViewState, position: int) -> float:
    level = next((tokens for end, tokens in state.truncations if position <= end), None)
    return math.inf if level is None else level


def _loosened(before: ViewState, after: ViewState, cursor: int) -> str:
    for name in ("summary_to_tokens", "pins_to_tokens"):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and (new is None or new > old):
            return name
    cuts = dict(after.user_cuts)
    for position, tokens in before.user_cuts:
        if position > cursor and cuts.get(position, _level(after, position)) > tokens:
            return "user_cuts"
    for name in ("without_notes", "without_pins"):
        if getattr(before, name) and not getattr(after, name):
            return name
    return ""


GROWTH = 0.20
AHEAD = 0.10
FREED = 0.05


def is_just_restored(step: Step) -> bool:
    """Whether less was said since a restore than a compaction has to wait for."""
    context_input = step.plan.view.context_input
    restored = context_input.view_state.restored_at_position
    said = [row for row in (*context_input.rows, context_input.user) if row is not None]
    tokens = sum(
        tokens_of(row, context_input.counter_name, context_input.count)
        for row in said
        if isinstance(row, NewMessage) or row.position > restored
    )
    is_little = scale(tokens, context_input.factor) < GROWTH * context_input.budget.window_tokens
    return restored > 0 and is_little and is_summarising(context_input)


def had_room(step: Step) -> bool:
    """Whether the compaction before left some room below the threshold: being over it then means to have grown."""
    context_input = step.plan.view.context_input
    most = context_input.budget.threshold_tokens - AHEAD * context_input.budget.window_tokens
    return step.grown_from is not None and scale(step.grown_from, context_input.factor) <= most


def has_freed(step: Step) -> bool:
    """Whether adopting freed some share of the window; where it wants no room, what nobody had read is behind it."""
    context_input, compacted = step.plan.view.context_input, step.compacted
    if compacted is None or step.plan.tokens <= context_input.budget.threshold_tokens:
        return compacted is not None and not has_hidden_messages(compacted.context_input)
    freed = step.plan.raw_tokens - compacted.tokens + opening_tokens(compacted)
    return scale(freed, context_input.factor) >= FREED * context_input.budget.window_tokens


def frees_a_lot(step: Step) -> bool:
    """Whether as much is freed as has to grow: by a stage, or by a summary of full size for what is summarised."""
    view = step.plan.view
    if STAGES & set(step.plan.fired):
        freed = step.plan.tokens_before - step.plan.tokens + 1  # both are rounded
        return freed >= GROWTH * view.context_input.budget.window_tokens
    context_input, chosen = view.context_input, {row.position for row in step.plan.decision.to_summarise} - view.pinned
    shown = zip(view.messages, view.counts, strict=True)
    freed = sum(tokens for message, tokens in shown if message.position in chosen and message is not view.current)
    full = unscale(summary_limit(context_input.policy.summary, context_input.budget), context_input.factor)
    return (
        scale(freed - full + context_input.count(context_input.summary), context_input.factor)
        >= GROWTH * context_input.budget.window_tokens
    )


def opening_tokens(view: View) -> int:
    """Return what the line takes that opens a conversation cut inside a turn; no plan of a cut counts it."""
    return view.counts[0] if view.messages and view.messages[0].content == OPENING else 0


WORTHWHILE, NOTE = 0.05, 100
"""A stage frees at least this share of the window; the note in its place takes at most so much."""

LOOKED_AT_AGAIN = 4
"""Where nothing fired, one step of so many is done twice."""

SOFTENED = ("summary_shortened", "summary_dropped")


class Judge:
    """Judges the steps of one play in their order; what it needs of those before, it keeps."""

    def __init__(self) -> None:
        self.sent: Step | None = None
        self.fired_since: list[str] = []
        self.softened: set[str] = set()
        self.is_arbitrary: bool | None = None

    def violations(self, step: Step) -> list[tuple[str, str]]:
        """Return the promises that the step breaks, and how."""
        if self.is_arbitrary is None:
            self.is_arbitrary = step.raw.view_state != ViewState()
        found = [(name, said) for name, promise in PROMISES.items() if (said := promise(self, step))]
        if not self.is_arbitrary:
            found += [(name, said) for name, promise in STAGE_PROMISES.items() if (said := promise(step))]
        self.fired_since.extend(step.plan.fired)
        self.fired_since.extend((step.outcome,) if step.compacted is not None else ())
        if any(note in SOFTENED for note in step.fitted.notes) and step.is_sent:
            self.softened.add(step.fitted.view.context_input.summary)
        if step.is_sent:
            self.sent, self.fired_since = step, []
        return found

    def within_budget(self, step: Step) -> str:
        context, prompt = step.raw, step.fitted.prompt
        tokens = weigh(prompt, context.tools_tokens, context.count, context.factor)
        ours = weigh(prompt, context.tools_tokens, context.count, 1.0)
        if tokens > context.budget.budget_tokens:
            return f"{tokens} tokens of {context.budget.budget_tokens}"
        if context.cap_tokens is not None and ours > context.cap_tokens:
            return f"{ours} tokens, capped at {context.cap_tokens}"
        return "" if ours <= step.fitted.raw_tokens else f"{ours} tokens, said to be {step.fitted.raw_tokens}"

    def valid_for_openai(self, step: Step) -> str:
        return "; ".join(faults(step.fitted.prompt))

    def valid_for_anthropic(self, step: Step) -> str:
        return "; ".join(anthropic_faults(step.fitted.prompt))

    def in_order(self, step: Step) -> str:
        places = [message.position for message in step.fitted.prompt.messages if message.position is not None]
        heads = [m.position for m in step.fitted.prompt.messages if m.role is not Role.TOOL and m.position is not None]
        if len(set(places)) != len(places):
            return f"a message is shown twice: {places}"
        return "" if heads == sorted(heads) else f"out of order: {heads}"

    def users_text_present(self, step: Step) -> str:
        context = step.fitted.view.context_input
        current = context.user or context.current
        if current is None:
            return ""
        place = current.position if isinstance(current, Message) else None
        found = [m for m in step.fitted.prompt.messages if m.role is Role.USER and m.position == place]
        if not found:
            return "the user's message is not there"
        state = step.fitted.view_state
        is_cut = any(position == (PENDING if place is None else place) for position, _ in state.user_cuts)
        is_cut = is_cut or (state.pins_to_tokens is not None and getattr(current, "pinned", False))
        if is_cut:
            return "" if any(begins_alike(message.content, current.content) for message in found) else "another text"
        return "" if any(is_same_text(message.content, current.content) for message in found) else "another text"

    def pins_present(self, step: Step) -> str:
        view = step.fitted.view
        known = {
            row.position: row
            for row in (*view.context_input.pinned, *view.context_input.history, *view.context_input.own)
            if row.pinned
        }
        there = {m.position: m for m in step.fitted.prompt.messages if m.position is not None}
        wanted = {row.position for row in step.raw.pinned + step.raw.history + step.raw.own if row.pinned}
        lost = [place for place in wanted | known.keys() if place not in there and is_sendable(step.rows[place - 1])]
        if view.state.without_pins:
            return "" if view.state.pins_to_tokens == 1 else "pins left before they were cut as short as can be"
        if lost:
            return f"pins {lost} are not there"
        if view.state.pins_to_tokens is not None:
            return ""
        cut = dict(view.state.user_cuts)
        changed = [
            place
            for place, row in known.items()
            if place in there and place not in cut and not is_as_stored(there[place], row)
        ]
        return f"pins {changed} were changed" if changed else ""

    def all_accounted_for(self, step: Step) -> str:
        view = step.fitted.view
        listed = [item.position for item in step.shown]
        if listed != sorted(set(listed)):
            return f"listed twice or out of order: {listed}"
        cursor, edge, last = (
            view.context_input.summary_through_position,
            view.state.trimmed_through_position,
            len(step.rows),
        )
        known = set(listed)
        lost = [p for p in range(cursor + 1, last + 1) if p not in known and p > edge]
        if lost:
            return f"nothing is said of {lost[:9]}"
        hidden = [item for item in step.shown if item.form is MessageVariant.TRIMMED] or range(cursor + 1, edge + 1)
        notes = [m for m in step.fitted.prompt.messages if m.position is None and m.role is Role.USER]
        is_noted = any("not shown here" in text_of(note.content) for note in notes)
        return (
            ""
            if not hidden or is_noted or view.state.without_notes or not view.context_input.rows
            else "nothing stands for it"
        )

    def forms_true(self, step: Step) -> str:
        there = {m.position: m for m in step.fitted.prompt.messages if m.position is not None}
        rows = {row.position: row for row in (*step.raw.pinned, *step.raw.history, *step.raw.own)}
        wrong = [item for item in step.shown if not is_true(item, rows[item.position], there.get(item.position))]
        return f"not so: {wrong[:3]}" if wrong else ""

    def cursor_between_groups(self, step: Step) -> str:
        before, after = step.raw.summary_through_position, step.fitted.view.context_input.summary_through_position
        chosen = tuple(row.position for row in step.plan.decision.to_summarise)
        if chosen != tuple(range(before + 1, before + 1 + len(chosen))):
            return f"what is to be summarised does not follow the cursor: {chosen[:9]}"
        if step.given and (step.given != tuple(range(before + 1, after + 1))):
            return f"the cursor went from {before} to {after}, and {step.given[:9]} was read"
        if after < before:
            return "the cursor went back"
        if after == before:
            return ""
        if not step.raw.has_gap and is_torn([row for row in step.rows if row.position > before], after):
            return f"a call before {after} has its result behind it"
        return ""

    def open_calls_not_summarised(self, step: Step) -> str:
        waiting = _open_calls(step.raw.own)
        read = [*step.given, *(row.position for row in step.plan.decision.to_summarise)]
        return f"call {waiting} is open and summarised" if read and waiting and waiting[0] <= max(read) else ""

    def recent_messages_kept(self, step: Step) -> str:
        context = step.raw
        if not step.plan.decision.to_summarise or has_hidden_messages(step.plan.view.context_input):
            return ""
        kept = len(context.rows) - len(step.plan.decision.to_summarise) + (context.user is not None)
        kept += context.current_behind_cursor is not None
        return "" if kept >= max(context.policy.min_recent_messages, 1) else f"only {kept} messages are left"

    def room_after_compaction(self, step: Step) -> str:
        is_whole = step.outcome == "prepared_adopted" or (
            step.given and step.given[-1] == step.plan.decision.through_position
        )
        if (
            step.compacted is None
            or not is_whole
            or step.plan.decision.trigger not in {CompactionTrigger.THRESHOLD, CompactionTrigger.OVERFLOW}
        ):
            return ""
        is_whole_again = step.plan.view.state.pins_to_tokens is not None or self.is_arbitrary  # cut pins, a summary
        if step.plan.floor_too_high or is_whole_again:
            return ""
        context = step.compacted.context_input
        share = AHEAD if step.outcome == "prepared_adopted" else GROWTH
        room = max(
            context.budget.threshold_tokens - share * context.budget.window_tokens,
            context.budget.target_tokens,
        )
        after = scale(step.compacted.tokens - opening_tokens(step.compacted), context.factor)
        if step.outcome == "prepared_adopted" and has_freed(step):
            return ""
        return "" if after <= room else f"{after} tokens are left, {room} would leave room to grow ({step.outcome})"

    def compactions_far_apart(self, step: Step) -> str:
        context = step.plan.view.context_input
        is_whole = bool(step.given) and step.given[-1] == step.plan.decision.through_position
        if step.compacted is not None and is_whole and has_hidden_messages(step.compacted.context_input):
            return "messages that nobody has read are left behind"
        is_stage = step.plan.decision.trigger is CompactionTrigger.THRESHOLD or STAGES & set(step.plan.fired)
        if not is_stage or step.forced is not None or step.grown_from is None or self.is_arbitrary:
            return ""
        if step.plan.decision.action is CompactionAction.ADOPT or frees_a_lot(step):
            return ""
        if step.plan.decision.trigger is not None and has_hidden_messages(context):
            return ""
        tokens = (
            step.plan.raw_tokens if step.plan.decision.trigger else int(step.plan.tokens_before / context.factor) + 1
        )
        grown = scale(tokens - step.grown_from, context.factor)
        least = AHEAD if had_room(step) else GROWTH
        return "" if grown >= least * context.budget.window_tokens else f"after {grown} tokens of {context.budget}"

    def prompt_grows_at_its_end(self, step: Step) -> str:
        last = self.sent
        if last is None or not step.is_sent or self.is_arbitrary:
            return ""
        if step.fired or self.fired_since or step.upset:
            return ""
        before, after = last.fitted.prompt, step.fitted.prompt
        if before.system != after.system:
            return "the system message has changed"
        for index, message in enumerate(before.messages):
            if index >= len(after.messages):
                return "the prompt has become shorter"
            if _sent(message) != _sent(after.messages[index]):
                is_late = message.role is Role.TOOL and message.position is None
                return "" if is_late else f"message {index} of {len(before.messages)} is another one"
        return ""

    def same_bytes(self, step: Step) -> str:
        if not step.fired and len(step.rows) % LOOKED_AT_AGAIN:
            return ""
        plan = plan_context(replace(step.raw), forced=step.forced)
        if (plan.view, plan.decision.trigger, plan.decision.to_summarise) != (
            step.plan.view,
            step.plan.decision.trigger,
            step.plan.decision.to_summarise,
        ):
            return "planning again gives another plan"
        again = fit_view(show(replace(step.fitted.view.context_input), step.fitted.view_state))
        if again.prompt != step.fitted.prompt or again.notes:
            return f"fitting again gives another prompt: {again.notes} after {step.fitted.notes}"
        return ""

    def state_moves_forward(self, step: Step) -> str:
        state = step.fitted.view_state
        if view_state_from(json.loads(json.dumps(view_state_json(state)))) != state:
            return "what is stored is not what is read"
        context = step.plan.view.context_input
        before, cursor = context.view_state, step.fitted.view.context_input.summary_through_position
        shown = frozenset(m.position for m in step.fitted.view.messages if m.position is not None) | {PENDING}
        if step.fitted.notes and (vain := kept_in_vain(state, cursor, shown)):
            return f"{vain} say nothing of what is shown"
        return moved_back(before, state, cursor, is_compacted=step.compacted is not None)

    def the_last_stage_is_named(self, step: Step) -> str:
        stage, before = step.fitted.view_state.stage, step.plan.view.context_input.view_state.stage
        changed = (
            step.fitted.notes or ((COMPACTED,) if step.compacted is not None else step.plan.fired[-1:]) or (before,)
        )
        return "" if stage in changed else f"{stage!r} is named after {changed}"

    def summary_shown(self, step: Step) -> str:
        view = step.fitted.view
        context, most = view.context_input, view.state.summary_to_tokens
        if not context.summary or self.is_arbitrary:
            return ""
        if most is None:
            return "" if context.summary.strip() in view.system else "the summary is not in the prompt"
        is_new = context.summary not in self.softened and not any(note in SOFTENED for note in step.fitted.notes)
        return "a summary is cut that no stage has cut" if is_new else ""

    def room_is_made(self, step: Step) -> str:
        """Over the threshold something is done, where anything can be: the strategies do not sleep."""
        context = step.plan.view.context_input
        grown = step.grown_from is None or (
            scale(step.plan.raw_tokens - step.grown_from, context.factor) > GROWTH * context.budget.window_tokens
        )
        if (
            not grown
            or self.is_arbitrary
            or is_just_restored(step)
            or step.plan.tokens_before <= context.budget.threshold_tokens
        ):
            return ""
        if step.plan.floor_too_high or step.plan.fired or step.plan.decision.trigger:
            return ""
        if not is_summarising(context) and (not is_reducing(context) or not _is_worthwhile(step)):
            return ""
        return "the prompt is over the threshold, and nothing is done"

    def what_is_planned_can_be_done(self, step: Step) -> str:
        plan, context = step.plan, step.plan.view.context_input
        if plan.decision.trigger is None:
            is_left = is_summarising(context) and context.has_gap and not is_summary_skipped(context)
            is_skipped = is_left and not self.is_arbitrary and not is_just_restored(step)
            return "messages that were not loaded are not summarised" if is_skipped else ""
        is_something = (
            (plan.decision.action is CompactionAction.ADOPT)
            or plan.decision.must_load_first
            or plan.decision.to_summarise
        )
        return "" if is_something or plan.decision.through_position is None else "there is nothing to summarise"

    def a_restored_summary_stays(self, step: Step) -> str:
        """Right after a user went back to a summary, being over the threshold writes none over it."""
        is_undone = (
            step.plan.decision.trigger is CompactionTrigger.THRESHOLD and step.forced is None and is_just_restored(step)
        )
        return "what the user went back to is undone" if is_undone else ""

    def another_models_view_is_begun_again(self, step: Step) -> str:
        state = step.plan.view.context_input.view_state
        if step.raw.view_state.model == step.raw.model_key:
            return ""
        is_new = not (state.pruned_through_position or state.trimmed_through_position or state.truncations)
        return "" if is_new else f"what was done for {step.raw.view_state.model} is done for {step.raw.model_key}"


PROMISES: Mapping[str, Callable[[Judge, Step], str]] = {
    name: promise
    for name, promise in vars(Judge).items()
    if callable(promise) and name[0] != "_" and name != "violations"
}


def _is_worthwhile(step: Step) -> bool:
    """Whether a real share of the window is taken by messages older than the recent ones before the user's."""
    view = step.plan.view
    past = view.messages[: view.current_index]
    heads = [index for index, message in enumerate(past) if message.role is not Role.TOOL and _is_free(view, message)]
    old = heads[: max(len(heads) - max(view.context_input.policy.min_recent_messages, 1), 0)][-1:]
    tokens = sum(view.counts[index] for index in range(old[0] if old else 0) if _is_free(view, past[index]))
    return scale(tokens - NOTE, view.context_input.factor) >= WORTHWHILE * view.context_input.budget.window_tokens


def _is_free(view: View, message: PromptMessage) -> bool:
    return message.position is not None and message.position not in view.pinned


def _sent(message: PromptMessage) -> tuple[object, ...]:
    """What a provider gets of a message."""
    return (message.role, message.content, message.tool_calls, message.tool_call_id, message.name)


def _open_calls(own: tuple[Message, ...]) -> list[int]:
    answered = {row.tool_call_id for row in own if row.role is Role.TOOL}
    return [row.position for row in own if any(call.id not in answered for call in row.tool_calls)]
