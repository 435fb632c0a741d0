"""What came of code that may raise anything, an operator's or a job's, as a value that can end nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """It returned."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised; its exception travels as a value."""

    error: BaseException


Outcome: TypeAlias = Returned[T] | Raised


def outcome_of(function: Callable[[], T], *, catching: type[BaseException] = Exception) -> Outcome[T]:
    """Call `function` and return what came of it.

    Cancellation and the end of the process are let through, unless `catching` is BaseException: for a thread or a loop
    that is the function's alone, where somebody waits to hear of its end.
    """
    try:
        return Returned(function())
    except catching as error:
        return Raised(error)


async def outcome_of_awaiting(made: Awaitable[T], *, catching: type[BaseException] = Exception) -> Outcome[T]:
    """Await what was `made` and return what came of it; `catching` as for `outcome_of`."""
    try:
        return Returned(await made)
    except catching as error:
        return Raised(error)
