"""One page of a list, and where the next one begins."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list. `next_cursor` is handed in to get those after them; None where nothing follows."""

    items: tuple[T, ...]
    next_cursor: str | None = None
