"""Functions an operator might offer as tools, named `fakes.own_tools:…` in agent files."""

import asyncio
import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fakes.waiting import HANG_SECONDS
from throughline.domain.tool import ToolContext
from throughline.tools import ToolFailed, not_repeatable

blocked = threading.Event()
"""Never set: waiting for it is a tool that hangs."""

NOT_A_FUNCTION = 7


class Unit(StrEnum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclass(frozen=True)
class Weather:
    city: str
    degrees: float


def weather(city: str, days: int = 1, unit: Unit = Unit.CELSIUS) -> Weather:
    """Tell the weather of a city.

    Always fine weather.

    Args:
        city: the city's name,
            in any language.
        days (int): how many days ahead.

    Returns:
        The weather.
    """
    assert isinstance(unit, Unit)
    return Weather(city, 20.5 + days)


async def who_calls(context: ToolContext, greeting: Literal["hello", "bye"] = "hello") -> str:
    """Tell who calls."""
    await asyncio.sleep(0)
    return f"{greeting} {context.idempotency_key}"


@not_repeatable
def send_mail(to: str) -> None:
    """Send a mail."""


def hang() -> str:
    """Block its thread until `blocked` is set."""
    blocked.wait(HANG_SECONDS)
    return "too late"


async def hang_politely() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


async def ignore_cancellation() -> str:
    """Wait for ever, and once more when cancelled."""
    for _ in range(2):
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            continue
    return "still here"


def leak_secret() -> str:
    """Fail with a secret in the error's text."""
    raise ConnectionError("password hunter2")


async def lose_a_task() -> str:
    """Fail in a task of a group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail(ConnectionError("secret")))
    return ""


async def lose_tasks() -> str:
    """Fail in two tasks of a group."""
    async with asyncio.TaskGroup() as group:
        for error in (ConnectionError("secret"), TimeoutError(), ConnectionError("another")):
            group.create_task(_fail(error))
    return ""


async def refuse_in_a_task() -> str:
    """Say why in a task of a group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail(ToolFailed("the city is closed today")))
    return ""


async def _fail(error: Exception) -> None:
    raise error


def refuse() -> str:
    """Fail with words for the model."""
    raise ToolFailed("the city is closed today")


def leave() -> str:
    """Try to end the process."""
    raise SystemExit(3)


async def leave_later() -> str:
    """Try to end the event loop."""
    raise SystemExit(3)


async def cancel_itself() -> str:
    """End as if cancelled."""
    raise asyncio.CancelledError


def say(text: str, times: int = 1) -> str:
    """Repeat a text."""
    return text * times


def without_end() -> list[float]:
    """Return a number that JSON does not know."""
    return [float("inf"), 1.5]


def say_nothing() -> None:
    """Return nothing."""


def stop_iteration() -> str:
    """Raise what futures cannot carry."""
    raise StopIteration


def awkward_names(json: str, schema: str, model_config: str) -> list[str]:
    """Use names that pydantic uses too."""
    return [json, schema, model_config]


def endless() -> list[object]:
    """Return a list that holds itself."""
    items: list[object] = []
    items.append(items)
    return items


def calculator(expression: str) -> str:
    """Bear the name of a built-in tool."""
    return expression


def without_docstring(city: str) -> str:
    return city


def without_annotation(city):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  # the point of the test
    """Lack an annotation."""
    return city


def with_anything(*cities: str) -> str:
    """Take any number."""
    return str(cities)


def with_context_misnamed(caller: ToolContext) -> str:
    """Name the context otherwise."""
    return str(caller)


def with_unreadable_type(lock: threading.Thread) -> str:
    """Take what JSON cannot hold."""
    return str(lock)
