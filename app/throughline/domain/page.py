"""A page of a list, with the cursor of the next page."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. Pass `next_cursor` to get the following page; it is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
