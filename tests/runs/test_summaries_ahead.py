"""The next summary is written by the worker between turns, so that no turn waits for it; the server sees it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from fakes.event_reader import sending, until
from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.provider_double.script import SUMMARISER
from fakes.service_process import ServiceProcess, run_service, run_worker
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
AGENT = """
name: assistant
context:
  window: 8192
  usage_threshold: 0.3
  target: 0.2
  min_recent_messages: 2
  max_messages_before_summary: 4
"""
SUMMARY = ScriptStep(text="## Intent\nThe user tells of stones, one after the other [#1-#4].", delay_seconds=0.2)


@pytest.fixture
def settings(settings: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """The settings, with an agent that summarises early."""
    (folder / "agents").mkdir()
    (folder / "agents" / "assistant.yaml").write_text(AGENT)
    return {**settings, "AGENTS_DIR": str(folder / "agents")}


@pytest.fixture
async def server(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[ServiceProcess]:
    async with run_service(folder, settings, "--no-worker") as started:
        yield started


async def context_of(server: ServiceProcess, session: str) -> dict[str, object]:
    return dict((await server.client.get(f"/v1/sessions/{session}/context")).json())


async def prepared(server: ServiceProcess, session: str, through_position: int) -> None:
    """Wait until a summary is prepared that reaches so far."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            match (await context_of(server, session))["prepared"]:
                case {"through_position": int(reached)} if reached >= through_position:
                    return
            await asyncio.sleep(0.05)


async def fill(server: ServiceProcess, session: str, turns: int) -> None:
    for number in range(turns):
        answer = await server.send(session, f"stone {number} " + "and another word " * 160)
        assert answer.is_success, answer.text


async def test_a_prepared_summary_is_put_to_use_without_asking_a_model(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(SUMMARY, line=SUMMARISER, then_default=True)
    async with run_worker(folder, settings):
        session = await server.new_session()
        await fill(server, session, 3)
        await prepared(server, session, 4)
        await fill(server, session, 1)
        await prepared(server, session, 6)
        paid = [request for request in provider_double.requests if request.is_summary]
        asked = len(provider_double.requests)

        async with sending(server.client, session, "the last stone " * 180) as events:
            seen = await until(events, "message.delta")
        first = provider_double.requests[asked]

    after = await context_of(server, session)
    assert len(paid) >= 1
    assert not first.is_summary
    assert "context.compaction.finished" in [event.type for event in seen]
    assert after["summary"]["through_position"] >= 4  # type: ignore[index]  # JSON
    assert "one after the other" in str(first.prompt[0])


async def test_a_worker_that_dies_over_a_summary_costs_no_turn_and_another_writes_it(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="too slow", delay_seconds=30), line=SUMMARISER, then_default=True)
    session = await server.new_session()
    async with run_worker(folder, settings) as worker:
        await fill(server, session, 3)
        async with asyncio.timeout(HANG_SECONDS):
            while not any(request.is_summary for request in provider_double.requests):
                await asyncio.sleep(0.05)
        worker.kill()
        await worker.wait()
    async with run_worker(folder, settings, name="another"):
        await fill(server, session, 1)
        history = await server.history(session)
        context = await context_of(server, session)

    assert len(history) == 8
    assert context["summary"] is None
