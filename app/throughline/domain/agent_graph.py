"""A turn of an agent that is a LangGraph graph: what the graph is given, what it asks of the turn, and how it ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from throughline.domain.basic_types import JsonObject, JsonValue, RunId
from throughline.domain.prompt import AnswerComplete, PromptMessage, ToolSpec


@dataclass(frozen=True, slots=True)
class GraphMessage:
    """A message in a graph's state. `id` is that of the stored message, or the graph's own id for a new one."""

    id: str
    message: PromptMessage


@dataclass(frozen=True, slots=True)
class GraphState:
    """What is stored of a graph besides the messages of the session, and the run that stored it.

    It holds the checkpoint of LangGraph as JSON. The state is that of a session; each step of a run replaces it.
    """

    run_id: RunId
    data: JsonObject


@dataclass(frozen=True, slots=True)
class GraphStart:
    """What a graph is started with: the messages that fit the window, and the state that an earlier step has stored.

    `system` is the text that a prompt shows before the messages: the agent's system prompt and the summary. With
    `is_resumed` the run goes on from `state`. Otherwise `state` is that of the turn before, None without one. `answers`
    are the values that interrupts are given, by the interrupts' ids. `tools` are the names in the agent's file.
    """

    thread_id: str
    tools: tuple[str, ...]
    messages: tuple[GraphMessage, ...]
    system: str
    state: JsonObject | None = None
    is_resumed: bool = False
    answers: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphModelCall:
    """A call of the agent's model by a node of the graph. `tool_choice` is as in `ModelRequest`."""

    messages: tuple[GraphMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphModelAnswer:
    """The model's answer. `id` is the id under which its message will be stored, if the graph keeps it."""

    id: str
    step: AnswerComplete


@dataclass(frozen=True, slots=True)
class Interruption:
    """An `interrupt()` of the graph that waits for a value. `schema` is the JSON schema of that value, None if any."""

    id: str
    value: JsonValue
    schema: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class GraphEnd:
    """How a graph ended: with its last message, or at interrupts; then `state` is to be stored."""

    answer: GraphMessage | None = None
    interruptions: tuple[Interruption, ...] = ()
    state: JsonObject = field(default_factory=dict)
