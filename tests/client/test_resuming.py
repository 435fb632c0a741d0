"""Runs that wait for something from outside, as another program sees and resumes them."""

import asyncio
from dataclasses import replace

import pytest

from fakes.one_tool import OneTool
from fakes.pooler import urls_of
from fakes.scripted_model import Call, Say
from fakes.side_jobs import side_jobs
from fakes.stage import Stage, open_stage
from fakes.waiting import HANG_SECONDS
from fakes.waiting_turns import ASKS_WEATHER, CAREFUL, DELETES, results
from throughline.client import (
    InvalidInput,
    NotAnswered,
    NotFound,
    RunNotWaiting,
    RunStatus,
    RunWaiting,
    WaitKind,
    approve,
    connect,
    edit,
    reject,
    result,
)
from throughline.db.database import Database
from throughline.turn.worker.worker import Worker, WorkerConfig

WEATHER = [{"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}]


def worker_of(stage: Stage) -> Worker:
    config = WorkerConfig(name="elsewhere", lease_seconds=3)
    return Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), config)


async def test_a_program_gives_the_result_of_its_own_tool(database: Database, database_url: str) -> None:
    stage, urls = await open_stage(database), urls_of(database_url)
    other = replace(ASKS_WEATHER, id="call_9")
    stage.model.script(Call((ASKS_WEATHER, other), text="I look."), Say("It rains in Graz."))
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "rain?", tools=WEATHER)
        async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
            waiting = await client.wait(run.id)
            seen = [event async for event in client.events(run.id)]
            still = await client.resume(run.id, result("call_1", "rain"))
            goes_on = await client.resume(run.id, result("call_9", "no weather there", is_error=True))
            rest = [event.type.value async for event in client.events(run.id, after=seen[-1].seq)]
            ended = await client.wait(run.id)
        stored = [message async for message in client.history(session.id)]

    assert waiting.run.waiting_for is not None
    assert [(call.id, call.kind) for call in waiting.run.waiting_for.calls] == [
        ("call_1", WaitKind.TOOL_RESULT),
        ("call_9", WaitKind.TOOL_RESULT),
    ]
    with pytest.raises(NotAnswered, match=r"waits for: tool_result of weather \(call_1\)"):
        waiting.answer()
    assert isinstance(seen[-1].event, RunWaiting)
    assert (still.status, goes_on.status) == (RunStatus.WAITING, RunStatus.QUEUED)
    assert (rest[0], rest[-1]) == ("run.started", "run.completed")
    assert ended.answer() == "It rains in Graz."
    assert set(results(stored)) == {("call_1", "rain"), ("call_9", "no weather there")}
    assert stored[2].metadata["given_by"] == "anna"


async def test_what_was_given_first_counts(database: Database, database_url: str) -> None:
    tool, urls = OneTool("delete", "deleted", repeatable=False), urls_of(database_url)
    stage = await open_stage(database, agent=CAREFUL, tools=tool)
    stage.model.script(Call((DELETES,)), Say("Done."))
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "delete it")
        async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
            await client.wait(run.id)
            with pytest.raises(InvalidInput, match="waits for: approval"):
                await client.resume(run.id, result("call_2", "deleted"))
            with pytest.raises(InvalidInput, match="Nothing is given"):
                await client.resume(run.id)
            with pytest.raises(NotFound):
                await (await client.acting_as("berta")).resume(run.id, approve("call_2"))
            await client.resume(run.id, edit("call_2", {"file": "b.txt"}))
            with pytest.raises(RunNotWaiting):
                await client.resume(run.id, reject("call_2", "Keep it."))
            ended = await client.wait(run.id)

    assert (ended.answer(), len(tool.keys)) == ("Done.", 1)
