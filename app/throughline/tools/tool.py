"""What a tool is, whatever stands behind it, and what those who write one use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long a call may take, and how many bytes (UTF-8) its result may have before it is cut."""

    timeout_seconds: float
    max_result_bytes: int


class Tool(Protocol):
    """One tool that agents may name: a function of the service, or one of the operator's."""

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""

    @property
    def origin(self) -> str:
        """Where it comes from, for errors: `module:attribute`, or the name of one of ours."""

    @property
    def source(self) -> object:
        """What it was made of. Two tools of one name are the same if this is."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be called again where its first outcome is unknown."""

    async def call(self, arguments: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
        """Call it with the model's JSON. Whatever goes wrong is an outcome that the model can read."""


class ToolFailed(Exception):
    """Raised by a tool; its text goes to the model as an error result, so that the model can do better.

    Of any other exception the model learns the class only: its text may hold what it must not see.
    """


def not_repeatable(function: Callable[P, R]) -> Callable[P, R]:
    """Mark `function`, such as one that sends a mail: where a process died during a call, it is not called again.

    The model is told that the outcome is unknown.
    """
    function.repeatable = False  # type: ignore[attr-defined]  # functions take attributes, their type does not say so
    return function


def is_repeatable(function: Callable[..., object]) -> bool:
    """Whether the function may be called again where its first outcome is unknown."""
    return bool(getattr(function, "repeatable", True))


def failed(text: str) -> ToolOutcome:
    """Return the outcome of a call that failed, with what the model is told."""
    return ToolOutcome(text, is_error=True)
