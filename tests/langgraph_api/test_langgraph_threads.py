"""Assistants and threads of LangGraph's interface, with its own Python client over a real socket."""

from uuid import UUID, uuid4

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, said, texts
from fakes.scripted_model import Hang, Say
from fakes.waiting import until
from throughline.db.sessions.repository import SessionQuery

TWO_TURNS = [("human", "first"), ("ai", "One."), ("human", "second"), ("ai", "Two.")]


async def two_turns(stage: LangGraphStage) -> str:
    stage.model.script(Say("One."), Say("Two."))
    thread = await stage.open_thread()
    await stage.wait(thread, said("first"))
    await stage.wait(thread, said("second"))
    return thread


async def test_agents_are_assistants(stage: LangGraphStage) -> None:
    assistants = stage.client.assistants
    (found,) = await assistants.search(graph_id=AGENT_NAME, metadata={"created_by": "system"})
    by_id = await assistants.get(found["assistant_id"])
    schemas = await assistants.get_schemas(AGENT_NAME)
    graph = await assistants.get_graph(AGENT_NAME, xray=True)

    assert by_id == found == await assistants.get(AGENT_NAME)
    assert str(UUID(found["assistant_id"])) == found["assistant_id"]
    assert (await assistants.count(), await assistants.count(name="nobody")) == (1, 0)
    assert await assistants.search(name="nobody") == []
    assert {"messages"} == (schemas["state_schema"] or {})["properties"].keys()
    assert "llm_node" in {node["id"] for node in graph["nodes"]}
    assert await assistants.get_subgraphs(AGENT_NAME) == {}
    with pytest.raises(NotFoundError, match="Known agents: assistant"):
        await assistants.get("nobody")


async def test_a_thread_is_created_read_changed_and_deleted(stage: LangGraphStage) -> None:
    threads = stage.client.threads
    created = await threads.create(metadata={"topic": "index"}, graph_id=AGENT_NAME)
    name = created["thread_id"]

    changed = await threads.update(name, metadata={"state": "open"})
    found = await threads.get(name)
    await threads.delete(name)

    assert created["status"] == "idle"
    assert (found["metadata"] or {}).items() >= {"topic": "index", "state": "open", "graph_id": AGENT_NAME}.items()
    assert changed["metadata"] == found["metadata"]
    with pytest.raises(NotFoundError, match="There is no thread"):
        await threads.get(name)


async def test_a_thread_has_the_id_that_its_client_chose(stage: LangGraphStage) -> None:
    threads, name = stage.client.threads, str(uuid4())
    created = await threads.create(thread_id=name)

    with pytest.raises(ConflictError, match="if_exists"):
        await threads.create(thread_id=name)
    again = await threads.create(thread_id=name, if_exists="do_nothing")
    stage.model.script(Say("One."))
    await stage.wait(name, said("first"))

    assert created["thread_id"] == again["thread_id"] == name
    assert [thread["thread_id"] for thread in await threads.search()] == [name]
    page = await stage.database.sessions.list(stage.turns.owner_id, SessionQuery())
    assert {session.external_id for session in page.items} <= {None, name}


async def test_threads_are_searched_and_counted(stage: LangGraphStage) -> None:
    threads = stage.client.threads
    names = [(await threads.create(metadata={"number": number % 2}))["thread_id"] for number in range(3)]
    stage.model.script(Say("One."))
    await stage.wait(names[0], said("first"))

    newest = await threads.search(limit=1)
    others = await threads.search(limit=5, offset=1)
    odd = await threads.search(metadata={"number": 1, "graph_id": AGENT_NAME})
    chosen = await threads.search(ids=[names[2]], select=["thread_id", "status"])

    assert [thread["thread_id"] for thread in newest] == names[:1]
    assert texts(newest[0]["values"] or {}) == [("human", "first"), ("ai", "One.")]
    assert {thread["thread_id"] for thread in others} == {*names[1:]}
    assert [thread["thread_id"] for thread in odd] == [names[1]]
    assert [dict(thread) for thread in chosen] == [{"thread_id": names[2], "status": "idle"}]
    assert (await threads.count(), await threads.count(metadata={"number": 0})) == (3, 2)
    assert (await threads.count(status="idle"), await threads.count(status="busy")) == (3, 0)


async def test_a_state_shows_the_thread_and_its_checkpoint(stage: LangGraphStage) -> None:
    thread = await two_turns(stage)

    state = await stage.state(thread)
    again = await stage.state(thread, checkpoint=state["checkpoint"])
    before = await stage.state(thread, checkpoint_id=state["parent_checkpoint"]["checkpoint_id"])
    empty = await stage.state(await stage.open_thread())

    assert texts(state["values"]) == TWO_TURNS
    assert (state["next"], state["tasks"], state["interrupts"]) == ([], [], [])
    assert again == state
    assert texts(before["values"]) == TWO_TURNS[:2]
    assert before["parent_checkpoint"] is None
    assert empty["values"] == {"messages": []}
    assert empty["checkpoint"]["checkpoint_id"] is None
    assert (await stage.state(thread, select=["values.messages"])).keys() == {"values"}


async def test_the_history_has_a_state_for_each_turn(stage: LangGraphStage) -> None:
    thread = await two_turns(stage)
    history = stage.client.threads.get_history

    newest, oldest = await history(thread)
    (first,) = await history(thread, limit=1)
    (earlier,) = await history(thread, before=newest["checkpoint"])
    read = await stage.http.get(f"/langgraph/threads/{thread}/history", params={"limit": 1})

    assert texts(newest["values"]) == TWO_TURNS  # type: ignore[arg-type]  # an object
    assert texts(oldest["values"]) == TWO_TURNS[:2]  # type: ignore[arg-type]  # an object
    assert newest == first == await stage.state(thread) == read.json()[0]
    assert oldest == earlier
    assert newest["parent_checkpoint"] == oldest["checkpoint"]
    with pytest.raises(NotFoundError, match="no checkpoint"):
        await history(thread, before=str(uuid4()))


async def test_a_copy_of_a_thread_goes_on_by_itself(stage: LangGraphStage) -> None:
    thread = await two_turns(stage)
    copied = await stage.http.post(f"/langgraph/threads/{thread}/copy")
    stage.model.script(Say("Three."))

    values = await stage.wait(copied.json()["thread_id"], said("third"))

    assert texts(values) == [*TWO_TURNS, ("human", "third"), ("ai", "Three.")]
    assert texts((await stage.state(thread))["values"]) == TWO_TURNS


async def test_a_run_goes_on_from_the_newest_checkpoint_alone(stage: LangGraphStage) -> None:
    thread = await two_turns(stage)
    newest, oldest = await stage.client.threads.get_history(thread)
    stage.model.script(Say("Three."))

    with pytest.raises(httpx.HTTPStatusError, match="422"):
        await stage.wait(thread, said("other"), checkpoint_id=oldest["checkpoint"]["checkpoint_id"])
    values = await stage.wait(thread, said("third"), checkpoint=newest["checkpoint"])

    assert texts(values)[-1] == ("ai", "Three.")


async def test_a_run_goes_on_from_before_a_stopped_turn(stage: LangGraphStage) -> None:
    thread = await two_turns(stage)
    newest, _ = await stage.client.threads.get_history(thread)
    stage.model.script(Hang("Th"), Say("Four."))
    run = await stage.client.runs.create(thread, AGENT_NAME, input=said("third"))
    await until(lambda: len(stage.model.requests) == 3)  # turns
    await stage.client.runs.cancel(thread, run["run_id"], wait=True)

    values = await stage.wait(thread, said("fourth"), checkpoint=newest["checkpoint"])

    assert texts(values)[-1] == ("ai", "Four.")


async def test_a_thread_id_is_a_uuid(stage: LangGraphStage) -> None:
    with pytest.raises(UnprocessableEntityError, match="UUID"):
        await stage.client.threads.create(thread_id="chat-1")


@pytest.mark.parametrize("graph_id", ["", 5, False, ["x"], None])
async def test_a_graph_id_that_names_nothing_is_passed_by(stage: LangGraphStage, graph_id: object) -> None:
    created = await stage.post("/threads", {"metadata": {"graph_id": graph_id}})
    counted = await stage.post("/threads/count", {"metadata": {"graph_id": graph_id}})

    assert (created.json()["metadata"]["graph_id"], counted.json()) == ("assistant", 1)
