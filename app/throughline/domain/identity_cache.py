"""What is made of a value that never changes, kept beside it for as long as the value itself."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import ref

from throughline.domain.message import ToolCall

K = TypeVar("K")
V = TypeVar("V")

MOST_ARGUMENTS = 1_000
"""Characters of a message's calls up to which what is made of them is kept: read, arguments take much memory."""

MEMORY_OF_ARGUMENTS = 16
"""Bytes for each of those characters, at the most: measured with nested lists of small numbers."""


def has_short_arguments(calls: Sequence[ToolCall]) -> bool:
    """Whether what is made of a message with these calls may be kept."""
    return sum(len(call.arguments) for call in calls) <= MOST_ARGUMENTS


class _Kept(ref[K], Generic[K, V]):
    """A weak reference to a value, with what is kept beside it.

    The garbage collector walks one object for it; a reference, a closure and a tuple would be seven.
    """

    __slots__ = ("key", "made")
    key: int
    made: V


class IdentityCache(Generic[K, V]):
    """Something for each of many values, forgotten with its value.

    Values are told apart by identity, so that nothing is compared and they need no hash; they must be weakly
    referable, and what is kept beside one must not hold it. Any thread may ask.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept: dict[int, _Kept[K, V]] = {}
        self._on_gone = self._forget  # one bound method for all references

    def __len__(self) -> int:
        """Return for how many values something is kept."""
        return len(self._kept)

    def find(self, value: K) -> V | None:
        """Return what is kept beside the value, None where nothing is."""
        found = self._kept.get(id(value))
        return None if found is None else found.made

    def keep(self, value: K, made: V) -> None:
        """Keep `made` beside the value."""
        kept: _Kept[K, V] = _Kept(value, self._on_gone)
        kept.key, kept.made = id(value), made
        self._kept[kept.key] = kept

    def _forget(self, gone: ref[K]) -> None:
        assert isinstance(gone, _Kept)
        self._kept.pop(gone.key, None)


class IdentityMemo(IdentityCache[K, V]):
    """Makes something of a value when it is first asked for, and gives the same again while the value lives."""

    def __init__(self, make: Callable[[K], V]) -> None:
        """Use `make`; two threads that ask at once may each have it called."""
        super().__init__()
        self._make = make

    def of(self, value: K) -> V:
        """Return what is made of the value."""
        found = self._kept.get(id(value))
        if found is not None:
            return found.made
        made = self._make(value)
        self.keep(value, made)
        return made
