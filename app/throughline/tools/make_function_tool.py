"""Creation of a tool from a plain Python function: its name, docstring, annotations and defaults describe it."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import Field, create_model
from pydantic.errors import PydanticUserError

from throughline.domain.errors import SettingInvalid
from throughline.domain.json_types import JsonObject, JsonValue
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext
from throughline.tools.function_tool import CONTEXT, Arguments, FunctionTool

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ARGS_SECTION = re.compile(r"^Args:\n((?:[ \t][^\n]*+\n?|\n)*+)", re.MULTILINE)
NEXT_SECTION = re.compile(r"^(?:Args|Returns|Raises|Yields):$", re.MULTILINE)
ARGUMENT_LINE = re.compile(r"^(\s+)(\w+)(?: \([^)]*\))?: (.*)$")
UNKNOWABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def make_function_tool(function: object, *, origin: str) -> FunctionTool:
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
    return FunctionTool(spec, function, arguments, wants_context, origin)


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
