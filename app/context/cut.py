"""Where to cut a conversation, so that what lies before the cut can be summarised."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.context.groups import CutPoint, cut_points, settled_length
from app.domain.message import Message, Role


@dataclass(frozen=True, slots=True)
class CutTask:
    """The stored messages after the cursor with their tokens, and what a cut among them has to achieve.

    All tokens are ours. `fixed_tokens` is the prompt without these messages and without the summary. `kept_elsewhere`
    counts messages that come after the stored ones or stay shown whatever is cut. `running` is how many of the rows,
    at the end, belong to the running turn, `kept_row` the index of its user message, which stays shown even where it
    is summarised. `target_tokens` is None where as much as possible is to be cut.
    """

    rows: Sequence[Message]
    row_tokens: Sequence[int]
    fixed_tokens: int
    summary_tokens: int
    summary_limit: int
    min_recent: int
    kept_elsewhere: int
    running: int
    kept_row: int | None
    target_tokens: int | None
    may_cut_at_end: bool


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
    before = list(accumulate(task.row_tokens, initial=0))
    points = _legal_points(task)
    starts = [_cut_at(task, point, before) for point in points if point.is_turn_start]
    inside = [_cut_at(task, point, before) for point in points if not point.is_turn_start]
    if task.target_tokens is None:
        return starts[-1] if starts else next((cut for cut in reversed(inside) if cut.freed_tokens > 0), None)
    for cut in (*starts, *inside):
        if cut.tokens_after <= task.target_tokens:
            return cut
    return min((*starts, *inside), key=lambda cut: (cut.tokens_after, cut.index), default=None)


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
    return [point for point in points if point.index <= last]


def _cut_at(task: CutTask, point: CutPoint, before: Sequence[int]) -> Cut:
    """The summary after the cut is taken to be as large as it may become."""
    replaced = before[point.index] + task.summary_tokens
    now = task.fixed_tokens + before[-1] + task.summary_tokens
    still_shown = task.row_tokens[task.kept_row] if task.kept_row is not None and task.kept_row < point.index else 0
    after = now - replaced + min(task.summary_limit, replaced) + still_shown
    return Cut(point.index, point.through_position, tokens_after=after, freed_tokens=now - after)
