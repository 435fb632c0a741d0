"""Choice of the position at which a conversation is cut; the messages before the cut can then be summarised."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from throughline.context.groups import CutPoint, cut_points, settled_length
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
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


@dataclass(frozen=True, slots=True)
class _Sums:
    """Prefix sums over the rows: for every index, the tokens of the rows before it.

    `shown` counts rows as the prompt shows them, `read` as a summary model reads them, `kept` only those that stay
    shown.
    """

    shown: Sequence[int]
    read: Sequence[int]
    kept: Sequence[int]


def _sums(task: CutTask) -> _Sums:
    shown = list(accumulate(task.row_tokens, initial=0))
    read = (max(size, row.token_count) for size, row in zip(task.row_tokens, task.rows, strict=True))
    kept = (size if index in task.kept_rows else 0 for index, size in enumerate(task.row_tokens))
    return _Sums(shown, list(accumulate(read, initial=0)), list(accumulate(kept, initial=0)))


def _cut_at(task: CutTask, point: CutPoint, sums: _Sums) -> Cut:
    """Return the cut at `point` with its sizes, on the assumption that the summary becomes as large as it may.

    A summary is adopted only if it is smaller than what it replaces, unless both are small. Hidden rows are read, too.
    """
    index = point.index
    now = task.fixed_tokens + sums.shown[-1] + task.summary_tokens
    rest = now - task.summary_tokens - (sums.shown[index] - sums.kept[index])
    read = sums.read[index] - sums.kept[index] + task.summary_tokens
    most = max(read, SMALL_SUMMARY_TOKENS)
    after = rest + (task.summary_limit if task.is_more_before else min(task.summary_limit, most))
    return Cut(index, point.through_position, tokens_after=after, freed_tokens=now - after)
