"""What a compaction has to achieve: the prepared summary that reaches far enough, or the messages to summarise."""

from dataclasses import dataclass, replace
from itertools import accumulate

from app.context.assemble import build_system
from app.context.budget import summary_limit
from app.context.calibration import scale, unscale
from app.context.context_input import ContextInput, after
from app.context.cut import Cut, CutTask, choose_cut, cut_before, least_tokens
from app.context.groups import cut_points
from app.context.measure import count_system
from app.context.triggers import Cause, ahead_tokens, is_summarising
from app.context.view import View, hidden_through
from app.domain.message import Message
from app.domain.summary import Prepared

WORTHWHILE_SHARE = 0.05
"""An automatic compaction frees at least this share of the window, or the turn goes on without it."""

WORTHWHILE_MESSAGES = 3
"""One caused by the number of messages (tokens) replaces at least the N-th (K-th) part of that number."""

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
    if prepared is not None and cause is not Cause.MANUAL and _reaches_far_enough(view, prepared, cause):
        return Compaction(prepared.through_position, adopts_prepared=True)
    cut = _worthwhile_cut(view, cause)
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


def _reaches_far_enough(view: View, prepared: Prepared, cause: Cause) -> bool:
    """Whether adopting leaves some room, and tears no call from its results."""
    inp, through = view.inp, prepared.through_position
    if through <= inp.summary_through_position or not _is_legal(inp.rows, through):
        return False
    if cause in {Cause.MESSAGES, Cause.TOKENS}:
        return True
    rows = row_tokens(view)
    behind = sum(
        tokens
        for row, tokens in zip(inp.rows, rows, strict=True)
        if row.position <= through and row.position not in view.pinned and row is not inp.current
    )
    after_tokens = view.tokens - behind - _summary_tokens(view) + prepared.token_count + frame_tokens(inp)
    room = ahead_tokens(inp)
    return scale(after_tokens, inp.factor) <= max(room, inp.budget.target_tokens)


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
    return cut if _is_worthwhile(inp, rows, cause, cut) else None


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


def _is_worthwhile(inp: ContextInput, rows: tuple[int, ...], cause: Cause, cut: Cut) -> bool:
    """Whether the cut frees enough; what is not worth it now becomes so as the conversation grows."""
    match cause:
        case Cause.THRESHOLD:
            return scale(cut.freed_tokens, inp.factor) >= WORTHWHILE_SHARE * inp.budget.window_tokens
        case Cause.MESSAGES:
            return cut.index >= inp.policy.max_messages_before_summary // WORTHWHILE_MESSAGES
        case Cause.TOKENS:
            replaced = scale(list(accumulate(rows, initial=0))[cut.index], inp.factor)
            return replaced >= inp.policy.max_tokens_before_summary // WORTHWHILE_MESSAGES
        case Cause.MANUAL | Cause.OVERFLOW:
            return cut.index > 0
