"""A type for each kind of id, so that type checking rejects a session id where a run id is expected."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NewType, Protocol, TypeAlias, TypeVar
from uuid import UUID


class Clock(Protocol):
    """Wall-clock time, monotonic time and sleeping."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes backwards, for measuring durations."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, as the tests or the operating system count them."""


JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = Mapping[str, JsonValue]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. Pass `next_cursor` to get the following page; it is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None


UserId = NewType("UserId", UUID)
KeyId = NewType("KeyId", UUID)
SessionId = NewType("SessionId", UUID)
MessageId = NewType("MessageId", UUID)
RunId = NewType("RunId", UUID)
SummaryId = NewType("SummaryId", UUID)
SegmentId = NewType("SegmentId", UUID)
MemoryId = NewType("MemoryId", UUID)
ProcessId = NewType("ProcessId", UUID)
