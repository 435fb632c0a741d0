"""A server that takes messages and a worker that answers them share the database and nothing else."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.event_reader import Seen, following, sending, text_of, until
from fakes.pooler import direct_url, environment_of
from fakes.programs import ROOT
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import BACKENDS, end_leases, run_sql, until_sql
from fakes.service_process import RunScript, ServiceProcess, run_worker
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "docs" / "examples" / "ask_from_a_script.py"
HANG = ScriptStep(text="half an answer and more", failure=Failure.HANG_IN_ANSWER)
SLOW_BEATS = {"LEASE_SECONDS": "600"}
"""The next heartbeat would come later than any test waits: what happens before it happens at once."""


async def accept(server: ServiceProcess, session: str, content: str, on_busy: str = "enqueue") -> str:
    """Send a message without waiting; return its run's id."""
    answer = await server.client.post(
        f"/v1/sessions/{session}/messages",
        json={"content": content, "on_busy": on_busy},
        headers={"Prefer": "respond-async"},
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run"]["id"])


async def run_of(server: ServiceProcess, run: str) -> dict[str, object]:
    return dict((await server.client.get(f"/v1/runs/{run}")).json())


async def ended(server: ServiceProcess, run: str) -> dict[str, object]:
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await run_of(server, run))["status"] in {"queued", "running"}:
            await asyncio.sleep(0.05)
    return found


async def test_what_the_server_takes_the_worker_answers_in_every_mode(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(*(ScriptStep(text=f"answer {number}") for number in range(3)))
    session = await server.new_session()
    early = await accept(server, session, "before there is a worker")
    async with run_worker(folder, settings, "--concurrency", "1"):
        first = await ended(server, early)
        waited = (await server.send(session, "waiting")).json()
        async with sending(server.client, session, "streaming") as events:
            streamed = await until(events, "run.completed")

    assert first["status"] == "succeeded"
    assert waited["message"]["content"] == "answer 1"
    assert text_of(streamed) == "answer 2"
    assert [message["content"] for message in await server.history(session)][1::2] == [
        "answer 0",
        "answer 1",
        "answer 2",
    ]


async def test_a_script_with_nothing_but_the_databases_address_is_answered(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble, run_alone: RunScript
) -> None:
    provider_double.script(ScriptStep(text="four hundred"))
    bare = environment_of(direct_url(settings))
    async with run_worker(folder, settings):
        code, told, complained = await run_alone(folder, bare, EXAMPLE, "how many?")

    assert code == 0, complained
    assert "four hundred" in told
    assert "succeeded" in told


async def test_a_cancel_at_the_server_ends_the_workers_model_call_before_its_heartbeat(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, ScriptStep(text="going on"))
    async with run_worker(folder, {**settings, **SLOW_BEATS}), asyncio.timeout(HANG_SECONDS):
        session = await server.new_session()
        async with sending(server.client, session, "tell me") as events:
            shown = await until(events, "message.delta")
            await server.client.post(f"/v1/runs/{shown[0].data['run']['id']}/cancel")  # type: ignore[index]  # JSON
            cancelled = (await until(events, "run.cancelled"))[-1]
        further = await server.send(session, "and now?")

    kept = (await server.history(session))[1]
    assert kept["content"] == text_of(shown)
    assert kept["metadata"] == {"interrupted": True}
    assert cancelled.data["message"]["content"] == kept["content"]  # type: ignore[index]  # JSON
    assert further.json()["message"]["content"] == "going on"


async def test_an_interrupting_message_keeps_what_was_written_and_is_answered_next(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, ScriptStep(text="something else"))
    async with run_worker(folder, {**settings, **SLOW_BEATS}), asyncio.timeout(HANG_SECONDS):
        session = await server.new_session()
        async with sending(server.client, session, "a long story") as events:
            shown = text_of(await until(events, "message.delta"))
            second = await accept(server, session, "stop", on_busy="interrupt")
            outcome = await ended(server, second)

    history = await server.history(session)
    assert outcome["status"] == "succeeded"
    assert [message["content"] for message in history] == ["a long story", shown, "stop", "something else"]
    assert [message["metadata"] for message in history] == [{}, {"interrupted": True}, {}, {}]


async def test_a_turn_that_is_cancelled_while_its_tool_runs_leaves_a_session_that_goes_on(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "waiter.yaml").write_text("name: waiter\ntools: ['fakes.own_tools:hang_politely']\n")
    call = ScriptStep(calls=(ScriptedCall("c1", "hang_politely"),))
    provider_double.script(call, ScriptStep(text="never mind"))
    # The server knows the agent by its name only where its own folder has it: the session is made in the database.
    async with run_worker(folder, {**settings, "AGENTS_DIR": str(folder / "agents")}):
        session = await server.new_session()
        await run_sql(direct_url(settings), "update sessions set agent = 'waiter'")
        async with sending(server.client, session, "wait for me") as events:
            run = str((await until(events, "tool.call"))[0].data["run"]["id"])  # type: ignore[index]  # JSON
            await server.client.post(f"/v1/runs/{run}/cancel")
            await until(events, "run.cancelled")
        further = await server.send(session, "forget it")

    assert further.json()["message"]["content"] == "never mind"


async def test_of_two_workers_one_answers_and_the_lines_of_a_session_stay_in_order(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(*(ScriptStep(text=f"answer {number}") for number in range(10)))
    session = await server.new_session()
    runs = [await accept(server, session, f"message {number}") for number in range(10)]
    refused = await server.send(session, "one too many")
    async with run_worker(folder, settings, name="one"), run_worker(folder, settings, name="two"):
        outcomes = [await ended(server, run) for run in runs]

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert {outcome["status"] for outcome in outcomes} == {"succeeded"}
    contents = [message["content"] for message in await server.history(session)]
    assert contents == [f"{kind} {number}" for number in range(10) for kind in ("message", "answer")]
    assert not any(request.overlapped for request in provider_double.requests)


async def test_a_message_that_kills_three_workers_fails_clearly_and_the_session_goes_on(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, HANG, HANG, ScriptStep(text="alive"))
    session = await server.new_session()
    run = await accept(server, session, "poison")
    seen: list[Seen] = []
    for _ in range(3):
        after = seen[-1].id if seen else 0
        async with run_worker(folder, settings) as worker, following(server.client, run, after) as events:
            seen = await until(events, "message.delta")
            worker.kill()
            await worker.wait()
        await end_leases(direct_url(settings))
    async with run_worker(folder, settings):
        outcome = await ended(server, run)
        further = await server.send(session, "better?")

    assert (outcome["status"], outcome["error"]["type"]) == ("failed", "run_abandoned")  # type: ignore[index]  # JSON
    assert [event.type for event in seen][:1] == ["reset"], "a further attempt takes back what was shown"
    assert further.json()["message"]["content"] == "alive"
    assert [message["content"] for message in await server.history(session)] == ["poison", "better?", "alive"]


async def test_lost_connections_in_the_middle_of_an_answer_lose_nothing_of_it(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    told = "a story of many words that takes its time to be told until the very end"
    provider_double.script(ScriptStep(text=told, pieces=12, delay_seconds=0.1))
    cut = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name like 'throughline%'"
    session = await server.new_session()
    worker = run_worker(folder, {**settings, "LEASE_SECONDS": "6"})
    async with worker, sending(server.client, session, "tell me") as events:
        seen = await until(events, "message.delta")
        for _ in range(3):
            await run_sql(direct_url(settings), cut)
            await asyncio.sleep(0.2)
        seen += await until(events, "run.completed")

    assert text_of(seen) == told
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert [message["content"] for message in await server.history(session)] == ["tell me", told]


async def test_a_reader_that_takes_nothing_does_not_slow_the_run(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="a long and winding story " * 120_000, pieces=60))
    session = await server.new_session()
    body = b'{"content": "tell me"}'
    head = f"POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with run_worker(folder, settings):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port, limit=1_000)
        writer.write((head + kind).encode() + body)
        await writer.drain()
        await until_sql(direct_url(settings), "select status from runs", [("succeeded",)])
        first = await reader.readline()
        writer.close()

    assert first.startswith(b"HTTP/1.1 200")
