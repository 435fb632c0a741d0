"""A worker answers for its health and its metrics, and ends where it can take no more turns."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.programs import ROOT
from fakes.provider_double import Failure, ProviderDouble, ScriptStep
from fakes.service_process import ServiceProcess, free_port, run_worker, start_program
from fakes.waiting import HANG_SECONDS, until_found

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
