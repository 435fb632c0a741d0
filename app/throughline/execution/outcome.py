"""The result of code that may raise any exception, such as a plugin or a job, as a value."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

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
