"""A service whose tools do what they should not: it goes on answering, and stops when it is told to."""

import asyncio
import signal
from pathlib import Path

import pytest

from fakes.pooler import environment_of
from fakes.service_process import ServiceProcess, run_service

pytestmark = pytest.mark.slow
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
