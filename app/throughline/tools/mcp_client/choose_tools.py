"""Choice and names of the tools that an agent gets from its servers."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from throughline.domain.basic_types import JsonObject
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool_server import ServedTool, ServedTools, ToolServer

MAX_TOOLS = 128
"""Most tools that an agent gets from one server."""

MAX_NAME = 64
FORBIDDEN_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
"""What providers refuse in the name of a tool."""

HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it. `output_schema` is None if the server gave none that can be checked."""

    name: str
    description: str
    schema: JsonObject
    output_schema: JsonObject | None = None
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class ToolList:
    """The list of a server's tools. `problems` says which were left out; `fresh_seconds` is how long the list holds.

    `is_known`: whether the server was reached; if it was not, `problems` says why.
    """

    tools: tuple[ListedTool, ...] = ()
    problems: tuple[str, ...] = ()
    fresh_seconds: float = 0.0
    is_known: bool = True

    def differences(self, before: "ToolList") -> tuple[int, int, int]:
        """Return how many tools were added since the list `before`, removed, and changed otherwise."""
        old, new = ({tool.name: tool for tool in tool_list.tools} for tool_list in (before, self))
        changed = sum(old[name] != new[name] for name in old.keys() & new.keys())
        return len(new.keys() - old.keys()), len(old.keys() - new.keys()), changed


NO_TOOL_LIST = ToolList(problems=("no turn has connected it yet",), is_known=False)


def choose_tools(lists: Iterable[tuple[ToolServer, ToolList]]) -> ServedTools:
    """Return the tools that the servers' patterns allow, each under a name that providers take and no other tool has.

    The names depend on these tools only, not on their order. Of tools whose names could not be told apart, the first is
    kept.
    """
    chosen: list[tuple[ToolServer, ListedTool]] = []
    problems: dict[str, str] = {}
    for server, tool_list in lists:
        allowed = [tool for tool in tool_list.tools if _fits(tool.name, server.tools)]
        chosen += [(server, tool) for tool in allowed[:MAX_TOOLS]]
        told = [*tool_list.problems, *_too_many(allowed), *_unmatched(server, tool_list)]
        if told:
            problems[server.name] = "; ".join(told)
    given: dict[str, ServedTool] = {}
    left_out: list[ServedTool] = []
    for tool in _named(chosen):
        if tool.spec.name in given:  # a name made to look like that of another tool
            left_out.append(tool)
        else:
            given[tool.spec.name] = tool
    return ServedTools(tuple(given.values()), problems).report_name_conflicts(left_out)


def _too_many(allowed: list[ListedTool]) -> Iterator[str]:
    if len(allowed) > MAX_TOOLS:
        yield f"{len(allowed)} tools are allowed, of which the first {MAX_TOOLS} are used: name fewer in `tools`"


def _unmatched(server: ToolServer, tool_list: ToolList) -> Iterator[str]:
    for pattern in server.tools if tool_list.is_known else ():
        if pattern != "*" and not any(fnmatchcase(tool.name, pattern) for tool in tool_list.tools):
            yield f"it has no tool {pattern!r}"


def _named(chosen: list[tuple[ToolServer, ListedTool]]) -> Iterator[ServedTool]:
    shared = Counter(_name(server, tool) for server, tool in chosen)
    for server, tool in chosen:
        name = _name(server, tool)
        if len(name) > MAX_NAME or shared[name] > 1:
            name = _with_hash(name, server, tool)
        yield ServedTool(
            server,
            tool.name,
            ToolSpec(name, tool.description, tool.schema),
            is_repeatable=tool.is_repeatable,
            needs_approval=_fits(tool.name, server.needs_approval),
            output_schema=tool.output_schema,
        )


def _name(server: ToolServer, tool: ListedTool) -> str:
    return FORBIDDEN_CHARACTERS.sub("_", f"{server.name}__{tool.name}")


def _with_hash(name: str, server: ToolServer, tool: ListedTool) -> str:
    digest = hashlib.sha256(f"{server.name}\n{tool.name}".encode()).hexdigest()[:HASH_DIGITS]
    return f"{name[: MAX_NAME - HASH_DIGITS - 1]}_{digest}"


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
