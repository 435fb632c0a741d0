"""A worker answers for its health and its metrics, and ends where it can take no more turns."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.event_log import following, sending, text_of, until, until_cut
from fakes.pooler import direct_url, environment_of
from fakes.programs import ROOT, Program
from fakes.provider_double import Failure, ProviderDouble, ScriptStep
from fakes.raw_sql import BACKENDS, run_sql, until_sql
from fakes.service_process import ServiceProcess, free_port, run_service, run_worker, start_program
from fakes.waiting import HANG_SECONDS, until_found
from throughline.db.connection.migrations import locked_connection as migration_lock

pytestmark = pytest.mark.slow
HANG = ScriptStep(text="half an answer and more", failure=Failure.HANG_IN_ANSWER)
EVERY = {"database": True, "schema": True, "listener": True, "worker": True, "jobs": True}


def client_of(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_SECONDS)


async def is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/health/ready")).is_success


async def post(server: ServiceProcess, session: str) -> None:
    answer = await server.client.post(
        f"/v1/sessions/{session}/messages", json={"content": "hello"}, headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202, answer.text


async def test_a_worker_tells_its_health_and_the_metrics_of_its_turns_and_nothing_else(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="here"))
    port = free_port()
    async with run_worker(folder, settings, "--health-port", str(port)), client_of(port) as client:
        live = await client.get("/health/live")
        await until_found(lambda: is_ready(client))
        ready = await client.get("/health/ready")
        await server.send(await server.new_session(), "anybody there?")
        metrics = (await client.get("/metrics")).text
        others = [(await client.get(path)).status_code for path in ("/v1/sessions", "/openapi.json", "/docs")]

    assert live.json()["status"] == "ok"
    assert ready.json()["checks"] == EVERY
    assert 'throughline_turns_total{agent="assistant",status="succeeded"} 1.0' in metrics
    assert "throughline_turns_total{" not in (await server.client.get("/metrics")).text
    assert others == [404, 404, 404]


async def test_the_image_finds_a_worker_and_a_server_ready_by_one_check(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    check = json.loads(
        (ROOT / "Dockerfile").read_text().partition("HEALTHCHECK")[2].partition("CMD ")[2].split("\n")[0]
    )
    port, nowhere = free_port(), free_port()

    async def outcome(ports: Mapping[str, str]) -> int:
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **ports}
        quiet = asyncio.subprocess.DEVNULL
        return await (await asyncio.create_subprocess_exec(*check, env=environment, stderr=quiet)).wait()

    async with run_worker(folder, {**settings, "HEALTH_PORT": str(port)}), client_of(port) as client:
        await until_found(lambda: is_ready(client))
        worker = await outcome({"PORT": str(nowhere), "HEALTH_PORT": str(port)})
    gone = await outcome({"PORT": str(nowhere), "HEALTH_PORT": str(port)})
    serve = await outcome({"PORT": server.url.rpartition(":")[2], "HEALTH_PORT": str(port)})

    assert (worker, gone, serve) == (0, 1, 0)


async def test_a_worker_that_drains_is_live_and_not_ready(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG)
    port = free_port()
    grace = {"SHUTDOWN_GRACE_SECONDS": "600", **settings}
    async with run_worker(folder, grace, "--health-port", str(port)) as worker, client_of(port) as client:
        await post(server, await server.new_session())
        await until_found(lambda: asyncio.sleep(0, provider_double.requests))
        worker.terminate()

        async def is_unready() -> bool:
            return not await is_ready(client)

        await until_found(is_unready)
        live = await client.get("/health/live")
        ready = await client.get("/health/ready")

    assert live.status_code == 200
    assert (ready.status_code, ready.json()["checks"]["worker"]) == (503, False)


async def test_a_worker_without_the_setting_listens_nowhere_and_a_port_in_use_is_told(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    taken = server.url.rsplit(":", 1)[1]
    log = folder / "refused.log"
    refused = await start_program(folder, settings, "worker", "--health-port", taken, log=log)

    assert await refused.wait() == 1
    assert "Choose another with HOST and --health-port." in " ".join(log.read_text().split())


@pytest.mark.parametrize("arguments", [("worker",), ("serve", "--port", "0")])
async def test_a_process_whose_claim_loop_broke_ends_with_an_error(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, arguments: tuple[str, ...]
) -> None:
    log = folder / "breaking.log"
    broken = await start_program(folder, settings, *arguments, log=log, module="fakes.breaking_worker")

    await post(server, await server.new_session())
    async with asyncio.timeout(HANG_SECONDS):
        code = await broken.wait()

    assert code == 1
    assert "claim loop crashed" in log.read_text()
    assert "RuntimeError" in log.read_text()


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
    waiting = f"select 1 from {BACKENDS} where application_name = 'throughline migration' offset 3"
    await run_sql(direct_url(settings), "update alembic_version set version_num = '0047'")
    async with migration_lock(direct_url(settings)), asyncio.timeout(HANG_SECONDS):
        process = await start_program(folder, settings, *program, log=log)
        await until_sql(direct_url(settings), waiting)
        process.send_signal(signal.SIGTERM)
        code = await process.wait()

    assert code == 0
    assert "Traceback" not in log.read_text()


async def checks_of(server: ServiceProcess) -> dict[str, bool]:
    return dict((await server.client.get("/health/ready")).json()["checks"])


async def until_checks(server: ServiceProcess, wanted: Mapping[str, bool]) -> int:
    async with asyncio.timeout(HANG_SECONDS):
        while await checks_of(server) != wanted:
            await asyncio.sleep(0.05)
    return (await server.client.get("/health/ready")).status_code


async def test_a_server_with_a_worker_checks_all_it_consists_of(folder: Path, settings: Mapping[str, str]) -> None:
    async with run_service(folder, settings) as server:
        every = {"database": True, "schema": True, "listener": True, "worker": True, "jobs": True}
        assert await until_checks(server, every) == 200

        await run_sql(direct_url(settings), "update alembic_version set version_num = '0018'")
        behind = await server.client.get("/health/ready")
        await run_sql(direct_url(settings), "drop table alembic_version")
        without = await server.client.get("/health/ready")

    assert (behind.status_code, behind.json()["checks"]["database"]) == (503, False)
    assert (without.status_code, without.json()["checks"]["database"]) == (503, False)


async def test_a_server_whose_schema_is_upgraded_beyond_it_stays_ready_and_works(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="still here"))
    async with run_service(folder, settings) as server:
        await run_sql(direct_url(settings), "update alembic_version set version_num = '9999'")
        ready = await server.client.get("/health/ready")
        answer = await server.send(await server.new_session(), "anybody there?")

    assert (ready.status_code, ready.json()["status"], ready.json()["checks"]["schema"]) == (200, "degraded", False)
    assert answer.json()["message"]["content"] == "still here"


async def test_a_server_without_a_worker_is_ready_and_says_whether_any_process_takes_turns(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    assert await until_checks(server, {"database": True, "schema": True, "listener": True, "workers": False}) == 200
    alone = (await server.client.get("/health/ready")).json()["status"]

    async with run_worker(folder, settings):
        assert await until_checks(server, {"database": True, "schema": True, "listener": True, "workers": True}) == 200
        together = (await server.client.get("/health/ready")).json()["status"]

    assert (alone, together) == ("degraded", "ok")


async def noted(url: str) -> dict[object, list[object]]:
    """Return of each process id of the operating system, which is part of the name, what was noted."""
    rows = await run_sql(url, "select split_part(name, ':', 2)::integer, kind, concurrency, is_claiming from processes")
    return {pid: rest for pid, *rest in rows}


async def test_idle_processes_are_known_and_one_that_ended_is_not(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    url = settings["DATABASE_URL"]

    async def takes_turns(worker: Program) -> bool:
        return (await noted(url)).get(worker.pid) == ["worker", 3, True]

    async with (
        run_worker(folder, settings, "--concurrency", "3", name="first") as first,
        run_worker(folder, settings, "--concurrency", "3", name="second") as second,
    ):
        await until_found(lambda: takes_turns(first))
        await until_found(lambda: takes_turns(second))
        both = await noted(url)
        first.terminate()
        ended = await first.wait()
        one_ended = await noted(url)
        second.kill()
        await second.wait()
    killed = await noted(url)

    assert ended == 0
    assert both[server.process.pid] == ["serve", 0, False]
    assert set(both) == {server.process.pid, first.pid, second.pid}
    assert set(one_ended) == set(killed) == {server.process.pid, second.pid}


TOOLS = ("swallow_cancellation", "block_for_ever", "interrupt", "leave", "close_generator", "raise_own")
STOP_SECONDS = 60.0
"""Generous: the grace is a second, and a tool that held the process would hold it for an hour."""


def environment(folder: Path, database_url: str) -> dict[str, str]:
    agents = folder / "agents"
    agents.mkdir()
    named = ", ".join(f"'fakes.hostile_tools:{name}'" for name in TOOLS)
    (agents / "careless.yaml").write_text(f"name: careless\nmodel: offline\ntools: [{named}]\n")
    return {
        "AGENTS_DIR": str(agents),
        **environment_of(database_url),
        "SHUTDOWN_GRACE_SECONDS": "1",
        "TOOL_TIMEOUT_SECONDS": "3600",
        "TURN_TIMEOUT_SECONDS": "7200",
    }


@pytest.mark.parametrize("tool", ["swallow_cancellation", "block_for_ever"])
async def test_a_service_ends_within_its_grace_whatever_a_tool_does(folder: Path, database_url: str, tool: str) -> None:
    async with run_service(folder, environment(folder, database_url)) as service:
        await call(service, tool)
        alive = await service.client.get("/health/live")
        service.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            code = await service.process.wait()

    assert alive.is_success
    assert code == 0


async def test_no_exception_of_a_tool_ends_the_service(folder: Path, database_url: str) -> None:
    async with run_service(folder, environment(folder, database_url)) as service:
        answers = []
        for tool in ("interrupt", "leave", "close_generator", "raise_own"):
            answer = await service.send(await service.new_session("careless"), f"/call {tool}")
            answers.append((answer.status_code, answer.json()["run"]["status"]))
        code = await service.terminate()

    assert answers == [(200, "succeeded")] * 4
    assert code == 0


async def call(service: ServiceProcess, tool: str) -> None:
    """Have an agent call the tool; returns once its call is stored."""
    session = await service.new_session("careless")
    await service.send(session, f"/call {tool}", Prefer="respond-async")
    while len(await service.history(session)) < 2:  # the message, and the step with the call
        await asyncio.sleep(0.02)
