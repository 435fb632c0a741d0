"""A guard around the body of an outer loop: exceptions are logged and suppressed, so that the loop continues."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from throughline.domain.exception_causes import traceback_lines

UNEXPECTED = "unexpected error"
"""Log event of an exception that nobody expected; the field `task` says what was being done."""


class ErrorBoundary:
    """A context manager that logs and suppresses exceptions of its block, except cancellation and process exit.

    `error` is the suppressed exception, None if there was none. Logged are its class and traceback lines, but not its
    text, which may contain a user's words.
    """

    def __init__(
        self,
        report: Callable[..., object],
        event: str = UNEXPECTED,
        *,
        lets_through: tuple[type[Exception], ...] = (),
        **fields: object,
    ) -> None:
        """`report` is a logger method that is called with `event` and `fields`.

        Exceptions in `lets_through` are not suppressed.
        """
        self.error: Exception | None = None
        self._report = report
        self._event = event
        self._lets_through = lets_through
        self._fields = fields

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, places: TracebackType | None
    ) -> bool:
        """Log and suppress the exception, and keep it in `error`.

        Cancellation, process exit and the exceptions in `lets_through` pass.
        """
        if not isinstance(error, Exception) or isinstance(error, self._lets_through):
            return False
        self.error = error
        self._report(self._event, **self._fields, error=type(error).__name__, where=traceback_lines(error))
        return True
