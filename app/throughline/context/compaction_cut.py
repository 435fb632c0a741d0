"""Which messages a compaction would replace, and whether replacing them is worth its cost."""

from dataclasses import replace

from throughline.context.assemble import build_system
from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.choose_cut import Cut, CutTask, choose_cut, cut_before, least_tokens
from throughline.context.compaction_triggers import (
    GROWTH_SHARE,
    CompactionTrigger,
    ahead_tokens,
    has_grown,
    is_summarising,
    is_summary_skipped,
)
from throughline.context.context_input import ContextInput, after
from throughline.context.measure import count_system, tokens_of
from throughline.context.message_list import hidden_through
from throughline.context.policy import ContextPolicy
from throughline.context.view import View

WORTHWHILE_SHARE = 0.05
"""Share of the window that a compaction at the threshold has to free; otherwise the turn continues without it."""

LEAST_MESSAGES, MESSAGES_PART = 4, 3
"""Least number of messages that a summary triggered by N messages covers: a third of N, and at least four.

If N exceeds the number of newest messages that always stay by fewer than four, that difference replaces the four.
"""

TOKENS_SHARE = 2 / 3
"""Share of K that a summary triggered by K tokens has to cover: the messages that stay count again for the next."""

HARDER_TARGET = 0.5
"""Target after the provider refused a prompt as too long, as a share of the usual target."""


def row_tokens(view: View) -> tuple[int, ...]:
    """Return the tokens that each stored message after the cursor takes in the prompt; 0 for one that is not shown."""
    shown = {
        message.position: tokens
        for message, tokens in zip(view.messages, view.counts, strict=True)
        if message.position is not None
    }
    return tuple(shown.get(row.position, 0) for row in view.context_input.rows)


def minimum_tokens(view: View) -> int:
    """Return our count of the smallest prompt: all that may be summarised is replaced by a summary of full size.

    Without automatic summaries, the summary in use keeps its size.
    """
    task = _cut_task(view, row_tokens(view), CompactionTrigger.MANUAL)
    return least_tokens(
        task if is_summarising(view.context_input) else replace(task, summary_limit=task.summary_tokens)
    )


def frame_tokens(context_input: ContextInput) -> int:
    """Return the tokens of the delimiters and hints around a summary's text."""
    return context_input.count(
        build_system("", "…", context_input.summary_through_position, context_input.recall.summary)
    )


def worthwhile_cut(view: View, trigger: CompactionTrigger) -> Cut | None:
    """Return the cut that a compaction for `trigger` makes; None if it would free or replace too little.

    A cut that covers messages which are neither shown nor summarised is always worthwhile.
    """
    context_input = view.context_input
    rows = row_tokens(view)
    task = _cut_task(view, rows, trigger)
    cut = choose_cut(task)
    if context_input.has_gap:
        least = cut_before(context_input.rows)
        return least if cut is None or cut.index < least.index else cut
    if cut is None or task.least_index:
        return cut
    return cut if _is_worthwhile(view, trigger, cut) else None


def background_cut(view: View) -> Cut | None:
    """Return the cut for a summary written in the background: all but the newest messages; None if there is no cut."""
    return choose_cut(_cut_task(view, row_tokens(view), CompactionTrigger.MANUAL))


def tokens_removed(view: View, rows: tuple[int, ...], first: int, end: int) -> int:
    """Return the tokens that prompts save once the rows from `first` to before `end` are summarised.

    Pins and the running turn's user message stay shown and save nothing.
    """
    kept = _kept_rows(view)
    return sum(tokens for index, tokens in enumerate(rows[first:end], first) if index not in kept)


def summary_tokens(view: View) -> int:
    """Return the tokens of the summary in the system message, delimiters included; 0 without a summary."""
    return view.system_tokens - count_system(view.context_input.system_prompt.strip(), view.context_input.count)


def tokens_with_headroom(context_input: ContextInput) -> float:
    """Return the largest prompt, in the model's tokens, after which no further compaction is expected soon.

    It is the target, or AHEAD_SHARE of the window below the threshold if that is larger.
    """
    return max(ahead_tokens(context_input), context_input.budget.target_tokens)


def _cut_task(view: View, rows: tuple[int, ...], trigger: CompactionTrigger) -> CutTask:
    context_input = view.context_input
    summary = summary_tokens(view)
    return CutTask(
        rows=context_input.rows,
        row_tokens=rows,
        fixed_tokens=view.tokens - sum(rows) - summary,
        summary_tokens=summary,
        summary_limit=unscale(summary_limit(context_input.policy.summary, context_input.budget), context_input.factor)
        + frame_tokens(context_input),
        min_recent=max(context_input.policy.min_recent_messages, 0),
        kept_elsewhere=1 if context_input.user is not None or context_input.current_behind_cursor is not None else 0,
        running=len(after(context_input.own, context_input.summary_through_position)),
        kept_rows=_kept_rows(view),
        target_tokens=_target(context_input, trigger),
        enough_tokens=unscale(int(tokens_with_headroom(context_input)), context_input.factor),
        may_cut_at_end=context_input.user is not None and not context_input.own,
        least_index=_hidden_rows(view),
        is_more_before=context_input.has_gap,
    )


def _kept_rows(view: View) -> frozenset[int]:
    """Return the indexes of the rows that every prompt shows: pins and the running turn's user message."""
    current, pinned = view.context_input.current, view.pinned
    return frozenset(
        index for index, row in enumerate(view.context_input.rows) if row is current or row.position in pinned
    )


def _hidden_rows(view: View) -> int:
    edge = hidden_through(view.context_input, view.state)
    if edge <= view.context_input.summary_through_position:
        return 0
    return sum(row.position <= edge for row in view.context_input.rows)


def _target(context_input: ContextInput, trigger: CompactionTrigger) -> int | None:
    match trigger:
        case CompactionTrigger.THRESHOLD:
            return unscale(context_input.budget.target_tokens, context_input.factor)
        case CompactionTrigger.OVERFLOW:
            return unscale(int(context_input.budget.target_tokens * HARDER_TARGET), context_input.factor)
        case CompactionTrigger.MESSAGES | CompactionTrigger.TOKENS | CompactionTrigger.MANUAL:
            return None


def _is_worthwhile(view: View, trigger: CompactionTrigger, cut: Cut) -> bool:
    """Return whether the cut frees or replaces enough for its trigger.

    A cut that is not worthwhile now becomes so as the conversation grows.
    """
    match trigger:
        case CompactionTrigger.THRESHOLD:
            return _frees_enough(view, cut)
        case CompactionTrigger.MESSAGES | CompactionTrigger.TOKENS:
            return replaces_enough(view.context_input, trigger, 0, cut.index)
        case CompactionTrigger.MANUAL | CompactionTrigger.OVERFLOW:
            return cut.index > 0


def _frees_enough(view: View, cut: Cut) -> bool:
    """Return whether the cut frees a sufficient share of the window.

    The required share is larger until the prompt has grown since the last compaction. A summary that was found to be no
    smaller than its messages also waits for that growth.
    """
    context_input = view.context_input
    freed = scale(cut.freed_tokens, context_input.factor) / context_input.budget.window_tokens
    if has_grown(context_input, view.tokens):
        return freed >= WORTHWHILE_SHARE
    return freed >= GROWTH_SHARE and not is_summary_skipped(context_input)


def replaces_enough(context_input: ContextInput, trigger: CompactionTrigger, first: int, end: int) -> bool:
    """Return whether the rows from `first` to before `end` suffice for a summary that `trigger` asks for.

    `trigger` is MESSAGES (N messages) or TOKENS (K tokens).
    """
    if trigger is CompactionTrigger.MESSAGES:
        return end - first >= _least_messages(context_input.policy)
    tokens = sum(
        tokens_of(row, context_input.counter_name, context_input.count) for row in context_input.rows[first:end]
    )
    return scale(tokens, context_input.factor) >= TOKENS_SHARE * context_input.policy.max_tokens_before_summary


def _least_messages(policy: ContextPolicy) -> int:
    n, recent = policy.max_messages_before_summary, policy.min_recent_messages
    spare = n - recent if n > recent else n
    return max(n // MESSAGES_PART, min(LEAST_MESSAGES, spare))
