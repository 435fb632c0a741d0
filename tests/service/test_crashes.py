"""What dies may die at any moment: the history stays whole, the run ends, the session stays usable."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.data_dir_template import copy_data_dir
from fakes.event_reader import Seen, following, sending, until
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import end_leases
from fakes.service_process import ServiceProcess, free_port, run_service
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

THINKER = "{name: thinker, tools: [calculator], parameters: {return_reasoning: true}}"


async def read_until(service: ServiceProcess, session: str, text: str, event: str) -> None:
    """Stream a message until `event` has arrived."""
    headers = {"Accept": "text/event-stream"}
    path = f"/v1/sessions/{session}/messages"
    async with service.client.stream("POST", path, json={"content": text}, headers=headers) as response:
        async for line in response.aiter_lines():
            if line == f"event: {event}":
                return


async def until_finished(service: ServiceProcess, session: str, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            history = await service.history(session)
            if len(history) >= count:
                return history
            await asyncio.sleep(0.1)


async def test_a_service_killed_in_mid_stream_finishes_the_run_after_its_restart(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    port = free_port()
    provider_double.script(
        ScriptStep(calls=(ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)),
        ScriptStep(text="The answer is being written", failure=Failure.HANG_IN_ANSWER),
        ScriptStep(text="The answer is 42"),
        ScriptStep(text="And on it goes"),
    )
    async with run_service(folder, on_double, port=port) as service:
        session = await service.new_session()
        await read_until(service, session, "what is 6*7?", "message.delta")
        await service.kill()
    await end_leases(database_url)

    async with run_service(folder, on_double, port=port) as service:
        history = await until_finished(service, session, 4)
        further = await service.send(session, "go on")

    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"]
    assert [message["content"] for message in history] == ["what is 6*7?", "", "42", "The answer is 42"]
    assert further.json()["message"]["content"] == "And on it goes"


async def test_a_service_killed_between_two_steps_sends_the_reasoning_of_the_first_again(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    settings = {**on_double, "AGENTS_DIR": str(folder / "agents"), "DEFAULT_LLM": "openai:double-128k-cl100k-thinks"}
    (folder / "agents").mkdir()
    (folder / "agents" / "a.yaml").write_text(THINKER)
    provider_double.script(
        ScriptStep(thinking="I multiply.", calls=(ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)),
        ScriptStep(thinking="It is being", failure=Failure.HANG_IN_ANSWER),
        ScriptStep(thinking="Forty-two.", text="It is 42."),
    )
    async with run_service(folder, settings) as service:
        session = await service.new_session("thinker")
        reading = asyncio.create_task(read_until(service, session, "what is 6*7?", "tool.result"))
        async with asyncio.timeout(HANG_SECONDS):
            while len(provider_double.requests) < 2:
                await asyncio.sleep(0.02)
        await service.kill()
        await asyncio.gather(reading, return_exceptions=True)
    await end_leases(database_url)

    async with run_service(folder, settings) as service:
        history = await until_finished(service, session, 4)

    assert [message["content"] for message in history] == ["what is 6*7?", "", "42", "It is 42."]
    resumed = [message for message in provider_double.requests[-1].prompt if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in resumed] == ["I multiply."]


async def test_a_service_killed_while_a_call_is_written_shows_it_anew_under_other_ids(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    calls = (ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)
    provider_double.script(
        ScriptStep(text="I compute.", calls=calls, failure=Failure.HANG_IN_ANSWER, pieces=1),
        ScriptStep(text="I compute.", calls=calls),
        ScriptStep(text="It is 42."),
    )
    async with run_service(folder, on_double) as service:
        session = await service.new_session()
        async with sending(service.client, session, "what is 6*7?") as events:
            before = await until(events, "tool.call.delta")
        await service.kill()
    await end_leases(database_url)

    async with run_service(folder, on_double) as service:
        run = str(value(before[0], "run", "id"))
        async with following(service.client, run) as events:
            told = await until(events, "run.completed")
        history = await service.history(session)

    ids = [message["id"] for message in history]
    resets = [number for number, event in enumerate(told) if event.type == "reset"]
    shown = [event for event in told if event.type.endswith(".delta")]
    kept = [event for event in told[resets[-1] :] if event.type.endswith(".delta")]
    assert [event.data["user_message_id"] for event in told if event.type == "run.started"] == [ids[0]] * 2
    assert {event.data["message_id"] for event in kept} == {ids[1], ids[3]}
    assert not {event.data["message_id"] for event in shown if event not in kept} & set(ids)
    arguments = "".join(str(event.data["arguments_delta"]) for event in kept if event.type == "tool.call.delta")
    called = next(event.data for event in told if event.type == "tool.call")
    assert called == {"id": "c1", "name": "calculator", "arguments": arguments, "message_id": ids[1]}


def value(event: Seen, *path: str) -> object:
    """Return what stands at this path in the event's data."""
    found: object = event.data
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    return found


async def test_a_killed_postgres_is_started_again_and_nothing_stored_is_lost(
    folder: Path,
) -> None:
    await copy_data_dir(folder / "data")
    async with run_service(folder, {}, "--data-dir", str(folder / "data")) as service:
        session = await service.new_session()
        before = (await service.send(session, "first")).json()["message"]

        os.kill(postmaster_of(folder), signal.SIGKILL)
        async with asyncio.timeout(HANG_SECONDS):
            answer = await service.send(session, "second", **{"Idempotency-Key": "second"})
            while answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                await asyncio.sleep(0.2)
                answer = await service.send(session, "second", **{"Idempotency-Key": "second"})

        history = await service.history(session)

    assert answer.status_code == httpx.codes.OK
    assert [message["content"] for message in history if message["role"] == "user"] == ["first", "second"]
    assert history[1] == {**before, "citations": [], "reasoning": None}


def postmaster_of(folder: Path) -> int:
    pid_file = next((folder / "data").rglob("postmaster.pid"))
    return int(pid_file.read_text().splitlines()[0])


async def test_a_stopped_service_leaves_with_zero_and_gives_back_what_it_could_not_finish(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(
        ScriptStep(text="half an answer", failure=Failure.HANG_IN_ANSWER), ScriptStep(text="a whole answer")
    )
    settings = {**on_double, "SHUTDOWN_GRACE_SECONDS": "0.5"}
    async with run_service(folder, settings) as service:
        session = await service.new_session()
        reading = asyncio.create_task(read_until(service, session, "hello", "run.completed"))
        async with asyncio.timeout(HANG_SECONDS):
            while not provider_double.requests:
                await asyncio.sleep(0.02)

        code = await service.terminate()
        outcome = (await asyncio.gather(reading, return_exceptions=True))[0]

    async with run_service(folder, settings) as service:
        history = await until_finished(service, session, 2)

    assert code == 0
    assert isinstance(outcome, httpx.RemoteProtocolError), "an unfinished stream is aborted, never closed cleanly"
    assert [message["content"] for message in history] == ["hello", "a whole answer"]
