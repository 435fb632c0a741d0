"""Deciding whether a conversation is to be compacted, why, and which messages a further summary has to stand for.

Called before the model is, with what one query loaded; says nothing about how the prompt looks (`fit` does that).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.context.assemble import build_system
from app.context.budget import Budget, summary_limit
from app.context.calibration import scale, unscale
from app.context.cut import Cut, CutTask, choose_cut, cut_before
from app.context.groups import cut_points
from app.context.measure import REPLY_TOKENS, Count, count_system, tokens_of
from app.context.policy import Adopt, ContextPolicy, Strategy
from app.domain.message import Message, NewMessage, Role

WORTHWHILE_SHARE = 0.05
"""An automatic compaction frees at least this share of the window, or the turn goes on without it."""

WORTHWHILE_MESSAGES = 3
"""One caused by the number of messages (tokens) replaces at least the N-th (K-th) part of that number."""

HARDER_TARGET = 0.5
"""After an overflow the target is this share of the usual one."""

ROOM_SHARE = 0.20
"""A compaction should leave room for this further share of the window."""


class Cause(StrEnum):
    """Why a conversation is compacted: threshold, N messages, K tokens, a user's wish, the provider's refusal."""

    THRESHOLD = "threshold"
    MESSAGES = "messages"
    TOKENS = "tokens"
    MANUAL = "manual"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class ContextInput:
    """All that planning and fitting need.

    `summary` stands for the messages up to `summary_through_position` (the cursor). `history` holds other runs'
    messages, oldest first, `own` this run's; of both, only what lies after the cursor is shown, and the run's user
    message wherever it lies. `user` is the user's message while it is not stored yet. `tools_tokens`,
    `summary_tokens` and `count` are our counts, times `factor` they are the model's.
    """

    policy: ContextPolicy
    budget: Budget
    factor: float
    system_prompt: str
    tools_tokens: int
    summary: str
    summary_tokens: int
    summary_through_position: int
    history: tuple[Message, ...]
    own: tuple[Message, ...]
    user: NewMessage | None
    count: Count
    counter_name: str

    @property
    def rows(self) -> tuple[Message, ...]:
        """The stored messages after the cursor, oldest first."""
        return (*_after(self.history, self.summary_through_position), *_after(self.own, self.summary_through_position))

    @property
    def has_gap(self) -> bool:
        """Whether messages after the cursor were not loaded: no prompt shows them and no summary has them."""
        return any(row.position > self.summary_through_position + 1 for row in self.rows[:1])

    @property
    def current(self) -> Message | None:
        """The stored user message of the running turn."""
        return next((message for message in self.own if message.role is Role.USER), None)

    @property
    def current_behind_cursor(self) -> Message | None:
        """The running turn's user message where it is summarised already; it is shown nevertheless."""
        current = self.current
        return current if current is not None and current.position <= self.summary_through_position else None


@dataclass(frozen=True, slots=True)
class Measured:
    """Our token counts of a conversation, by part; `rows` runs beside the input's rows."""

    system: int
    tools: int
    summary: int
    rows: tuple[int, ...]
    user: int

    @property
    def messages(self) -> int:
        """All messages, the running turn's user message included."""
        return sum(self.rows) + self.user

    @property
    def total(self) -> int:
        """The whole prompt."""
        return self.system + self.tools + self.summary + self.messages


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """What is to happen before the model is called.

    `tokens` is the prompt as it stands, in the model's tokens. `cause` is None where nothing is to be compacted now.
    `to_summarise` follows the cursor without a gap. Where older messages have to be loaded first it is empty and
    `must_load_first` is set: they lie between the cursor and what was given, and would be skipped unread.
    `prepare_cause` says why the next summary should be written in the background, where one should.
    """

    tokens: int
    raw_tokens: int
    cause: Cause | None
    to_summarise: tuple[Message, ...]
    through_position: int | None
    must_load_first: bool
    floor_too_high: bool
    prepare_cause: Cause | None


def plan_context(inp: ContextInput, *, forced: Cause | None = None) -> ContextPlan:
    """Measure the conversation and say what, if anything, a further summary has to stand for.

    `forced` (manual or overflow) compacts whatever the triggers say, a manual one as much as it may.
    """
    measured = measure_context(inp)
    tokens = scale(measured.total, inp.factor)
    cause = forced or _triggered(inp, measured, tokens)
    cut = None if cause is None else _worthwhile_cut(inp, measured, cause)
    return ContextPlan(
        tokens=tokens,
        raw_tokens=measured.total,
        cause=None if cut is None else cause,
        to_summarise=() if cut is None or inp.has_gap else inp.rows[: cut.index],
        through_position=None if cut is None else cut.through_position,
        must_load_first=cut is not None and inp.has_gap,
        floor_too_high=_is_floor_too_high(inp, measured),
        prepare_cause=prepare_cause(inp, measured),
    )


def measure_context(inp: ContextInput) -> Measured:
    """Return our counts of what the prompt would hold if nothing had to be left out; stored counts are trusted."""
    system = count_system(inp.system_prompt.strip(), inp.count) + REPLY_TOKENS
    summary = 0
    if inp.summary.strip():
        summary = _frame_tokens(inp) + (inp.summary_tokens or inp.count(inp.summary))
    current = inp.user or inp.current_behind_cursor
    return Measured(
        system=system,
        tools=inp.tools_tokens,
        summary=summary,
        rows=_row_tokens(inp),
        user=0 if current is None else tokens_of(current, inp.counter_name, inp.count),
    )


def messages_since_summary(inp: ContextInput) -> int:
    """Return how many messages lie after the cursor, those that were not loaded and the pending one included."""
    rows = inp.rows
    stored = rows[-1].position - inp.summary_through_position if rows else 0
    return stored + (inp.user is not None)


def prepare_cause(inp: ContextInput, measured: Measured) -> Cause | None:
    """Return why the next summary should be prepared in the background, None where it need not be."""
    is_wanted = _is_automatic(inp.policy) and inp.policy.adopt is Adopt.AT_THRESHOLD
    return _count_cause(inp, measured) if is_wanted else None


def backlog(messages: Sequence[Message], through_position: int | None = None) -> tuple[Message, ...]:
    """Return the part of a page of stored messages that can be summarised: all before its last legal cut.

    For `must_load_first`: `messages` is the page that follows the cursor, `through_position` the plan's, which is not
    passed. Empty where the page is one single group.
    """
    points = cut_points(messages)
    if through_position is not None:
        points = tuple(point for point in points if point.through_position <= through_position)
    return tuple(messages[: points[-1].index]) if points else ()


def _after(messages: tuple[Message, ...], cursor: int) -> tuple[Message, ...]:
    if not messages or messages[0].position > cursor:
        return messages
    return tuple(message for message in messages if message.position > cursor)


def _frame_tokens(inp: ContextInput) -> int:
    """What stands around a summary's text."""
    return inp.count(build_system("", "…", inp.summary_through_position))


def _row_tokens(inp: ContextInput) -> tuple[int, ...]:
    name, count, cap = inp.counter_name, inp.count, inp.policy.prune.max_output_bytes
    return tuple(
        _capped_tokens(row, name, count, cap)
        if row.role is Role.TOOL and len(row.content) * 4 > cap
        else (row.token_count if row.counter == name and row.token_count > 0 else tokens_of(row, name, count))
        for row in inp.rows
    )


def _capped_tokens(row: Message, counter_name: str, count: Count, max_bytes: int) -> int:
    """A tool output above the cap is shown middle-out; its tokens are estimated in proportion to what is shown."""
    tokens = tokens_of(row, counter_name, count)
    size = len(row.content.encode("utf-8", "replace")) if isinstance(row.content, str) else 0
    return tokens if size <= max_bytes else tokens * max_bytes // size + 1


def _triggered(inp: ContextInput, measured: Measured, tokens: int) -> Cause | None:
    if not _is_automatic(inp.policy):
        return None
    if tokens > inp.budget.threshold_tokens or inp.has_gap:
        return Cause.THRESHOLD
    return _count_cause(inp, measured) if inp.policy.adopt is Adopt.IMMEDIATELY else None


def _is_automatic(policy: ContextPolicy) -> bool:
    return policy.auto_summarize and policy.strategy is Strategy.SUMMARIZATION


def _count_cause(inp: ContextInput, measured: Measured) -> Cause | None:
    if messages_since_summary(inp) >= inp.policy.max_messages_before_summary:
        return Cause.MESSAGES
    if scale(measured.messages, inp.factor) >= inp.policy.max_tokens_before_summary:
        return Cause.TOKENS
    return None


def _worthwhile_cut(inp: ContextInput, measured: Measured, cause: Cause) -> Cut | None:
    cut = choose_cut(_cut_task(inp, measured, cause))
    if inp.has_gap:
        least = cut_before(inp.rows)
        return least if cut is None or cut.index < least.index else cut
    return cut if cut is not None and _is_worthwhile(inp, measured, cause, cut) else None


def _cut_task(inp: ContextInput, measured: Measured, cause: Cause) -> CutTask:
    rows, cursor = inp.rows, inp.summary_through_position
    return CutTask(
        rows=rows,
        row_tokens=measured.rows,
        fixed_tokens=measured.system + measured.tools + measured.user,
        summary_tokens=measured.summary,
        summary_limit=unscale(summary_limit(inp.policy.summary, inp.budget), inp.factor) + _frame_tokens(inp),
        min_recent=max(inp.policy.min_recent_messages, 0),
        kept_elsewhere=1 if inp.user is not None or inp.current_behind_cursor is not None else 0,
        running=len(_after(inp.own, cursor)),
        kept_row=_index_of(rows, inp.current),
        target_tokens=_target(inp, cause),
        may_cut_at_end=inp.user is not None and not inp.own,
    )


def _index_of(rows: Sequence[Message], wanted: Message | None) -> int | None:
    return next((index for index, row in enumerate(rows) if row is wanted), None)


def _target(inp: ContextInput, cause: Cause) -> int | None:
    match cause:
        case Cause.THRESHOLD:
            return unscale(inp.budget.target_tokens, inp.factor)
        case Cause.OVERFLOW:
            return unscale(int(inp.budget.target_tokens * HARDER_TARGET), inp.factor)
        case Cause.MESSAGES | Cause.TOKENS | Cause.MANUAL:
            return None


def _is_worthwhile(inp: ContextInput, measured: Measured, cause: Cause, cut: Cut) -> bool:
    """Whether the cut frees enough; what is not worth it now becomes so as the conversation grows."""
    match cause:
        case Cause.THRESHOLD:
            return scale(cut.freed_tokens, inp.factor) >= WORTHWHILE_SHARE * inp.budget.window_tokens
        case Cause.MESSAGES:
            return cut.index >= inp.policy.max_messages_before_summary // WORTHWHILE_MESSAGES
        case Cause.TOKENS:
            replaced = scale(sum(measured.rows[: cut.index]), inp.factor)
            return replaced >= inp.policy.max_tokens_before_summary // WORTHWHILE_MESSAGES
        case Cause.MANUAL | Cause.OVERFLOW:
            return cut.index > 0


def _is_floor_too_high(inp: ContextInput, measured: Measured) -> bool:
    """Whether even the shortest prompt (recent messages and a full summary) leaves too little room to grow."""
    keep = max(inp.policy.min_recent_messages, 0)
    recent = sum(measured.rows[len(measured.rows) - min(keep, len(measured.rows)) :])
    floor = scale(measured.system + measured.tools + measured.user + recent, inp.factor)
    room = inp.budget.target_tokens - ROOM_SHARE * inp.budget.window_tokens
    return floor + summary_limit(inp.policy.summary, inp.budget) > room
