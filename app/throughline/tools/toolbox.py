"""Collection of all tools that agents may name: the service's own, and those imported by name."""

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import SettingInvalid, class_and_text, only_cause_of
from throughline.domain.message import ToolCall, clean_text
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome, is_json_object
from throughline.execution.call_plugin import call_plugin, import_plugin
from throughline.execution.error_boundary import Raised, Returned, outcome_of
from throughline.ports.hooks import Hook
from throughline.tools.make_function_tool import (
    TOOL_NAME,
    CallLimits,
    Tool,
    failed,
    failure_for_model,
    make_function_tool,
    result_text,
)

FIELD = "pre_compact"


class ImportedHooks:
    """Implementation of the `Hooks` port: each hook is imported and checked when it is first needed."""

    def __init__(self) -> None:
        self._found: dict[str, Hook] = {}

    def get(self, name: str) -> Hook:
        if name not in self._found:
            self._found[name] = _check(name, import_plugin(name, kind=FIELD))
        return self._found[name]


def _check(name: str, found: object) -> Hook:
    """Return `found`. Raises SettingInvalid unless it is a function that takes one argument; it is not called."""
    if inspect.isclass(found) or not callable(found):
        raise SettingInvalid(
            f"{FIELD} {name!r}: is not a function; write one that takes the compaction and returns a Decision or None"
        )
    try:
        with suppress(ValueError):  # some functions of compiled modules have no signature
            inspect.signature(found).bind(object())
    except TypeError as error:
        raise SettingInvalid(
            f"{FIELD} {name!r}: must be callable with one argument, the compaction ({error})"
        ) from error
    return cast("Hook", found)  # its return type can be checked only at the call


# LangChain's tools and toolkits as tools of an agent, without a change and without importing LangChain here.
#
# LangChain's tools are recognised by their class. The arguments that LangChain injects itself (state, store, call id)
# are unknown outside of its own agents; a tool that has some is refused.

LANGCHAIN = "langchain_core.tools"
T = TypeVar("T")
OWN_ERRORS = frozenset({"ToolException"})
"""LangChain's exceptions whose text is meant for the model."""


class _LangChainTool(Protocol):
    """The attributes and methods of LangChain's BaseTool that this module uses."""

    name: str
    description: str
    metadata: dict[str, Any] | None  # Any: LangChain's own
    tool_call_schema: type[BaseModel] | dict[str, Any]  # Any: a JSON schema

    def invoke(self, arguments: dict[str, object]) -> object: ...

    def ainvoke(self, arguments: dict[str, object]) -> Awaitable[object]: ...

    def get_input_schema(self) -> type[BaseModel]: ...


def langchain_tools(found: object, *, origin: str) -> "tuple[_LangChainTool, ...] | None":
    """Return the tools if `found` is a LangChain tool, a toolkit, or a list of tools; None for anything else.

    Raises SettingInvalid, naming `origin`, for a toolkit whose tools cannot be made.
    """
    if _is_a(found, "BaseTool"):
        return (found,)  # type: ignore[return-value]  # its class says so
    if _is_a(found, "BaseToolkit"):
        found = _read(found.get_tools, origin)  # type: ignore[attr-defined]  # its class says so
    if isinstance(found, list | tuple) and found and all(_is_a(item, "BaseTool") for item in found):
        return tuple(found)
    return None


def _is_a(found: object, name: str) -> bool:
    return any(cls.__name__ == name and cls.__module__.startswith("langchain_core") for cls in type(found).__mro__)


@dataclass(frozen=True, slots=True)
class LangChainTool:
    """A LangChain tool with the description that the model gets; `origin` is `module:attribute`."""

    spec: ToolSpec
    tool: _LangChainTool
    origin: str

    @property
    def source(self) -> object:
        return self.tool

    @property
    def is_repeatable(self) -> bool:
        return bool((self.tool.metadata or {}).get("repeatable", True))

    async def call(self, arguments: str, context: ToolContext, limits: CallLimits) -> ToolOutcome:
        text = clean_text(arguments).strip() or "{}"
        if not is_json_object(text):
            return failed(f"The arguments of {self.spec.name} are not valid: send one JSON object.")
        read = functools.partial(_content_text, max_bytes=limits.max_result_bytes)
        outcome = await call_plugin(self._bound(json.loads(text)), read, limits.timeout_seconds)
        if isinstance(outcome, Returned):
            return ToolOutcome(outcome.value)
        error = only_cause_of(outcome.error)
        if isinstance(error, ValidationError):
            problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            return failed(f"The arguments of {self.spec.name} are not valid: {problems}.")
        if type(error).__name__ in OWN_ERRORS:
            return failed(result_text(str(error), limits.max_result_bytes))
        return failure_for_model(error, self.spec.name, context, limits)

    def _bound(self, arguments: dict[str, object]) -> Callable[[], object]:
        """Return a function without parameters that calls the tool with `arguments`.

        It calls `invoke` if the tool has a synchronous implementation: some tools have an asynchronous one that only
        raises. The arguments are wrapped in a tool call, because LangChain would take certain arguments for one.
        """
        is_sync = getattr(self.tool, "func", None) is not None or _overrides(self.tool, "_run")
        asked: dict[str, object] = {"type": "tool_call", "id": "call", "name": self.tool.name, "args": arguments}
        return functools.partial(self.tool.invoke if is_sync else self.tool.ainvoke, asked)


def make_langchain_tools(tools: Iterable[_LangChainTool], *, origin: str) -> tuple[LangChainTool, ...]:
    """Return LangChain's tools as tools that agents may name.

    Raises SettingInvalid, naming `origin`, for a tool without a valid name or description, or with injected arguments.
    """
    return tuple(LangChainTool(_spec(tool, origin), tool, origin) for tool in tools)


def _spec(tool: _LangChainTool, origin: str) -> ToolSpec:
    if TOOL_NAME.fullmatch(tool.name) is None:
        raise SettingInvalid(f"tool {origin!r}: the name {tool.name!r} must match {TOOL_NAME.pattern}")
    if not tool.description:
        raise SettingInvalid(f"tool {origin!r} has no description; write one: it is what the model knows of the tool")
    schema = _read(lambda: _schema(tool.tool_call_schema), origin)
    whole = _read(lambda: _schema(tool.get_input_schema()), origin)
    injected = sorted(_names(whole) - _names(schema))
    if injected:
        raise SettingInvalid(
            f"tool {origin!r} takes {', '.join(injected)} from LangGraph's own agents, which do not run here: remove it"
        )
    return ToolSpec(tool.name, tool.description, schema)


def _schema(schema: type[BaseModel] | dict[str, Any]) -> JsonObject:  # Any: a JSON schema
    if isinstance(schema, dict):
        read = dict(schema)
    else:  # a model of pydantic, or of its first version
        read = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema.schema()
    return {name: value for name, value in read.items() if name not in {"title", "description"}}


def _read(function: Callable[[], T], origin: str) -> T:
    """Return what `function`, which runs code of the tool, returns. Any exception becomes SettingInvalid."""
    match outcome_of(function):
        case Returned(value):
            return value
        case Raised(error):
            raise SettingInvalid(f"tool {origin!r} cannot be described: {class_and_text(error)}") from error


def _names(schema: JsonObject) -> set[str]:
    properties = schema.get("properties", {})
    return set(properties) if isinstance(properties, dict) else set()


def _content_text(message: object, max_bytes: int) -> str:
    """Return the content of LangChain's tool message, without the artifact that is not meant for the model."""
    return result_text(getattr(message, "content", message), max_bytes)


def _overrides(tool: object, name: str) -> bool:
    """Return whether the tool's own class, not LangChain's, defines the method."""
    owner = next(cls for cls in type(tool).__mro__ if name in vars(cls))
    return not owner.__module__.startswith(LANGCHAIN)


class ToolBox:
    """Implementation of the `Tools` port: tools by name. Calls may run concurrently; no state of them is kept."""

    def __init__(self, tools: Sequence[Tool], limits: CallLimits, *, imported: Sequence[str] = ()) -> None:
        """Store `tools`, and import those that `imported` names (`module:attribute`). Raises SettingInvalid."""
        self._limits = limits
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._add(tool)
        self._imported: dict[str, tuple[str, ...]] = {}
        self.specs(imported)

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of the named tools; a `module:attribute` is imported when it is first named.

        A `module:attribute` that is a LangChain toolkit, or a list of LangChain tools, stands for all of its tools.

        Raises SettingInvalid for an unknown name, one that cannot be imported, and two tools of one name.
        """
        found = {tool.spec.name: tool.spec for name in names for tool in self._find(name)}
        return tuple(found.values())

    def is_repeatable(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is None or tool.is_repeatable

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        tool = self._tools.get(call.name)
        if tool is None:
            return failed(f"There is no tool named {call.name[:80]!r}. Tools you can call: {', '.join(self._tools)}.")
        return await tool.call(call.arguments, context, self._limits)

    def _find(self, name: str) -> tuple[Tool, ...]:
        if ":" in name and name not in self._imported:
            tools = _make_tools(import_plugin(name, kind="tool"), origin=name)
            for tool in tools:
                self._add(tool)
            self._imported[name] = tuple(tool.spec.name for tool in tools)
        names = self._imported.get(name, (name,))
        if not self._tools.keys() >= set(names):
            raise SettingInvalid(
                f"There is no tool named {name!r}; allowed: {', '.join(self._tools)}, or module:attribute."
            )
        return tuple(self._tools[found] for found in names)

    def _add(self, tool: Tool) -> None:
        present = self._tools.get(tool.spec.name)
        if present is not None and present.source is not tool.source:
            raise SettingInvalid(
                f"tools {present.origin!r} and {tool.origin!r} would both be called {tool.spec.name!r}: rename one"
            )
        self._tools[tool.spec.name] = tool


def _make_tools(found: object, *, origin: str) -> tuple[Tool, ...]:
    """Return the tools made of an imported function, LangChain tool or toolkit. Raises SettingInvalid."""
    of_langchain = langchain_tools(found, origin=origin)
    if of_langchain is None:
        return (make_function_tool(found, origin=origin),)
    return make_langchain_tools(of_langchain, origin=origin)
