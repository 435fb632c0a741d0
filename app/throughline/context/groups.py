"""Groups: a tool call and its results are one unit. The positions where a conversation may be cut follow from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from throughline.domain.message import Message, Role, ToolCall
from throughline.domain.prompt import PromptMessage

M = TypeVar("M", Message, PromptMessage)


@dataclass(frozen=True, slots=True)
class Group(Generic[M]):
    """One message and, if it calls tools, one result per call in the calls' order; None for a missing result.

    A tool message that answers no open call (an orphan, or a second answer) heads a group of its own.
    """

    head: M
    results: tuple[M | None, ...] = ()

    @property
    def messages(self) -> tuple[M, ...]:
        """The head of the group, then the results that exist. A message without tool calls stands alone."""
        found = [self.head]
        found.extend(result for result in self.results if result is not None)
        return tuple(found)

    @property
    def is_complete(self) -> bool:
        """Whether every call of the group has its result."""
        return None not in self.results


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A position where a conversation may be cut: before the message at `index`, after position `through_position`."""

    index: int
    through_position: int
    is_turn_start: bool


class _OpenCalls:
    """Tool calls without a result, by id: the index of the calling message and the call's index among its calls."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int]]] = {}

    def open(self, calls: Sequence[ToolCall], place: int) -> None:
        """Add the calls of the message at index `place`. A call whose id was used before replaces the earlier call."""
        for call in calls:
            self._waiting[call.id] = []
        for slot, call in enumerate(calls):
            self._waiting[call.id].append((place, slot))

    def answered_by(self, result: Message | PromptMessage) -> tuple[int, int] | None:
        """Remove the call that `result` answers and return its message index and call index; None if there is none."""
        slots = self._waiting.get(result.tool_call_id or "")
        return slots.pop(0) if slots else None


def group_messages(messages: Iterable[M]) -> tuple[Group[M], ...]:
    """Return the groups in the order of their first messages.

    A late result joins the newest open call with its id, even across other messages. Ids may repeat in a session: a new
    call with the same id replaces the earlier one.
    """
    heads: list[M] = []
    answers: list[list[M | None]] = []
    waiting = _OpenCalls()
    for message in messages:
        answered = waiting.answered_by(message) if message.role is Role.TOOL else None
        if answered is not None:
            answers[answered[0]][answered[1]] = message
            continue
        calls = message.tool_calls if message.role is Role.ASSISTANT else ()
        if calls:
            waiting.open(calls, len(heads))
        heads.append(message)
        answers.append([None] * len(calls))
    return tuple(Group(head, tuple(results)) for head, results in zip(heads, answers, strict=True))


def cut_points(messages: Sequence[Message]) -> tuple[CutPoint, ...]:
    """Return every legal cut of stored messages (ordered by position), oldest first; the end is not a cut.

    A cut is legal if no group has messages on both sides. A late result therefore joins all messages between it and its
    call.
    """
    last_result = _last_results(messages)
    points: list[CutPoint] = []
    reach = 0
    for index, message in enumerate(messages):
        if reach < index:
            points.append(CutPoint(index, messages[index - 1].position, message.role is Role.USER))
        reach = max(reach, last_result.get(index, 0))
    return tuple(points)


def _last_results(messages: Sequence[Message]) -> dict[int, int]:
    """Return the index of the last result for each calling message, by the calling message's index."""
    found: dict[int, int] = {}
    waiting = _OpenCalls()
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            answered = waiting.answered_by(message)
            if answered is not None:
                found[answered[0]] = index
        elif message.tool_calls and message.role is Role.ASSISTANT:
            waiting.open(message.tool_calls, index)
    return found


def settled_length(messages: Sequence[Message]) -> int:
    """Return how many messages come before the first call without a result; all of them if there is no such call."""
    waiting = {group.head.position for group in group_messages(messages) if not group.is_complete}
    return next((index for index, message in enumerate(messages) if message.position in waiting), len(messages))


def split_at_cuts(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Return the pieces of stored messages between all legal cuts, in order: the smallest units to summarise."""
    starts = [0, *(point.index for point in cut_points(messages))]
    ends = [*starts[1:], len(messages)]
    return tuple(tuple(messages[start:end]) for start, end in zip(starts, ends, strict=True) if end > start)
