"""SIGTERM: nothing new is begun, what can end in time ends, the rest is given back, and the exit code is 0."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.event_reader import following, sending, text_of, until, until_cut
from fakes.pooler import direct_url
from fakes.provider_double import Failure, ProviderDouble, ScriptStep
from fakes.raw_sql import BACKENDS, until_sql
from fakes.service_process import ServiceProcess, run_service, run_worker, start_program
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.migrations import locked_connection as migration_lock

pytestmark = pytest.mark.slow
HANG = ScriptStep(text="half an answer and more", failure=Failure.HANG_IN_ANSWER)


async def test_a_stopped_worker_ends_the_turn_it_can_end_and_takes_no_other(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="slowly but surely told", pieces=4, delay_seconds=0.3))
    session, other = await server.new_session(), await server.new_session()
    async with run_worker(folder, settings) as worker, sending(server.client, session, "tell") as events:
        seen = await until(events, "message.delta")
        worker.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        late = await server.client.post(
            f"/v1/sessions/{other}/messages", json={"content": "too late"}, headers={"Prefer": "respond-async"}
        )
        seen += await until(events, "run.completed")
        code = await worker.wait()

    waiting = await server.client.get(late.headers["location"])
    assert code == 0
    assert text_of(seen) == "slowly but surely told"
    assert waiting.json()["status"] == "queued"


async def test_what_does_not_end_in_time_is_given_back_and_begun_again_by_another_worker(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, ScriptStep(text="a whole answer"))
    long_lease = {**settings, "LEASE_SECONDS": "60", "SHUTDOWN_GRACE_SECONDS": "0.5"}
    session = await server.new_session()
    async with run_worker(folder, long_lease) as worker, sending(server.client, session, "tell") as events:
        seen = await until(events, "message.delta")
        worker.send_signal(signal.SIGTERM)
        code = await worker.wait()
        async with run_worker(folder, long_lease, name="another"):
            seen += await until(events, "run.completed")

    types = [event.type for event in seen]
    assert code == 0
    assert text_of(seen[types.index("reset") :]) == "a whole answer"
    assert [message["content"] for message in await server.history(session)] == ["tell", "a whole answer"]


async def test_a_stopped_server_cuts_its_streams_at_once_and_they_go_on_at_another(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="told in the time it takes", pieces=6, delay_seconds=0.5))
    session = await server.new_session()
    async with run_worker(folder, settings), run_service(folder, settings, "--no-worker") as other:
        async with sending(server.client, session, "tell") as events:
            seen = await until(events, "message.delta")
            stopping = asyncio.create_task(server.terminate())
            seen += await until_cut(events)
        code = await stopping
        run = str(seen[0].data["run"]["id"])  # type: ignore[index]  # JSON
        async with following(other.client, run, seen[-1].id) as events:
            seen += await until(events, "run.completed")

    assert code == 0
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert text_of(seen) == "told in the time it takes"


@pytest.mark.parametrize("program", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
async def test_a_program_that_waits_while_it_starts_is_stopped_too(
    folder: Path, settings: Mapping[str, str], program: tuple[str, ...]
) -> None:
    log = folder / "program.log"
    waiting = f"select 1 from {BACKENDS} where application_name = 'throughline migration' offset 1"
    async with migration_lock(direct_url(settings)), asyncio.timeout(HANG_SECONDS):
        process = await start_program(folder, settings, *program, log=log)
        await until_sql(direct_url(settings), waiting)
        process.send_signal(signal.SIGTERM)
        code = await process.wait()

    assert code == 0
    assert "Traceback" not in log.read_text()
