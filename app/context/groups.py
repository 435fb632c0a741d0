"""Groups: a tool call and its results are one unit, everywhere. Where a conversation may be cut follows from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.message import Message, Role
from app.domain.prompt import PromptMessage

M = TypeVar("M", Message, PromptMessage)


@dataclass(frozen=True, slots=True)
class Group(Generic[M]):
    """One message, with its results if it calls tools: one per call, in the calls' order, None where it is missing.

    A tool message that answers no open call (an orphan, or a second answer) heads a group of its own.
    """

    head: M
    results: tuple[M | None, ...] = ()

    @property
    def messages(self) -> tuple[M, ...]:
        """The group's messages that exist, call first."""
        found = [self.head]
        found.extend(result for result in self.results if result is not None)
        return tuple(found)

    @property
    def is_complete(self) -> bool:
        """Whether no call waits for its result."""
        return None not in self.results


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A place where a conversation may be cut: before the message at `index`, behind position `through_position`."""

    index: int
    through_position: int
    is_turn_start: bool


def group_messages(messages: Iterable[M]) -> tuple[Group[M], ...]:
    """Return the groups in the order of their first messages.

    A late result joins the newest call with its id that still waits, even across other messages. Ids may come again
    in a session: a new call with the same id takes over.
    """
    heads: list[M] = []
    answers: list[list[M | None]] = []
    waiting: dict[str, list[tuple[int, int]]] = {}
    for message in messages:
        slots = waiting.get(message.tool_call_id or "") if message.role is Role.TOOL else None
        if slots:
            group, slot = slots.pop(0)
            answers[group][slot] = message
            continue
        calls = message.tool_calls if message.role is Role.ASSISTANT else ()
        for call in calls:
            waiting[call.id] = []
        for slot, call in enumerate(calls):
            waiting[call.id].append((len(heads), slot))
        heads.append(message)
        answers.append([None] * len(calls))
    return tuple(Group(head, tuple(results)) for head, results in zip(heads, answers, strict=True))


def cut_points(messages: Sequence[Message]) -> tuple[CutPoint, ...]:
    """Return every legal cut of stored messages (ordered by position), oldest first; the end is none.

    A cut is legal where no group has messages on both sides: a late result holds together all that lies between.
    """
    last_of = {
        group.head.position: max(message.position for message in group.messages) for group in group_messages(messages)
    }
    points: list[CutPoint] = []
    reach = 0
    for index, message in enumerate(messages):
        if index and reach < message.position:
            points.append(CutPoint(index, messages[index - 1].position, message.role is Role.USER))
        reach = max(reach, last_of.get(message.position, 0))
    return tuple(points)


def settled_length(messages: Sequence[Message]) -> int:
    """Return how many of the messages come before the first call that still waits for a result (all, if none does)."""
    waiting = {group.head.position for group in group_messages(messages) if not group.is_complete}
    return next((index for index, message in enumerate(messages) if message.position in waiting), len(messages))


def split_at_cuts(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Return the pieces of stored messages between all legal cuts, in order: the smallest units to summarise."""
    starts = [0, *(point.index for point in cut_points(messages))]
    ends = [*starts[1:], len(messages)]
    return tuple(tuple(messages[start:end]) for start, end in zip(starts, ends, strict=True) if end > start)
