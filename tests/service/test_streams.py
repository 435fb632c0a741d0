"""No database connection is held while a stream waits."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.service_process import ServiceProcess, run_service

pytestmark = pytest.mark.slow


async def stream_to_end(service: ServiceProcess, number: int) -> str:
    session = await service.new_session()
    headers = {"Accept": "text/event-stream"}
    path = f"/v1/sessions/{session}/messages"
    async with service.client.stream("POST", path, json={"content": f"tell {number}"}, headers=headers) as response:
        lines = [line async for line in response.aiter_lines() if line.startswith("event: ")]
    return lines[-1].removeprefix("event: ")


@pytest.mark.parametrize(("streams", "pause_seconds"), [(16, 0.1), pytest.param(50, 0.25, marks=pytest.mark.proof)])
async def test_many_slow_streams_finish_on_a_pool_of_two_connections(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, streams: int, pause_seconds: float
) -> None:
    slow = ScriptStep(text="a word at a time, slowly, as models do", pieces=8, delay_seconds=pause_seconds)
    provider_double.script(*[slow] * streams)
    settings = {**on_double, "DB_POOL_SIZE": "2", "WORKER_CONCURRENCY": str(streams)}

    async with run_service(folder, settings) as service:
        endings = await asyncio.gather(*(stream_to_end(service, number) for number in range(streams)))
        reachable = await service.client.get("/health/ready")

    assert endings == ["run.completed"] * streams
    assert reachable.is_success
