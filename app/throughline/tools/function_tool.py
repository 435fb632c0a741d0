"""A plain function as a tool: validates the model's arguments, calls the function, limits its time and result."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from throughline.domain.prompt import ToolSpec
from throughline.domain.text import clean_text
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.call_plugin import PluginTimedOut, call_plugin
from throughline.execution.outcome import Outcome, Raised, Returned, outcome_of_awaiting
from throughline.tools.call_failure import failure_for_model
from throughline.tools.result import result_text
from throughline.tools.tool import CallLimits, ToolFailed, failed, is_repeatable

CONTEXT = "context"
"""The parameter through which a function receives its ToolContext; the model never sees it."""

MAX_SHOWN_CHARACTERS = 100


class Arguments(BaseModel):
    """Base model for validating a call's arguments; its fields come from the function."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function with the description that the model gets.

    `origin` names its source for errors: `module:attribute` for an operator's function, else the name of a built-in.
    """

    spec: ToolSpec
    function: Callable[..., object]
    arguments: type[Arguments]
    wants_context: bool
    origin: str

    @property
    def is_ours(self) -> bool:
        """Whether the function is part of the service, and may use resources of its event loop."""
        return ":" not in self.origin

    @property
    def source(self) -> object:
        """The function itself. Two tools with one name and the same function count as one tool."""
        return self.function

    @property
    def is_repeatable(self) -> bool:
        """Whether the function may be called again if the outcome of its first call is unknown."""
        return is_repeatable(self.function)

    async def call(self, arguments: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
        """Call the function and return its result, or an error that the model can read."""
        try:
            parsed = self.parse(arguments)
        except ToolFailed as error:
            return failed(str(error))
        if self.wants_context:
            parsed[CONTEXT] = context
        outcome = await self._outcome(parsed, limits)
        if isinstance(outcome, Returned):
            return ToolOutcome(outcome.value)
        return failure_for_model(outcome.error, self.spec.name, context, limits)

    async def _outcome(self, parsed: Mapping[str, object], limits: CallLimits) -> Outcome[str]:
        """Call the function within the time limit, and return its result as text or its exception.

        The service's own coroutines run on its event loop, where the database is; all other functions in a thread.
        """
        function = functools.partial(self.function, **parsed)
        read = functools.partial(result_text, max_bytes=limits.max_result_bytes)
        if self.is_ours and inspect.iscoroutinefunction(self.function):
            return await _call_own(function, read, limits.timeout_seconds)
        return await call_plugin(function, read, limits.timeout_seconds)

    def parse(self, text: str) -> dict[str, object]:
        """Return the keyword arguments in `text`, the model's JSON. Raises ToolFailed with the reason.

        An empty text stands for no arguments: some providers send it so.
        """
        try:
            parsed = self.arguments.model_validate_json(clean_text(text).strip() or "{}")
        except ValidationError as error:
            raise ToolFailed(self._complain(error)) from error
        fields = self.arguments.model_fields
        return {str(info.alias): getattr(parsed, name) for name, info in fields.items()}

    def _complain(self, error: ValidationError) -> str:
        problems = "; ".join(_problem(details["loc"], details["msg"], details["input"]) for details in error.errors())
        return f"The arguments of {self.spec.name} are not valid: {problems}. {self._expected()}"

    def _expected(self) -> str:
        fields = self.arguments.model_fields.values()
        named = [f"{info.alias} ({'required' if info.is_required() else 'optional'})" for info in fields]
        return f"Send one JSON object with: {', '.join(named)}." if named else "Send an empty JSON object: {}."


async def _call_own(
    function: Callable[[], object], read: Callable[[object], str], timeout_seconds: float
) -> Outcome[str]:
    limit = asyncio.timeout(timeout_seconds)

    async def result() -> str:
        async with limit:
            made = function()
            return read(await made if inspect.isawaitable(made) else made)

    outcome = await outcome_of_awaiting(result())
    return Raised(PluginTimedOut()) if limit.expired() else outcome


def _problem(path: tuple[str | int, ...], message: str, given: object) -> str:
    name = ".".join(str(step) for step in path)
    if not name:
        return message
    shown = clean_text(repr(given))[:MAX_SHOWN_CHARACTERS]
    return f"{name}: {message}" if isinstance(given, dict) else f"{name}: {message}, not {shown}"
