"""What came of code that may raise anything, a plugin's or a job's, as a value that can end nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The value that was returned."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that was raised."""

    error: BaseException


Outcome: TypeAlias = Returned[T] | Raised


def outcome_of(function: Callable[[], T]) -> Outcome[T]:
    """Call `function`, somebody else's code, and return what came of it, were it SystemExit."""
    try:
        return Returned(function())
    except BaseException as error:  # noqa: BLE001  # the one place that calls code which may raise anything
        return Raised(error)


async def outcome_of_awaiting(made: Awaitable[T]) -> Outcome[T]:
    """Await what was `made` and return what came of it. Cancellation and the end of the process are let through."""
    try:
        return Returned(await made)
    except Exception as error:  # noqa: BLE001  # its caller judges the error
        return Raised(error)
