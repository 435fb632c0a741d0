"""Where to cut a conversation, so that what lies before the cut can be summarised."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from throughline.context.groups import CutPoint, cut_points, settled_length
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.domain.message import Message, Role


@dataclass(frozen=True, slots=True)
class CutTask:
    """The stored messages after the cursor with their tokens, and what a cut among them has to achieve.

    All tokens are ours. `fixed_tokens` is the prompt without these messages and without the summary. `kept_elsewhere`
    counts messages that come after the stored ones or stay shown whatever is cut. `running` is how many of the rows,
    at the end, belong to the running turn. `kept_rows` are the indexes of rows that stay shown even where they are
    summarised: pins, and the running turn's user message. `least_index`: rows before it are not shown anyhow and have
    to be among those summarised; `is_more_before` where such rows are not even given. `target_tokens` is None where as
    much as possible is to be cut; a turn is then cut in its middle only where the prompt would keep more than
    `enough_tokens`.
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
    """A chosen cut: everything before `index` is to be summarised; `tokens_after` is the most the prompt then takes."""

    index: int
    through_position: int
    tokens_after: int
    freed_tokens: int


def choose_cut(task: CutTask) -> Cut | None:
    """Return the cut that reaches the target with the fewest messages summarised, else the one that frees most.

    The start of a user turn is preferred; a turn is cut in its middle only where no such start reaches the target.
    None where nothing can be cut.
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
    """Return the first cut that reaches the target, the one that comes closest to it where none does."""
    tried: list[Cut] = []
    for cut in cuts:
        if cut.tokens_after <= target_tokens:
            return cut
        tried.append(cut)
    return min(tried, key=lambda cut: (cut.tokens_after, cut.index), default=None)


def least_tokens(task: CutTask) -> int:
    """Return the tokens of the prompt after the last legal cut, with a summary as large as it may become."""
    points = _legal_points(task)
    index = points[-1].index if points else 0
    left = sum(size for place, size in enumerate(task.row_tokens) if place >= index or place in task.kept_rows)
    return task.fixed_tokens + left + task.summary_limit


def cut_before(rows: Sequence[Message]) -> Cut:
    """Return the least cut where older messages were not loaded: between those and the rows.

    Results at the start of the rows answer a call that was not loaded, and go with it.
    """
    index = next((index for index, row in enumerate(rows) if row.role is not Role.TOOL), 0)
    return Cut(index, rows[index].position - 1, tokens_after=0, freed_tokens=0)


def _legal_points(task: CutTask) -> list[CutPoint]:
    """Cuts between whole groups that keep enough recent messages and no open call of the running turn behind them."""
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


@dataclass(frozen=True, slots=True)
class _Sums:
    """For every index, the tokens of the rows before it: as shown, as read by a summariser, and of those kept."""

    shown: Sequence[int]
    read: Sequence[int]
    kept: Sequence[int]


def _sums(task: CutTask) -> _Sums:
    shown = list(accumulate(task.row_tokens, initial=0))
    read = (max(size, row.token_count) for size, row in zip(task.row_tokens, task.rows, strict=True))
    kept = (size if index in task.kept_rows else 0 for index, size in enumerate(task.row_tokens))
    return _Sums(shown, list(accumulate(read, initial=0)), list(accumulate(kept, initial=0)))


def _cut_at(task: CutTask, point: CutPoint, sums: _Sums) -> Cut:
    """The summary after the cut is taken to be as large as it may become; rows that are not shown are read too.

    None is adopted that is as large as what it replaces, unless both are small.
    """
    index = point.index
    now = task.fixed_tokens + sums.shown[-1] + task.summary_tokens
    rest = now - task.summary_tokens - (sums.shown[index] - sums.kept[index])
    read = sums.read[index] - sums.kept[index] + task.summary_tokens
    most = max(read, SMALL_SUMMARY_TOKENS)
    after = rest + (task.summary_limit if task.is_more_before else min(task.summary_limit, most))
    return Cut(index, point.through_position, tokens_after=after, freed_tokens=now - after)
