"""Runs of LangGraph's interface that wait for another one, or end while the service stops."""

import asyncio

import httpx
import pytest

from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, said, texts
from fakes.scripted_model import Say

FIRST = [("human", "hi"), ("ai", "Hello back.")]


async def test_the_values_of_a_queued_run_have_the_answer_before_it(stage: LangGraphStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Hello back.", gate=gate), Say("Second answer."))
    thread = await stage.open_thread()
    runs = stage.client.runs
    await runs.create(thread, AGENT_NAME, input=said("hi"))

    shown = []
    async for part in runs.stream(thread, AGENT_NAME, input=said("second"), stream_mode="values"):
        gate.set()
        shown += [texts(part.data)] if part.event == "values" else []

    assert shown == [[*FIRST, ("human", "second")], [*FIRST, ("human", "second"), ("ai", "Second answer.")]]


async def test_a_wait_that_the_service_cuts_names_its_run(stage: LangGraphStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Hello back.", gate=gate))
    thread = await stage.open_thread()
    body = {"assistant_id": AGENT_NAME, "input": said("hi")}
    stage.api.services.shutting_down.set()

    async with stage.http.stream("POST", f"/langgraph/threads/{thread}/runs/wait", json=body) as response:
        location = response.headers["Location"]
        with pytest.raises(httpx.RemoteProtocolError):
            await response.aread()
    stage.api.services.shutting_down.clear()
    gate.set()
    joined = await stage.http.get(f"/langgraph{location}")

    assert texts(joined.json()) == FIRST
