"""Creation of a tool from a plain Python function: its name, docstring, annotations and defaults describe it."""

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, get_type_hints

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import SettingInvalid, class_names, only_cause_of, traceback_lines
from throughline.domain.message import clean_text, is_blank
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.call_plugin import PluginTimedOut, ThreadLimitReached, call_plugin
from throughline.execution.error_boundary import Outcome, Raised, Returned, outcome_of_awaiting

NOTHING = "(the tool returned nothing)"
MAX_TOOL_RESULT_BYTES = 5_000_000
"""Most bytes (UTF-8) of a tool's result that are stored; each prompt shows as much of them as fits."""

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


CONTEXT = "context"
"""The parameter through which a function receives its ToolContext; the model never sees it."""

MAX_SHOWN_CHARACTERS = 100


class Arguments(BaseModel):
    """Base model for validating a call's arguments; its fields come from the function."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class PythonTool:
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
        return self.function

    @property
    def is_repeatable(self) -> bool:
        return is_repeatable(self.function)

    async def call(self, arguments: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
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


TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ARGS_SECTION = re.compile(r"^Args:\n((?:[ \t][^\n]*+\n?|\n)*+)", re.MULTILINE)
NEXT_SECTION = re.compile(r"^(?:Args|Returns|Raises|Yields):$", re.MULTILINE)
ARGUMENT_LINE = re.compile(r"^(\s+)(\w+)(?: \([^)]*\))?: (.*)$")
UNKNOWABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def make_function_tool(function: object, *, origin: str) -> PythonTool:
    """Return the tool made from `function`.

    Raises SettingInvalid, naming `origin`, if it is no plain function, or lacks a docstring or annotations.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise SettingInvalid(
            f"tool {origin!r} is a {type(function).__name__}; it must be a plain function, or a tool of LangChain"
        )
    if TOOL_NAME.fullmatch(function.__name__) is None:
        raise SettingInvalid(f"tool {origin!r}: the name {function.__name__!r} must match {TOOL_NAME.pattern}")
    description, notes = _read_docstring(function, origin)
    annotations = _annotations(function, origin)
    wants_context = annotations.get(CONTEXT) is ToolContext
    if wants_context:
        del annotations[CONTEXT]
    arguments = _make_arguments(function, annotations, notes)
    spec = ToolSpec(name=function.__name__, description=description, parameters=_schema(arguments, origin))
    return PythonTool(spec, function, arguments, wants_context, origin)


def _read_docstring(function: Callable[..., object], origin: str) -> tuple[str, Mapping[str, str]]:
    """Return the tool's description, and the description of each argument in the Google-style `Args:` section.

    Raises SettingInvalid for a function without a docstring.
    """
    text = inspect.getdoc(function)
    if not text:
        raise SettingInvalid(f"tool {origin!r} has no docstring; write one: it is what the model knows of the tool")
    section = ARGS_SECTION.search(text)
    description = NEXT_SECTION.split(text, maxsplit=1)[0]
    return description.strip(), _argument_notes(section.group(1)) if section else {}


def _argument_notes(section: str) -> dict[str, str]:
    notes: dict[str, str] = {}
    name, indent = "", None
    for line in section.splitlines():
        found = ARGUMENT_LINE.match(line)
        if found and (indent is None or found.group(1) == indent):
            indent, name = found.group(1), found.group(2)
            notes[name] = found.group(3)
        elif name:
            notes[name] = f"{notes[name]} {line.strip()}".strip()
    return notes


def _annotations(function: Callable[..., object], origin: str) -> dict[str, Any]:  # Any: an annotation may be anything
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise SettingInvalid(f"tool {origin!r}: an annotation names {error.name!r}, which does not exist") from error
    found: dict[str, Any] = {}  # Any: as above
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in UNKNOWABLE:
            raise SettingInvalid(f"tool {origin!r}: {parameter} cannot be described; use named parameters only")
        if name not in hints:
            raise SettingInvalid(f"tool {origin!r}: the parameter {name!r} has no annotation")
        if hints[name] is ToolContext and name != CONTEXT:
            raise SettingInvalid(f"tool {origin!r}: the ToolContext parameter must be named {CONTEXT!r}, not {name!r}")
        found[name] = hints[name]
    return found


def _make_arguments(
    function: Callable[..., object],
    annotations: Mapping[str, Any],
    notes: Mapping[str, str],  # Any: as above
) -> type[Arguments]:
    """Return the model for validating the arguments.

    Its fields are numbered, with the parameter's name as alias, so that no name can hide an attribute of pydantic's.
    """
    fields: dict[str, Any] = {}  # Any: what create_model takes
    parameters = inspect.signature(function).parameters
    for number, (name, annotation) in enumerate(annotations.items()):
        default = parameters[name].default
        value = ... if default is inspect.Parameter.empty else default
        fields[f"argument_{number}"] = (annotation, Field(value, alias=name, description=notes.get(name)))
    try:
        made: type[Arguments] = create_model("arguments", __base__=Arguments, **fields)
    except PydanticUserError as error:
        raise SettingInvalid(
            f"tool {function.__name__!r}: its parameters cannot be read from JSON ({str(error).splitlines()[0]})"
        ) from error
    return made


def _schema(arguments: type[Arguments], origin: str) -> JsonObject:
    try:
        schema: dict[str, JsonValue] = arguments.model_json_schema()
    except PydanticUserError as error:
        raise SettingInvalid(f"tool {origin!r}: {str(error).splitlines()[0]}") from error
    for field in ("title", "description"):
        schema.pop(field, None)
    properties = schema.setdefault("properties", {})
    assert isinstance(properties, dict)
    for value in properties.values():
        if isinstance(value, dict):
            value.pop("title", None)
    return schema
