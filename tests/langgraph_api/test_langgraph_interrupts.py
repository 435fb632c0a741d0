"""Interrupts of LangGraph's interface: runs that wait, and the commands that resume them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, open_langgraph_stage, said, texts
from fakes.openai_stage import OPEN_AGENT
from fakes.scripted_model import Call, Say
from fakes.scripted_turns import CAREFUL, DELETES
from fakes.stage import OneTool
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.domain.tool import MAX_OUTPUT

ASKS = ToolCall("call_9", "ask_user", '{"question": "Which town?", "options": ["Graz", "Bonn"]}')
DELETES_TOO = replace(DELETES, id="call_3", arguments='{"file": "b.txt"}')
ACTION = {"name": "delete", "args": {"file": "a.txt"}}


@pytest.fixture
async def careful(database: Database) -> AsyncIterator[LangGraphStage]:
    """Yield the interface with an agent that waits for the approval of a call."""
    async with open_langgraph_stage(
        database, agent=CAREFUL, tools=OneTool("delete", "Deleted.", repeatable=True)
    ) as stage:
        yield stage


async def until_interrupted(stage: LangGraphStage, *calls: ToolCall) -> tuple[str, list[Any]]:
    """Begin a run that waits for these calls; return its thread and the interrupts."""
    stage.model.script(Call(calls), Say("Done."))
    thread = await stage.open_thread()
    values = await stage.wait(thread, said("delete a.txt"))
    return thread, values["__interrupt__"]


async def resume(stage: LangGraphStage, thread: str, value: object) -> Any:  # noqa: ANN401  # values of any graph
    return await stage.wait(thread, None, command={"resume": value})


def results(values: Any) -> list[tuple[str, str]]:  # noqa: ANN401  # values of any graph
    return [
        (message["tool_call_id"], message["content"]) for message in values["messages"] if message["type"] == "tool"
    ]


async def test_a_waiting_run_is_an_interrupted_thread(careful: LangGraphStage) -> None:
    thread, interrupts = await until_interrupted(careful, DELETES)

    found = await careful.client.threads.get(thread)
    state = await careful.state(thread)

    assert interrupts == [
        {
            "id": "call_2",
            "value": {
                "action_requests": [ACTION],
                "review_configs": [
                    {"action_name": "delete", "allowed_decisions": ["approve", "edit", "reject"]},
                ],
            },
        }
    ]
    assert (found["status"], [*found["interrupts"].values()]) == ("interrupted", [interrupts])
    assert (state["next"], state["tasks"][0]["interrupts"]) == (["tool_node"], interrupts)
    assert [one["thread_id"] for one in await careful.client.threads.search(status="interrupted")] == [thread]


async def test_a_stream_taken_up_again_while_its_run_waits_has_the_rest_of_its_events(careful: LangGraphStage) -> None:
    careful.model.script(Call((DELETES,)))
    thread, runs = await careful.open_thread(), careful.client.runs
    stream = runs.stream(thread, AGENT_NAME, input=said("delete a.txt"), stream_mode=["updates"])
    parts = [part async for part in stream]
    run_id = parts[0].data["run_id"]
    rest = [part async for part in runs.join_stream(thread, run_id, stream_mode=["updates"], last_event_id="1")]

    assert [*parts[1].data] == ["llm_node"]
    assert [part.data for part in rest[1:]] == [part.data for part in parts[1:]]


@pytest.mark.parametrize(
    "value",
    [
        True,
        "approve",
        {"decision": "approve"},
        {"decisions": [{"type": "approve"}]},
        [{"type": "accept"}],
        {"call_2": {"decisions": [{"type": "approve"}]}},
    ],
)
async def test_an_approval_has_the_forms_of_langchains_clients(careful: LangGraphStage, value: object) -> None:
    thread, _ = await until_interrupted(careful, DELETES)

    values = await resume(careful, thread, value)

    assert results(values) == [("call_2", "Deleted.")]
    assert texts(values)[-1] == ("ai", "Done.")
    assert "__interrupt__" not in values


@pytest.mark.parametrize(
    "value",
    [
        {"decisions": [{"type": "edit", "edited_action": {"name": "delete", "args": {"file": "b.txt"}}}]},
        {"type": "edit", "args": {"action": "delete", "args": {"file": "b.txt"}}},
        {"decision": "edit", "arguments": {"file": "b.txt"}},
    ],
)
async def test_an_edit_runs_the_call_with_other_arguments(careful: LangGraphStage, value: object) -> None:
    thread, _ = await until_interrupted(careful, DELETES)

    values = await resume(careful, thread, value)

    assert results(values)[0][0] == "call_2"
    assert "b.txt" in str(values["messages"])


@pytest.mark.parametrize("value", [False, {"decisions": [{"type": "reject", "message": "Keep it."}]}])
async def test_a_rejection_does_not_run_the_call(careful: LangGraphStage, value: object) -> None:
    thread, _ = await until_interrupted(careful, DELETES)

    values = await resume(careful, thread, value)

    ((call_id, text),) = results(values)
    assert (call_id, "Deleted." in text) == ("call_2", False)
    assert value is False or "Keep it." in text


async def test_several_calls_are_decided_in_their_order_or_by_id(careful: LangGraphStage) -> None:
    thread, interrupts = await until_interrupted(careful, DELETES, DELETES_TOO)
    with pytest.raises(httpx.HTTPStatusError, match="2 calls"):
        await resume(careful, thread, True)  # noqa: FBT003  # an approval

    waiting = await resume(careful, thread, {"call_3": True})
    values = await resume(careful, thread, {"decisions": [{"type": "reject"}]})

    assert [one["id"] for one in interrupts] == ["call_2", "call_3"]
    assert [one["id"] for one in waiting["__interrupt__"]] == ["call_2"]
    assert [call_id for call_id, text in results(values) if text == "Deleted."] == ["call_3"]


async def test_a_question_is_answered_with_text(database: Database) -> None:
    async with open_langgraph_stage(database, agent=replace(OPEN_AGENT, tools=("ask_user",))) as stage:
        thread, interrupts = await until_interrupted(stage, ASKS)

        values = await resume(stage, thread, "Graz")

    assert interrupts[0]["value"] == {"question": "Which town?", "options": ["Graz", "Bonn"], "server": None}
    assert results(values) == [("call_9", "Graz")]


async def test_an_interrupt_and_its_rest_are_streamed(careful: LangGraphStage) -> None:
    careful.model.script(Call((DELETES,)), Say("Done."))
    thread = await careful.open_thread()
    runs: Any = careful.client.runs
    modes = ["values", "updates"]

    stream = runs.stream(thread, AGENT_NAME, input=said("delete"), stream_mode=modes)
    first = [part async for part in stream]
    rest = [
        part
        async for part in runs.stream(
            thread, AGENT_NAME, command={"resume": {"decisions": [{"type": "approve"}]}}, stream_mode=modes
        )
    ]

    assert [one["id"] for one in first[-2].data["__interrupt__"]] == ["call_2"]
    assert first[-3].event == "updates"
    assert first[-3].data["__interrupt__"] == first[-2].data["__interrupt__"]
    assert first[-1].data["status"] == "interrupted"
    assert [part.event for part in rest][0::6] == ["metadata", "end"]
    assert [next(iter(part.data)) for part in rest if part.event == "updates"] == ["tool_node", "llm_node"]
    assert texts(rest[-2].data)[-1] == ("ai", "Done.")


async def test_a_run_that_ends_with_its_client_goes_on_waiting(careful: LangGraphStage) -> None:
    careful.model.script(Call((DELETES,)), Call((DELETES_TOO,)), Say("Done."))
    thread, on_disconnect = await careful.open_thread(), {"on_disconnect": "cancel"}
    runs: Any = careful.client.runs

    streamed = [part async for part in runs.stream(thread, AGENT_NAME, input=said("delete"), **on_disconnect)]
    waiting = await careful.wait(thread, None, command={"resume": True}, **on_disconnect)
    values = await resume(careful, thread, True)  # noqa: FBT003  # an approval

    assert streamed[-1].data["status"] == "interrupted"
    assert [one["id"] for one in waiting["__interrupt__"]] == ["call_3"]
    assert texts(values)[-1] == ("ai", "Done.")


async def test_a_new_message_takes_the_place_of_a_run_that_waits_for_approval(careful: LangGraphStage) -> None:
    thread, _ = await until_interrupted(careful, DELETES)

    values = await careful.wait(thread, said("never mind"))

    assert texts(values)[-2:] == [("human", "never mind"), ("ai", "Done.")]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("perhaps", "no known type"),
        (7, "waits for a decision"),
        ({"type": "edit"}, "has no arguments"),
        ({"type": "edit", "edited_action": {"name": "other", "args": {}}}, "which an edit keeps"),
        ({"type": "reject", "message": "x" * 5000}, "at most 4000"),
        ({"type": "edit", "args": {"action": "delete", "args": {"file": "x" * MAX_OUTPUT}}}, "at most 1000000"),
        ({"decision": "edit", "arguments": {"file": "x" * MAX_OUTPUT}}, "at most 1000000"),
    ],
)
async def test_a_wrong_decision_changes_nothing(careful: LangGraphStage, value: object, words: str) -> None:
    thread, interrupts = await until_interrupted(careful, DELETES)

    refused = await careful.post(
        f"/threads/{thread}/runs/wait", {"assistant_id": AGENT_NAME, "command": {"resume": value}}
    )

    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert words in refused.json()["detail"]
    assert refused.json()["errors"][0]["field"] == "command.resume"
    assert (await careful.state(thread))["interrupts"] == interrupts


async def test_nothing_is_resumed_that_does_not_wait(careful: LangGraphStage) -> None:
    thread = await careful.open_thread()

    refused = await careful.post(f"/threads/{thread}/runs", {"assistant_id": AGENT_NAME, "command": {"resume": True}})

    assert (refused.status_code, refused.json()["type"]) == (httpx.codes.CONFLICT, "/problems/run_not_waiting")


async def test_an_ended_run_is_joined_with_the_interrupts_of_its_thread(careful: LangGraphStage) -> None:
    careful.model.script(Say("Hello back."), Call((DELETES,)))
    thread = await careful.open_thread()
    first = await careful.client.runs.create(thread, AGENT_NAME, input=said("hi"))
    await careful.client.runs.join(thread, first["run_id"])
    waiting = await careful.wait(thread, said("delete a.txt"))

    joined: Any = await careful.client.runs.join(thread, first["run_id"])

    assert joined == waiting
    assert [one["id"] for one in joined["__interrupt__"]] == ["call_2"]
