"""The real box of tools, with limits that no test meets unless it says so."""

import time
from collections.abc import Callable, Sequence

from fakes.waiting import HANG_SECONDS
from throughline.tools.built_in import make_built_in_tools
from throughline.tools.make_function_tool import CallLimits
from throughline.tools.toolbox import ToolBox


def make_tool_box(
    imported: Sequence[str] = (),
    timeout_seconds: float = HANG_SECONDS,
    max_result_bytes: int = 1_000_000,
    *,
    further: Sequence[Callable[..., object]] = (),
    now: Callable[[], float] = time.time,
) -> ToolBox:
    """Return a box with the built-in tools, `further` functions of the service, and imported ones."""
    tools = make_built_in_tools(*further, now=now)
    return ToolBox(tools, CallLimits(timeout_seconds, max_result_bytes), imported=imported)
