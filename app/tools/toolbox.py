"""The box of all tools agents may name: built-in ones and the operator's own functions."""

import functools
import time
import traceback
from collections.abc import Callable, Sequence

import structlog

from app.domain.errors import SettingInvalid
from app.domain.message import ToolCall
from app.domain.prompt import ToolSpec
from app.tools.calculator import calculator
from app.tools.current_time import make_current_time
from app.tools.failure import ToolFailed
from app.tools.function_tool import CONTEXT, FunctionTool, make_function_tool
from app.tools.imports import import_attribute
from app.tools.result import result_text
from app.turn.operator_code import ThreadsTakenError, call_function
from app.turn.operator_loops import Raised
from app.turn.ports import ToolContext, ToolOutcome

log = structlog.get_logger(__name__)


class ToolBox:
    """Implements the turn's `Tools`. Calls may run side by side; the box itself keeps nothing of them."""

    def __init__(
        self,
        extra: Sequence[str],
        timeout_seconds: float,
        max_result_bytes: int,
        *,
        built_in: Sequence[Callable[..., object]] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Hold the built-in tools and those of `extra` (`module:attribute`). Raises SettingInvalid.

        `built_in` are further functions that agents may name as they are called: those that need the database.
        `now` returns seconds since the epoch, for `current_time`.
        """
        self._timeout_seconds = timeout_seconds
        self._max_result_bytes = max_result_bytes
        self._tools: dict[str, FunctionTool] = {}
        for function in (calculator, make_current_time(now), *built_in):
            self._add(make_function_tool(function, origin=function.__name__))
        self._imported: dict[str, str] = {}
        self.specs(extra)

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of the named tools; a `module:attribute` is imported when first named.

        Raises SettingInvalid for an unknown name, one that cannot be imported, and two tools of one name.
        """
        return tuple(self._find(name).spec for name in names)

    def is_repeatable(self, name: str) -> bool:
        """Whether the tool may be called again where its first outcome is unknown (True for unknown tools)."""
        tool = self._tools.get(name)
        return tool is None or tool.is_repeatable

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call; whatever goes wrong is an outcome that the model can read."""
        tool = self._tools.get(call.name)
        if tool is None:
            return _error(f"There is no tool named {call.name[:80]!r}. Tools you can call: {', '.join(self._tools)}.")
        try:
            arguments = tool.parse(call.arguments)
        except ToolFailed as error:
            return _error(str(error))
        if tool.wants_context:
            arguments[CONTEXT] = context
        return await self._call(tool, arguments, context)

    async def _call(self, tool: FunctionTool, arguments: dict[str, object], context: ToolContext) -> ToolOutcome:
        function = functools.partial(tool.function, **arguments)
        ending = await call_function(function, self._timeout_seconds, is_ours=tool.is_ours)
        if ending is None:
            log.warning("tool timed out", tool=tool.spec.name, run_id=str(context.run_id))
            return _error(
                f"{tool.spec.name} did not answer within {self._timeout_seconds:g} seconds and was given up. "
                "Whether it took effect is unknown."
            )
        if isinstance(ending, Raised) and isinstance(ending.error, ThreadsTakenError):
            log.warning(
                "tool was not called", tool=tool.spec.name, run_id=str(context.run_id), reason=str(ending.error)
            )
            return _error(f"{tool.spec.name} was not called: {ending.error}. Try again later.")
        if isinstance(ending, Raised):
            return self._failed(tool, ending.error, context)
        try:
            return ToolOutcome(result_text(ending.value, self._max_result_bytes))
        except ValueError as error:  # also pydantic's own serialisation errors
            return self._failed(tool, error, context)

    def _failed(self, tool: FunctionTool, error: BaseException, context: ToolContext) -> ToolOutcome:
        """Tell the model a ToolFailed's text, of anything else the class; the log learns where it was raised."""
        if isinstance(error, ToolFailed):
            text = result_text(str(error), self._max_result_bytes)
            return _error(text)
        where = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
        kind = type(error).__name__
        log.warning("tool failed", tool=tool.spec.name, run_id=str(context.run_id), error=kind, where=where)
        return _error(f"{tool.spec.name} failed with {kind}.")

    def _find(self, name: str) -> FunctionTool:
        if ":" in name and name not in self._imported:
            tool = make_function_tool(import_attribute(name), origin=name)
            self._add(tool)
            self._imported[name] = tool.spec.name
        found = self._tools.get(self._imported.get(name, name))
        if found is None:
            raise SettingInvalid(
                f"There is no tool named {name!r}; allowed: {', '.join(self._tools)}, or module:attribute."
            )
        return found

    def _add(self, tool: FunctionTool) -> None:
        present = self._tools.get(tool.spec.name)
        if present is not None and present.function is not tool.function:
            raise SettingInvalid(
                f"tools {present.origin!r} and {tool.origin!r} would both be called {tool.spec.name!r}: rename one"
            )
        self._tools[tool.spec.name] = tool


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(text, is_error=True)
