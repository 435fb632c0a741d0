"""Caches for data derived from immutable values; each entry lives as long as the value it was derived from."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import ref

from throughline.domain.message import ToolCall

K = TypeVar("K")
V = TypeVar("V")

MOST_ARGUMENTS = 1_000
"""Total characters of a message's tool call arguments up to which derived data is cached.

Parsed arguments take much memory.
"""

MEMORY_OF_ARGUMENTS = 16
"""Upper bound of the bytes of memory that parsed arguments take per character of their text.

Measured with nested lists of small numbers.
"""


def has_short_arguments(calls: Sequence[ToolCall]) -> bool:
    """Whether the calls' arguments are short enough to cache data derived from their message."""
    return sum(len(call.arguments) for call in calls) <= MOST_ARGUMENTS


class _Kept(ref[K], Generic[K, V]):
    """A weak reference to a value that also holds the data cached for it.

    The garbage collector visits one object per entry; a reference, a closure and a tuple would be seven.
    """

    __slots__ = ("key", "made")
    key: int
    made: V


class IdentityCache(Generic[K, V]):
    """A cache with one entry per value; an entry is dropped when its value is garbage-collected.

    Values are compared by identity and need no hash. They must be weakly referenceable, and the cached data must not
    reference them. Thread-safe.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept[K, V]] = {}
        self._on_gone = self._forget  # one bound method shared by all references

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._kept)

    def find(self, value: K) -> V | None:
        """Return the data cached for the value, None if there is none."""
        found = self._kept.get(id(value))
        return None if found is None else found.made

    def keep(self, value: K, made: V) -> None:
        kept: _Kept[K, V] = _Kept(value, self._on_gone)
        kept.key, kept.made = id(value), made
        self._kept[kept.key] = kept

    def _forget(self, gone: ref[K]) -> None:
        assert isinstance(gone, _Kept)
        self._kept.pop(gone.key, None)


class ComputedCache(IdentityCache[K, V]):
    """A cache that computes an entry at the first request and returns the same object while the value lives."""

    def __init__(self, make: Callable[[K], V]) -> None:
        """Compute entries with `make`; two threads that request the same value at once may both call it."""
        super().__init__()
        self._make = make

    def of(self, value: K) -> V:
        """Return the data derived from the value, computed at the first request."""
        found = self._kept.get(id(value))
        if found is not None:
            return found.made
        made = self._make(value)
        self.keep(value, made)
        return made
