"""A guard around the body of an outer loop: exceptions are logged and suppressed, so that the loop continues."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from throughline.domain.errors import traceback_lines


@asynccontextmanager
async def running_concurrently(
    work: Callable[[], Coroutine[object, object, object]], name: str
) -> AsyncGenerator[asyncio.Task[object]]:
    """Run `work` as a task inside the block; at the block's end cancel it and wait for it, ignoring its errors.

    `work` is called when the block begins: a context that is never entered leaves no coroutine behind.
    """
    task: asyncio.Task[object] = asyncio.create_task(work(), name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The outcome of code that returned: its value."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The outcome of code that raised: its exception."""

    error: BaseException


Outcome: TypeAlias = Returned[T] | Raised


def outcome_of(function: Callable[[], T]) -> Outcome[T]:
    """Call `function`, which is foreign code, and return its value or exception, even SystemExit."""
    try:
        return Returned(function())
    except BaseException as error:  # noqa: BLE001  # the one place that calls code which may raise anything
        return Raised(error)


async def outcome_of_awaiting(made: Awaitable[T]) -> Outcome[T]:
    """Await `made` and return its value or exception. Cancellation and process exit are not caught."""
    try:
        return Returned(await made)
    except Exception as error:  # noqa: BLE001  # its caller judges the error
        return Raised(error)


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
