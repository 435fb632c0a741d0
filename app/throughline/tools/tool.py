"""Interface of a tool, and what authors of tools use: ToolFailed and `not_repeatable`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one call: its seconds, and the bytes (UTF-8) after which its result is cut."""

    timeout_seconds: float
    max_result_bytes: int


class Tool(Protocol):
    """One tool that agents may name: a function of the service, or an operator's plugin."""

    @property
    def spec(self) -> ToolSpec:
        """The name, description and parameters that a model gets."""

    @property
    def origin(self) -> str:
        """The tool's source, for errors: `module:attribute`, or the name of a built-in tool."""

    @property
    def source(self) -> object:
        """The object that the tool was made of. Two tools with one name and the same source count as one tool."""

    @property
    def is_repeatable(self) -> bool:
        """Whether the tool may be called again if the outcome of its first call is unknown."""

    async def call(self, arguments: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
        """Call the tool with the model's JSON. Every error becomes an outcome that the model can read."""


class ToolFailed(Exception):
    """Raised by a tool; its text goes to the model as an error result, so that the model can correct its call.

    Of any other exception the model sees only the class, because its text may be confidential.
    """


def not_repeatable(function: Callable[P, R]) -> Callable[P, R]:
    """Mark `function`, for example one that sends a mail, as not to be called again after a process died during a call.

    The model then gets the error that the outcome is unknown.
    """
    function.repeatable = False  # type: ignore[attr-defined]  # functions take attributes, their type does not say so
    return function


def is_repeatable(function: Callable[..., object]) -> bool:
    """Return whether the function may be called again if the outcome of its first call is unknown."""
    return bool(getattr(function, "repeatable", True))


def failed(text: str) -> ToolOutcome:
    """Return the outcome of a failed call with the text for the model."""
    return ToolOutcome(text, is_error=True)
