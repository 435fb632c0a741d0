"""Built-in tools, which every agent may name without any plugin."""

import time
from collections.abc import Callable

from throughline.tools.ask_user import ask_user
from throughline.tools.calculator import calculator
from throughline.tools.current_time import make_current_time
from throughline.tools.make_function_tool import make_function_tool
from throughline.tools.tool import Tool


def make_built_in_tools(*further: Callable[..., object], now: Callable[[], float] = time.time) -> tuple[Tool, ...]:
    """Return `calculator`, `current_time`, `ask_user` and `further` functions of the service that need the database.

    `now` returns seconds since the epoch.
    """
    functions = (calculator, make_current_time(now), ask_user, *further)
    return tuple(make_function_tool(function, origin=function.__name__) for function in functions)
