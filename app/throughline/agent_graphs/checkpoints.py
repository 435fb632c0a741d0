"""LangGraph's checkpointer for one turn: each step's new messages and state go to the session, in one transaction.

The messages of the session are the messages of the graph, so a checkpoint holds none of them. Checkpoints of sub-graphs
and what single tasks have written are kept in memory, and stored when the turn waits.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.types import ERROR

from throughline.agent_graphs.langchain_messages import from_langchain
from throughline.agent_graphs.load_graph import MESSAGES
from throughline.agent_graphs.state_json import NotJson, decode, encode
from throughline.domain.agent_graph import GraphMessage, GraphStart
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import GraphFailed
from throughline.ports.agent_graphs import GraphHost

ROOT = ""


@dataclass(slots=True)
class Saved:
    """The newest checkpoint of a graph or sub-graph, and what its tasks have written since, by task and number."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    writes: dict[tuple[str, int], tuple[str, str, object]] = field(default_factory=dict)


class GraphProgress:
    """The state of a running graph: its newest checkpoints, and which of its messages are stored."""

    def __init__(self, graph: str, start: GraphStart, host: GraphHost, shown: Mapping[str, BaseMessage]) -> None:
        """Begin with what `start` brings. `shown` are the messages that the graph is given, by id."""
        self._graph = graph
        self.thread_id = start.thread_id
        self.host = host
        self.loop = asyncio.get_running_loop()
        self._stored: dict[str, BaseMessage] = dict(shown)
        self._state: JsonObject = {}
        self._saved = self._read(start)

    def _read(self, start: GraphStart) -> dict[str, Saved]:
        state = start.state
        if state is None or state.get("graph") != self._graph:
            return {}
        stored = state["saved"]
        assert isinstance(stored, dict)
        saved = {place: self._saved_from(one) for place, one in stored.items() if start.is_resumed or place == ROOT}
        root = saved[ROOT]
        if start.is_resumed:
            changed = decode(state["messages"], self._stored)
            assert isinstance(changed, list)
            root.checkpoint["channel_values"][MESSAGES] = _merged([*self._stored.values()], changed)
        else:
            root.writes.clear()
        return saved

    def _saved_from(self, stored: JsonValue) -> Saved:
        made: Any = decode(stored, self._stored)  # Any: as `_as_json` has written it
        writes = {(task, number): (task, channel, value) for task, number, channel, value in made["writes"]}
        return Saved(made["checkpoint"], made["metadata"], writes)

    def newest(self, place: str) -> CheckpointTuple | None:
        """Return the newest checkpoint of the graph (`ROOT`) or of the sub-graph at `place`; None without one."""
        saved = self._saved.get(place)
        if saved is None:
            return None
        writes = [saved.writes[key] for key in sorted(saved.writes)]
        config = self._config(place, saved.checkpoint["id"])
        return CheckpointTuple(config, saved.checkpoint, saved.metadata, None, writes)

    def _config(self, place: str, checkpoint_id: str) -> RunnableConfig:
        ids = {"thread_id": self.thread_id, "checkpoint_ns": place, "checkpoint_id": checkpoint_id}
        return {"configurable": ids}

    async def put(self, place: str, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> RunnableConfig:
        """Keep a checkpoint; store one of the whole graph after a step. Raises LeaseLost and GraphFailed."""
        if place == ROOT:
            self._saved.clear()  # the tasks that ran the sub-graphs have ended
        self._saved[place] = Saved(checkpoint, metadata)
        if place == ROOT and metadata.get("source") != "input":
            await self._store(checkpoint)
        return self._config(place, checkpoint["id"])

    def put_writes(self, place: str, task: str, writes: Sequence[tuple[str, object]]) -> None:
        """Keep what a task has written since the newest checkpoint."""
        saved = self._saved.get(place)
        if saved is None:
            return
        for number, (channel, value) in enumerate(writes):
            if channel != ERROR:
                saved.writes[task, WRITES_IDX_MAP.get(channel, number)] = (task, channel, value)

    async def _store(self, checkpoint: Checkpoint) -> None:
        """Store the step's new messages and the state, if either has changed.

        The last message is left to the end of the turn if it may be the answer: it is stored together with the end.
        """
        messages = checkpoint["channel_values"].get(MESSAGES, [])
        new = [message for message in messages if message.id not in self._stored]
        if new and new[-1] is messages[-1] and is_answer(new[-1]):
            new.pop()
        self._stored.update({str(message.id): message for message in new})
        state = self.as_json()
        if new or _values(state) != _values(self._state):
            self._state = state
            found = [GraphMessage(str(one.id), read) for one in new if (read := from_langchain(one)) is not None]
            await self.host.store(found, state)

    def as_json(self) -> JsonObject:
        """Return the state to store. Raises GraphFailed if the graph's state is no JSON."""
        try:
            root = self._saved[ROOT].checkpoint["channel_values"].get(MESSAGES, [])
            changed = [message for message in root if not self._is_stored(message)]
            return {
                "graph": self._graph,
                "messages": encode(changed, self._is_stored),
                "saved": {place: self._as_json(saved) for place, saved in self._saved.items()},
            }
        except NotJson as error:
            raise GraphFailed(
                f"The state of the agent's graph cannot be stored: {error}, which is no JSON. Keep only texts, "
                "numbers, lists, objects and messages in it."
            ) from error

    def _as_json(self, saved: Saved) -> JsonValue:
        checkpoint: dict[str, object] = dict(saved.checkpoint)
        values = saved.checkpoint["channel_values"]
        checkpoint["channel_values"] = {name: value for name, value in values.items() if name != MESSAGES}
        if saved is not self._saved[ROOT] and MESSAGES in values:
            checkpoint["channel_values"] = dict(values)
        written = [[task, number, *rest] for (task, number), (_, *rest) in saved.writes.items()]
        return {
            "checkpoint": {name: encode(value, self._is_stored, _field(name)) for name, value in checkpoint.items()},
            "metadata": encode(dict(saved.metadata), self._is_stored, "metadata"),
            "writes": encode(written, self._is_stored, "what a node has written"),
        }

    def _is_stored(self, message: BaseMessage) -> bool:
        """Whether the message is one of the session's, unchanged."""
        stored = self._stored.get(message.id or "")
        return stored is not None and (stored is message or stored == message)


def _field(name: str) -> str:
    """Return the beginning of the place of a value in a checkpoint, as errors name it."""
    return "its state" if name == "channel_values" else name


def is_answer(message: BaseMessage) -> bool:
    """Return whether the message may be a turn's answer: one of the model that calls no tools."""
    return isinstance(message, AIMessage) and not message.tool_calls and not message.invalid_tool_calls


def _values(state: JsonObject) -> object:
    """Return what the graph's nodes can see of the state."""
    match state:
        case {"saved": {"": {"checkpoint": {"channel_values": dict(values)}}}}:
            return {name: value for name, value in values.items() if not name.startswith(("branch:", "__"))}
        case _:
            return {}


def _merged(shown: Sequence[BaseMessage], changed: Sequence[object]) -> list[BaseMessage]:
    """Return the session's messages, with those that the graph has changed or added."""
    merged = {message.id: message for message in shown}
    merged.update({one.id: one for one in changed if isinstance(one, BaseMessage)})
    return list(merged.values())


RUNNING: ContextVar[GraphProgress] = ContextVar("running graph")
"""The progress of the graph whose turn this task belongs to."""


class TurnCheckpointer(BaseCheckpointSaver[int]):
    """The checkpointer of all graphs; what it keeps belongs to the running turn."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint."""
        return RUNNING.get().newest(_place(config))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  # LangGraph's signature
    ) -> RunnableConfig:
        """Keep the checkpoint, and store it after a step."""
        return await RUNNING.get().put(_place(config), checkpoint, metadata)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",  # noqa: ARG002  # LangGraph's signature
    ) -> None:
        """Keep what a task has written."""
        RUNNING.get().put_writes(_place(config), task_id, writes)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002, ARG002  # LangGraph's signature
        before: RunnableConfig | None = None,  # noqa: ARG002  # LangGraph's signature
        limit: int | None = None,  # noqa: ARG002  # LangGraph's signature
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the newest checkpoint: earlier ones are not kept."""
        newest = None if config is None else RUNNING.get().newest(_place(config))
        if newest is not None:
            yield newest


def _place(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns", ROOT))
