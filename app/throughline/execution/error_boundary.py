"""The edge of an outer loop: what its body raises is logged and stays inside, and the loop goes on."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from throughline.domain.errors import places_of


class ErrorBoundary:
    """Outlives whatever its block raises. Cancellation and the end of the process are let through.

    `error` is what the block raised, None where it raised nothing. It is logged by its class and the places it went
    through, never by its text, which may hold a user's words.
    """

    def __init__(
        self,
        report: Callable[..., object],
        event: str,
        *,
        lets_through: tuple[type[Exception], ...] = (),
        **fields: object,
    ) -> None:
        """`report` is a logger's method, called with `event` and the `fields`; `lets_through` are raised on."""
        self.error: Exception | None = None
        self._report = report
        self._event = event
        self._lets_through = lets_through
        self._fields = fields

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, places: TracebackType | None
    ) -> bool:
        """Keep an exception in."""
        if not isinstance(error, Exception) or isinstance(error, self._lets_through):
            return False
        self.error = error
        self._report(self._event, **self._fields, error=type(error).__name__, where=places_of(error))
        return True
