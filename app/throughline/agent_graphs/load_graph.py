"""Import and check of a graph that an agent file names as `module:attribute`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langgraph.channels.delta import DeltaChannel
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel

from throughline.domain.elicitation import ASK_USER
from throughline.domain.errors import SettingInvalid
from throughline.execution.call_plugin import import_plugin, make_with_plugin

KIND = "graph"
MESSAGES = "messages"
"""The field of the graph's state that holds the session's messages."""

MODEL, TOOLS = "model", "tools"
"""Parameters that a function that makes a graph may have."""

Compiled: TypeAlias = CompiledStateGraph[Any, Any, Any, Any]  # Any: the types of other people's states
Given: TypeAlias = Mapping[str, Callable[[], object]]


def load_graph(name: str, given: Given, tools: Sequence[str]) -> Compiled:
    """Return the graph `name`. `given` makes the values of its function's parameters; `tools` are the agent's.

    Raises SettingInvalid, which says what the graph has that cannot be run here.
    """
    if ASK_USER in tools:
        raise _refused(name, f"cannot be given the tool {ASK_USER}: call `interrupt()` in a node instead")
    found = import_plugin(name, kind=KIND)
    if isinstance(found, Pregel | StateGraph):
        if tools:
            raise _refused(name, "is no function, so it cannot be given the agent's `tools`: remove them from the file")
    elif callable(found):
        found = _made(name, found, given, tools)
    if isinstance(found, StateGraph):
        raise _refused(name, "is not compiled: write `.compile()` behind it")
    if not isinstance(found, CompiledStateGraph):
        raise _refused(name, f"is {type(found).__name__}, not a compiled graph or a function that returns one at once")
    for problem in _problems(found):
        raise _refused(name, problem)
    return found


def _made(name: str, function: Callable[..., object], given: Given, tools: Sequence[str]) -> object:
    """Return what the function returns. Raises SettingInvalid if it needs what no graph is given, or fails."""
    parameters = _parameters(name, function)
    if tools and TOOLS not in parameters:
        raise _refused(name, "has no parameter `tools`, so it cannot be given the agent's `tools`: remove them")
    arguments = {wanted: given[wanted]() for wanted in parameters}
    return make_with_plugin(lambda: function(**arguments), f"{KIND} {name!r}", "calling it")


def _parameters(name: str, function: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return ()
    wanted = []
    for parameter in parameters:
        if parameter.name in {MODEL, TOOLS} and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }:
            raise _refused(name, f"wants {parameter.name!r}; a function is given `model` and `tools` only")
    return tuple(wanted)


def _problems(graph: Compiled) -> tuple[str, ...]:
    """Return what the graph has that cannot be run here."""
    breakpoints = [*graph.interrupt_before_nodes, *graph.interrupt_after_nodes]
    delta = sorted(field for field, channel in graph.channels.items() if isinstance(channel, DeltaChannel))
    inner = graph.get_subgraphs(recurse=True)
    of_their_own = sorted(path for path, one in inner if isinstance(one, Pregel) and one.checkpointer)
    found = (
        (MESSAGES not in graph.channels, "has no `messages` in its state: a session's messages go in and out there"),
        (MESSAGES not in graph.builder.schemas[graph.builder.input_schema], "takes no `messages` as its input"),
        (breakpoints, f"has breakpoints ({', '.join(map(str, breakpoints))}): call `interrupt()` in a node instead"),
        (delta, f"has a DeltaChannel ({', '.join(delta)}), which needs all earlier checkpoints"),
        (of_their_own, f"has sub-graphs with a checkpointer ({', '.join(of_their_own)}): compile them without one"),
    )
    return tuple(problem for is_there, problem in found if is_there)


def _refused(name: str, problem: str) -> SettingInvalid:
    return SettingInvalid(f"{KIND} {name!r}: {problem}")
