"""LangGraph's `RemoteGraph` against the service, alone and as a node of another graph."""

from typing import Any

import pytest
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph.types import Command

from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, open_langgraph_stage
from fakes.scripted_model import Call, Fail, Say
from fakes.scripted_turns import CAREFUL, DELETES
from fakes.stage import OneTool
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected

ASKED: Any = {"messages": [{"role": "user", "content": "hello"}]}


def remote(stage: LangGraphStage) -> Any:  # noqa: ANN401  # its types do not fit its values
    return RemoteGraph(AGENT_NAME, client=stage.client)


async def open_config(stage: LangGraphStage) -> Any:  # noqa: ANN401  # a configuration of any graph
    return {"configurable": {"thread_id": await stage.open_thread()}}


def texts(values: Any) -> list[str]:  # noqa: ANN401  # values of any graph
    found = (message if isinstance(message, dict) else message.model_dump() for message in values["messages"])
    return [message["content"] for message in found]


async def test_a_remote_graph_is_invoked_streamed_and_read(stage: LangGraphStage) -> None:
    graph, config = remote(stage), await open_config(stage)
    stage.model.script(Say("Hello back."), Say("Again."))

    values = await graph.ainvoke(ASKED, config)
    pieces = [piece async for piece in graph.astream(ASKED, config, stream_mode="messages")]
    state = await graph.aget_state(config)
    again = await graph.aget_state(state.config)
    history = [one async for one in graph.aget_state_history(config)]

    assert texts(values) == ["hello", "Hello back."]
    assert "".join(chunk["content"] for chunk, _ in pieces) == "Again."
    assert texts(state.values) == ["hello", "Hello back.", "hello", "Again."]
    assert again.values == state.values
    assert [len(one.values["messages"]) for one in history] == [4, 2]
    assert (await graph.aget_graph()).nodes.keys() >= {"llm_node", "tool_node"}


@pytest.mark.parametrize("has_thread", [True, False])
async def test_a_remote_graph_is_a_node_of_another_graph(stage: LangGraphStage, *, has_thread: bool) -> None:
    stage.model.script(Say("Hello back."), Say("Again."))
    config: Any = await open_config(stage) if has_thread else {}
    builder = StateGraph(MessagesState)
    builder.add_node("agent", remote(stage))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    graph: Any = builder.compile()

    first = await graph.ainvoke(ASKED, config)
    second = await graph.ainvoke({"messages": [*first["messages"], ("user", "more")]}, config)

    assert texts(first) == ["hello", "Hello back."]
    assert texts(second) == ["hello", "Hello back.", "more", "Again."]
    assert len({message.id for message in second["messages"]}) == len(second["messages"])


async def test_a_remote_graph_waits_and_is_resumed(database: Database) -> None:
    tool = OneTool("delete", "Deleted.", repeatable=True)
    async with open_langgraph_stage(database, agent=CAREFUL, tools=tool) as stage:
        graph, config = remote(stage), await open_config(stage)
        stage.model.script(Call((DELETES,)), Say("Done."))

        waiting = await graph.ainvoke(ASKED, config)
        state = await graph.aget_state(config)
        values = await graph.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), config)

    assert waiting["__interrupt__"][0]["id"] == "call_2"
    assert state.tasks[0].interrupts[0].id == "call_2"
    assert texts(values)[-2:] == ["Deleted.", "Done."]


async def test_a_failed_run_is_a_remote_exception(stage: LangGraphStage) -> None:
    graph, config = remote(stage), await open_config(stage)
    stage.model.script(Fail(ModelRejected("The provider refuses it.")))

    with pytest.raises(RemoteException, match="The provider refuses it"):
        await graph.ainvoke(ASKED, config)
