"""Which messages a compaction would replace, and whether replacing them is worth its cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.compaction.compaction_triggers import (
    GROWTH_SHARE,
    CompactionTrigger,
    ahead_tokens,
    has_grown,
    is_summarising,
    is_summary_skipped,
)
from throughline.context.measure import count_system, tokens_of
from throughline.context.policy import ContextPolicy
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.view.context_input import ContextInput, after
from throughline.context.view.groups import CutPoint, build_system, cut_points, settled_length
from throughline.context.view.message_list import hidden_through
from throughline.context.view.view import View
from throughline.domain.message import Message, Role


@dataclass(frozen=True, slots=True)
class CutTask:
    """The stored messages after the cursor (`rows`), and what a cut among them has to achieve, in our token counts.

    - `fixed_tokens`: the prompt without these messages and without the summary.
    - `summary_tokens`: the present summary; `summary_limit`: the largest size of a new one.
    - `min_recent`: how many of the newest messages stay.
    - `kept_elsewhere`: the number of messages that come after these, or stay shown whatever is cut.
    - `running`: how many of the rows, at the end, belong to the running turn.
    - `kept_rows`: indexes of rows that stay shown even if summarised: pins and the running turn's user message.
    - `least_index`: rows before it are hidden already and must be among those summarised.
    - `is_more_before`: whether further hidden rows exist that were not loaded.
    - `target_tokens`: the size to reach; None to cut as much as possible. A turn is then cut in its middle only if the
      prompt would otherwise keep more than `enough_tokens`.
    - `may_cut_at_end`: whether all rows may be summarised, because a new user message follows them.
    """

    rows: Sequence[Message]
    row_tokens: Sequence[int]
    fixed_tokens: int
    summary_tokens: int
    summary_limit: int
    min_recent: int
    kept_elsewhere: int
    running: int
    kept_rows: frozenset[int]
    target_tokens: int | None
    enough_tokens: int
    may_cut_at_end: bool
    least_index: int = 0
    is_more_before: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A chosen cut: the rows before `index` are to be summarised, up to and including `through_position`.

    The prompt then takes at most `tokens_after` by our count, which is `freed_tokens` fewer than now.
    """

    index: int
    through_position: int
    tokens_after: int
    freed_tokens: int


def choose_cut(task: CutTask) -> Cut | None:
    """Return the cut that reaches the target with the fewest messages summarised, or else the one that frees most.

    A cut at the start of a user turn is preferred; a turn is cut in its middle only if no such start reaches the
    target. Without a target it is the last start of a turn that may be cut. None if nothing can be cut.
    """
    points, sums = _legal_points(task), _sums(task)
    starts = [point for point in points if point.is_turn_start]
    inside = [point for point in points if not point.is_turn_start]
    if task.target_tokens is None:
        return _farthest(task, sums, starts, inside)
    return _nearest((_cut_at(task, point, sums) for point in (*starts, *inside)), task.target_tokens)


def _farthest(task: CutTask, sums: "_Sums", starts: Sequence[CutPoint], inside: Sequence[CutPoint]) -> Cut | None:
    if not starts:
        cuts = (_cut_at(task, point, sums) for point in reversed(inside))
        return next((cut for cut in cuts if cut.freed_tokens > 0 or task.least_index), None)
    last = _cut_at(task, starts[-1], sums)
    if last.tokens_after <= task.enough_tokens:
        return last
    further = _nearest((_cut_at(task, point, sums) for point in inside if point.index > last.index), task.enough_tokens)
    return last if further is None or further.freed_tokens <= last.freed_tokens else further


def _nearest(cuts: Iterable[Cut], target_tokens: int) -> Cut | None:
    """Return the first cut that reaches the target, or the closest one if none does."""
    tried: list[Cut] = []
    for cut in cuts:
        if cut.tokens_after <= target_tokens:
            return cut
        tried.append(cut)
    return min(tried, key=lambda cut: (cut.tokens_after, cut.index), default=None)


def least_tokens(task: CutTask) -> int:
    """Return the tokens of the prompt after the last legal cut, with a summary of the largest allowed size."""
    points = _legal_points(task)
    index = points[-1].index if points else 0
    left = sum(size for place, size in enumerate(task.row_tokens) if place >= index or place in task.kept_rows)
    return task.fixed_tokens + left + task.summary_limit


def cut_before(rows: Sequence[Message]) -> Cut:
    """Return the cut before the first loaded row, for a session with older messages that were not loaded.

    Tool results at the start of the rows answer a call that was not loaded; they are cut off together with it. The
    sizes of the cut are not computed, and 0.
    """
    index = next((index for index, row in enumerate(rows) if row.role is not Role.TOOL), 0)
    return Cut(index, rows[index].position - 1, tokens_after=0, freed_tokens=0)


def _legal_points(task: CutTask) -> list[CutPoint]:
    """Return the cuts between whole groups that keep enough recent messages and every open call of the running turn."""
    points = list(cut_points(task.rows))
    if task.may_cut_at_end and task.rows:
        points.append(CutPoint(len(task.rows), task.rows[-1].position, is_turn_start=True))
    own_start = len(task.rows) - task.running
    settled = own_start + settled_length(task.rows[own_start:])
    last = min(settled, len(task.rows) + task.kept_elsewhere - task.min_recent)
    if task.least_index:
        points = [point for point in points if point.index >= task.least_index]
        last = max(last, min(settled, points[0].index)) if points else last
    return [point for point in points if point.index <= last]


_Sums: TypeAlias = tuple[list[int], list[int], list[int]]


def _sums(task: CutTask) -> _Sums:
    """Return for every index the tokens of the rows before it.

    They are counted as the prompt shows them, as a summary model reads them, and for rows that stay shown alone.
    """
    shown = list(accumulate(task.row_tokens, initial=0))
    read = (max(size, row.token_count) for size, row in zip(task.row_tokens, task.rows, strict=True))
    kept = (size if index in task.kept_rows else 0 for index, size in enumerate(task.row_tokens))
    return shown, list(accumulate(read, initial=0)), list(accumulate(kept, initial=0))


def _cut_at(task: CutTask, point: CutPoint, sums: _Sums) -> Cut:
    """Return the cut at `point` with its sizes, on the assumption that the summary becomes as large as it may.

    A summary is adopted only if it is smaller than what it replaces, unless both are small. Hidden rows are read, too.
    """
    index, (shown, read, kept) = point.index, sums
    now = task.fixed_tokens + shown[-1] + task.summary_tokens
    rest = now - task.summary_tokens - (shown[index] - kept[index])
    most = max(read[index] - kept[index] + task.summary_tokens, SMALL_SUMMARY_TOKENS)
    after = rest + (task.summary_limit if task.is_more_before else min(task.summary_limit, most))
    return Cut(index, point.through_position, tokens_after=after, freed_tokens=now - after)


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


def shown_summary_tokens(view: View) -> int:
    """Return the tokens of the summary in the system message, delimiters included; 0 without a summary."""
    return view.system_tokens - count_system(view.context_input.system_prompt.strip(), view.context_input.count)


def tokens_with_headroom(context_input: ContextInput) -> float:
    """Return the largest prompt, in the model's tokens, after which no further compaction is expected soon.

    It is the target, or AHEAD_SHARE of the window below the threshold if that is larger.
    """
    return max(ahead_tokens(context_input), context_input.budget.target_tokens)


def _cut_task(view: View, rows: tuple[int, ...], trigger: CompactionTrigger) -> CutTask:
    context_input = view.context_input
    summary = shown_summary_tokens(view)
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
