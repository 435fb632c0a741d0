"""What a compaction has to achieve: the prepared summary that reaches far enough, or the messages to summarise."""

from dataclasses import dataclass, replace

from throughline.context.assemble import build_system
from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.context_input import ContextInput, after
from throughline.context.cut import Cut, CutTask, choose_cut, cut_before, least_tokens
from throughline.context.groups import cut_points
from throughline.context.listing import hidden_through
from throughline.context.measure import count_system, tokens_of
from throughline.context.policy import Adopt, ContextPolicy
from throughline.context.triggers import (
    AHEAD_SHARE,
    GROWTH_SHARE,
    Cause,
    ahead_tokens,
    count_cause,
    has_grown,
    is_near_threshold,
    is_summarising,
    summarised_through,
    was_skipped,
)
from throughline.context.view import View
from throughline.domain.message import Message
from throughline.domain.summary import Prepared

WORTHWHILE_SHARE = 0.05
"""An automatic compaction frees at least this share of the window, or the turn goes on without it."""

LEAST_MESSAGES, MESSAGES_PART = 4, 3
"""One caused by N messages replaces at least the third part of N, and so many where N leaves them beside the newest
messages, which stay: those alone may be N."""

TOKENS_SHARE = 2 / 3
"""One caused by K tokens replaces at least this share of K: what stays counts again for the next one, and may be more
than K."""

HARDER_TARGET = 0.5
"""After an overflow the target is this share of the usual one."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Adopt the prepared summary, or summarise these messages, or load what lies before them first."""

    through_position: int
    to_summarise: tuple[Message, ...] = ()
    adopts_prepared: bool = False
    must_load_first: bool = False


def plan_compaction(view: View, cause: Cause) -> Compaction | None:
    """Return what is to be summarised for `cause`, None where nothing is, or not enough to be worth it."""
    inp = view.inp
    prepared = inp.prepared
    cut = _worthwhile_cut(view, cause)
    if prepared is not None and cause is not Cause.MANUAL and _should_adopt(view, prepared, cause, cut):
        return Compaction(prepared.through_position, adopts_prepared=True)
    if cut is None:
        return None
    rows = () if inp.has_gap else inp.rows[: cut.index]
    return Compaction(cut.through_position, to_summarise=rows, must_load_first=inp.has_gap)


def row_tokens(view: View) -> tuple[int, ...]:
    """Return the tokens of each row after the cursor as it is shown, 0 where it is not."""
    shown = {
        message.position: tokens
        for message, tokens in zip(view.messages, view.counts, strict=True)
        if message.position is not None
    }
    return tuple(shown.get(row.position, 0) for row in view.inp.rows)


def floor_tokens(view: View) -> int:
    """Return what the prompt takes, by our count, once all is gone that may go, a summary of full size in its place."""
    task = _cut_task(view, row_tokens(view), Cause.MANUAL)
    return least_tokens(task if is_summarising(view.inp) else replace(task, summary_limit=task.summary_tokens))


def frame_tokens(inp: ContextInput) -> int:
    """Return what stands around a summary's text."""
    return inp.count(build_system("", "…", inp.summary_through_position, inp.recall.summary))


def preparation_cause(view: View) -> Cause | None:
    """Return why the next summary should be written in the background now, None where it need not or cannot be.

    It stands for what may be cut beyond the newest summary, prepared or adopted.
    """
    inp = view.inp
    if not is_summarising(inp) or inp.policy.adopt is not Adopt.AT_THRESHOLD:
        return None
    since = summarised_through(inp)
    counted, is_near = count_cause(inp, since), is_near_threshold(inp, view.tokens)
    if counted is None and not is_near:
        return None
    first = sum(row.position <= since for row in inp.rows)
    rows = row_tokens(view)
    cut = choose_cut(_cut_task(view, rows, Cause.MANUAL))
    if cut is None or cut.index <= first:
        return None
    if counted is not None and _replaces_enough(inp, counted, first, cut.index):
        return counted
    freed = _tokens_gone(view, rows, first, cut.index)
    is_enough = inp.prepared is not None and _leaves_room(inp, _tokens_once_adopted(view, inp.prepared))
    least = GROWTH_SHARE if is_enough else AHEAD_SHARE
    return Cause.THRESHOLD if is_near and scale(freed, inp.factor) >= least * inp.budget.window_tokens else None


def _should_adopt(view: View, prepared: Prepared, cause: Cause, cut: Cut | None) -> bool:
    """Whether the prepared summary is to be used, though a `cut` of now would reach further.

    It costs the turn no time: where it leaves little room, another one is written only if that frees a lot more.
    """
    inp, through = view.inp, prepared.through_position
    if through <= inp.summary_through_position or not _is_legal(inp.rows, through):
        return False
    if cause in {Cause.MESSAGES, Cause.TOKENS}:
        return True
    if scale(view.tokens, inp.factor) <= inp.budget.threshold_tokens:  # room is not wanted: something is unread
        return through >= hidden_through(inp, view.state)
    after_tokens = _tokens_once_adopted(view, prepared)
    if _leaves_room(inp, after_tokens):
        return True
    freed = view.tokens - after_tokens
    more = 0 if cut is None else cut.freed_tokens - freed
    is_enough = scale(freed, inp.factor) >= WORTHWHILE_SHARE * inp.budget.window_tokens
    return is_enough and scale(more, inp.factor) < AHEAD_SHARE * inp.budget.window_tokens


def _leaves_room(inp: ContextInput, after_tokens: int) -> bool:
    """Whether a prompt of so many tokens, by our count, is well below the threshold."""
    return scale(after_tokens, inp.factor) <= _roomy_tokens(inp)


def _roomy_tokens(inp: ContextInput) -> float:
    """Return what a prompt may take, in the model's tokens, and leave some room below the threshold."""
    return max(ahead_tokens(inp), inp.budget.target_tokens)


def _tokens_once_adopted(view: View, prepared: Prepared) -> int:
    """Return what the prompt would take, by our count, with the prepared summary."""
    inp = view.inp
    end = sum(row.position <= prepared.through_position for row in inp.rows)
    gone = _tokens_gone(view, row_tokens(view), 0, end)
    return view.tokens - gone - _summary_tokens(view) + prepared.token_count + frame_tokens(inp)


def _tokens_gone(view: View, rows: tuple[int, ...], first: int, end: int) -> int:
    """Return the tokens of the rows from `first` to before `end` that no prompt shows once they are summarised."""
    kept = _kept_rows(view)
    return sum(tokens for index, tokens in enumerate(rows[first:end], first) if index not in kept)


def _is_legal(rows: tuple[Message, ...], through: int) -> bool:
    if not rows or through < rows[0].position or through == rows[-1].position:
        return bool(rows) and through <= rows[-1].position
    return any(point.through_position == through for point in cut_points(rows))


def _worthwhile_cut(view: View, cause: Cause) -> Cut | None:
    inp = view.inp
    rows = row_tokens(view)
    task = _cut_task(view, rows, cause)
    cut = choose_cut(task)
    if inp.has_gap:
        least = cut_before(inp.rows)
        return least if cut is None or cut.index < least.index else cut
    if cut is None or task.least_index:
        return cut
    return cut if _is_worthwhile(view, cause, cut) else None


def _cut_task(view: View, rows: tuple[int, ...], cause: Cause) -> CutTask:
    inp = view.inp
    summary = _summary_tokens(view)
    return CutTask(
        rows=inp.rows,
        row_tokens=rows,
        fixed_tokens=view.tokens - sum(rows) - summary,
        summary_tokens=summary,
        summary_limit=unscale(summary_limit(inp.policy.summary, inp.budget), inp.factor) + frame_tokens(inp),
        min_recent=max(inp.policy.min_recent_messages, 0),
        kept_elsewhere=1 if inp.user is not None or inp.current_behind_cursor is not None else 0,
        running=len(after(inp.own, inp.summary_through_position)),
        kept_rows=_kept_rows(view),
        target_tokens=_target(inp, cause),
        enough_tokens=unscale(int(_roomy_tokens(inp)), inp.factor),
        may_cut_at_end=inp.user is not None and not inp.own,
        least_index=_hidden_rows(view),
        is_more_before=inp.has_gap,
    )


def _kept_rows(view: View) -> frozenset[int]:
    """Return the indexes of the rows that every prompt shows: pins and the running turn's user message."""
    current, pinned = view.inp.current, view.pinned
    return frozenset(index for index, row in enumerate(view.inp.rows) if row is current or row.position in pinned)


def _hidden_rows(view: View) -> int:
    edge = hidden_through(view.inp, view.state)
    if edge <= view.inp.summary_through_position:
        return 0
    return sum(row.position <= edge for row in view.inp.rows)


def _summary_tokens(view: View) -> int:
    """Return what the summary takes in the system message, its frame included."""
    return view.system_tokens - count_system(view.inp.system_prompt.strip(), view.inp.count)


def _target(inp: ContextInput, cause: Cause) -> int | None:
    match cause:
        case Cause.THRESHOLD:
            return unscale(inp.budget.target_tokens, inp.factor)
        case Cause.OVERFLOW:
            return unscale(int(inp.budget.target_tokens * HARDER_TARGET), inp.factor)
        case Cause.MESSAGES | Cause.TOKENS | Cause.MANUAL:
            return None


def _is_worthwhile(view: View, cause: Cause, cut: Cut) -> bool:
    """Whether the cut frees enough; what is not worth it now becomes so as the conversation grows."""
    match cause:
        case Cause.THRESHOLD:
            return _frees_enough(view, cut)
        case Cause.MESSAGES | Cause.TOKENS:
            return _replaces_enough(view.inp, cause, 0, cut.index)
        case Cause.MANUAL | Cause.OVERFLOW:
            return cut.index > 0


def _frees_enough(view: View, cut: Cut) -> bool:
    """Whether the cut frees a real share of the window; less is worth it only after the prompt has grown by as much.

    A summary that was found to be no smaller than its messages has to wait for that, too.
    """
    inp = view.inp
    freed = scale(cut.freed_tokens, inp.factor) / inp.budget.window_tokens
    if has_grown(inp, view.tokens):
        return freed >= WORTHWHILE_SHARE
    return freed >= GROWTH_SHARE and not was_skipped(inp)


def _replaces_enough(inp: ContextInput, cause: Cause, first: int, end: int) -> bool:
    """Whether the rows from `first` to before `end` are enough for a summary that N messages or K tokens cause."""
    if cause is Cause.MESSAGES:
        return end - first >= _least_messages(inp.policy)
    tokens = sum(tokens_of(row, inp.counter_name, inp.count) for row in inp.rows[first:end])
    return scale(tokens, inp.factor) >= TOKENS_SHARE * inp.policy.max_tokens_before_summary


def _least_messages(policy: ContextPolicy) -> int:
    n, recent = policy.max_messages_before_summary, policy.min_recent_messages
    spare = n - recent if n > recent else n
    return max(n // MESSAGES_PART, min(LEAST_MESSAGES, spare))
