"""Interface of a tool, and what authors of tools use: ToolFailed and `not_repeatable`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

import structlog
from pydantic import ConfigDict, TypeAdapter

from throughline.domain.errors import class_names, only_cause_of, traceback_lines
from throughline.domain.message import clean_text, is_blank
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.call_plugin import PluginTimedOut, ThreadLimitReached

NOTHING = "(the tool returned nothing)"
ANY_VALUE: TypeAdapter[object] = TypeAdapter(object, config=ConfigDict(ser_json_inf_nan="strings"))


def result_text(value: object, max_bytes: int) -> str:
    """Return `value` as text of at most `max_bytes`: a str as it is, everything else as JSON.

    NUL and lone surrogates are replaced. Longer text is cut and ends with a remark on that; None and blank text become
    NOTHING. Raises ValueError for a value that JSON cannot represent (circular, bytes that are not UTF-8).
    """
    text = value if isinstance(value, str) else _as_json(value)
    whole = len(text)
    text = clean_text(text[: max_bytes + 1])
    if is_blank(text):
        return NOTHING
    encoded = text.encode()
    if len(encoded) <= max_bytes and len(text) >= whole:
        return text
    marker = f"\n[result cut: it had {whole} characters, more than the {max_bytes} bytes a result may have]"
    return encoded[: max(0, max_bytes - len(marker))].decode(errors="ignore") + marker


def _as_json(value: object) -> str:
    return "" if value is None else ANY_VALUE.dump_json(value, fallback=str).decode()


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


log = structlog.get_logger(__name__)


def failure_for_model(error: BaseException, name: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
    """Return the error result for the model: a ToolFailed's text, but only the class of an unexpected exception.

    Of an exception group, the exceptions in it count.

    `name` is the tool's. All but ToolFailed are logged; of an unexpected exception also where it was raised.
    """
    run_id = str(context.run_id)
    error = only_cause_of(error)
    if isinstance(error, ToolFailed):
        return failed(result_text(str(error), limits.max_result_bytes))
    if isinstance(error, ThreadLimitReached):
        log.warning("tool call skipped", tool=name, run_id=run_id, reason=str(error))
        return failed(f"{name} was not called: {error}. Try again later.")
    if isinstance(error, PluginTimedOut):
        log.warning("tool call timed out, outcome unknown", tool=name, run_id=run_id)
        return failed(
            f"{name} did not answer within {limits.timeout_seconds:g} seconds and was given up. "
            "Whether it took effect is unknown."
        )
    kind = class_names(error)
    log.warning("tool call failed", tool=name, run_id=run_id, error=kind, where=traceback_lines(error))
    return failed(f"{name} failed with {kind}.")
