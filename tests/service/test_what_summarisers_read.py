"""Seen from the provider's side: the cursor of a session never passes a message that no summariser has read."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from benchmarks.replay_check import Json, find_unread, is_read
from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptStep
from fakes.raw_sql import end_leases
from fakes.service_process import ServiceProcess, run_service
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
NAMES = ("alder", "birch", "cedar")
RECENT = 2
AGENT = """\
name: {name}
system_prompt: You answer.
context:
  window: 2000
  max_messages_before_summary: {messages}
  min_recent_messages: {recent}
  summarize_chunk_size: 2
  summary: {{max_tokens: 200, timeout_seconds: 60, instructions: "Keep the {name}s."}}
"""
MANY_WORDS = "and another word " * 260
"""More than is left of the window beside ten messages of some words."""


@pytest.fixture
def settings(folder: Path, on_double: Mapping[str, str]) -> Mapping[str, str]:
    """One database, and for each name an agent whose summaries tell by their wishes whose they are."""
    (folder / "agents").mkdir()
    for name in NAMES:
        write_agent(folder, name, messages=4)
    return {**on_double, "AGENTS_DIR": str(folder / "agents")}


def write_agent(folder: Path, name: str, *, messages: int) -> None:
    (folder / "agents" / f"{name}.yaml").write_text(AGENT.format(name=name, messages=messages, recent=RECENT))


def summaries_of(name: str, double: ProviderDouble) -> list[Json]:
    """Return the summarisers' requests of the one session of agent `name`."""
    asked = (record for record in list(double.requests) if record.is_summary)
    return [record.as_json() for record in asked if f"Keep the {name}s." in str(record.prompt)]


async def judged_cursor(service: ServiceProcess, session: str, name: str, double: ProviderDouble) -> int:
    """Return where the cursor stands; everything behind it must have been read before."""
    answer = (await service.client.get(f"/v1/sessions/{session}")).raise_for_status()
    cursor = int(answer.json()["summarized_count"])
    assert find_unread(cursor, summaries_of(name, double)) == [], f"unread behind the cursor of {name} at {cursor}"
    return cursor


async def summarize(service: ServiceProcess, session: str) -> str:
    """Ask for a summary; return how that ended, or that another one is being written."""
    answer = await service.client.post(f"/v1/sessions/{session}/summarize")
    if answer.status_code == httpx.codes.CONFLICT:
        return "in progress"
    return str(answer.raise_for_status().json()["outcome"])


async def until_summarised(service: ServiceProcess, session: str, name: str, double: ProviderDouble) -> int:
    """Ask until only the newest messages are left; return the cursor."""
    count = len(await service.history(session))
    async with asyncio.timeout(HANG_SECONDS):
        while (cursor := await judged_cursor(service, session, name, double)) < count - RECENT:
            await summarize(service, session)
            await asyncio.sleep(0.05)
    return cursor


async def talk(services: Sequence[ServiceProcess], session: str, name: str, double: ProviderDouble) -> None:
    """Send a few turns, each to the next of the services, and look at the cursor after each."""
    for number in range(6):
        service = services[number % len(services)]
        (await service.send(session, f"{name} {number} " + "and another word " * 15)).raise_for_status()
        await judged_cursor(service, session, name, double)


async def summarize_during(
    talks: Sequence["asyncio.Task[None]"], services: Sequence[ServiceProcess], session: str
) -> set[str]:
    """Ask for summaries at each of the services while others talk; return how they ended."""
    outcomes = set()
    while not all(task.done() for task in talks):
        for service in services:
            outcomes.add(await summarize(service, session))
    return outcomes


async def test_one_worker_moves_the_cursor_over_what_was_read_and_no_further(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, settings) as service:
        session = await service.new_session("alder")
        await talk([service], session, "alder", provider_double)
        cursor = await until_summarised(service, session, "alder", provider_double)

    assert cursor >= 12 - RECENT


@pytest.mark.unpooled("two ways to summarise race, and each statement's further round trips let one of them win")
async def test_two_workers_that_summarise_the_same_sessions_at_once_leave_nothing_unread(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, settings) as one, run_service(folder, settings) as two:
        sessions = {name: await one.new_session(name) for name in NAMES}
        async with asyncio.TaskGroup() as group:
            asking = []
            for name, session in sessions.items():
                orders = [(one, two), (two, one)]
                talks = [group.create_task(talk(order, session, name, provider_double)) for order in orders]
                asking.append(group.create_task(summarize_during(talks, (one, two), session)))
        cursors = [await until_summarised(two, sessions[name], name, provider_double) for name in NAMES]
        logs = one.log.read_text() + two.log.read_text()

    assert min(cursors) >= 24 - RECENT
    assert "adopted" in set.union(*(task.result() for task in asking)), "no summary on demand was used"
    assert "summary prepared" in logs, "no summary was written ahead"


async def test_a_kill_between_two_segments_leaves_nothing_unread_and_nothing_paid_twice(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    write_agent(folder, "alder", messages=1000)
    provider_double.script(
        ScriptStep(text="## State\nThe first exchange was about stones [#1-#2]."),
        ScriptStep(failure=Failure.HANG),
        line=SUMMARISER,
        then_default=True,
    )
    async with run_service(folder, settings) as service:
        session = await imported(service, "alder", exchanges=5)
        sending = asyncio.create_task(service.send(session, MANY_WORDS))
        async with asyncio.timeout(HANG_SECONDS):
            while len(summaries_of("alder", provider_double)) < 2:
                assert not sending.done(), "the turn did not need a summary"
                await asyncio.sleep(0.02)
        await service.kill()
        await asyncio.gather(sending, return_exceptions=True)
    await end_leases(database_url)

    async with run_service(folder, settings) as service:
        async with asyncio.timeout(HANG_SECONDS):
            while len(await service.history(session)) < 12:
                await asyncio.sleep(0.05)
        cursor = await judged_cursor(service, session, "alder", provider_double)

    first, held, *later = summaries_of("alder", provider_double)
    assert cursor >= max(held["positions"])
    assert (is_read(first), is_read(held)) == (True, False)
    assert not [record for record in later if set(record["positions"]) & set(first["positions"])]
    assert [record for record in later if set(held["positions"]) <= set(record["positions"])]


async def imported(service: ServiceProcess, agent: str, *, exchanges: int) -> str:
    """Return a new session in which so much was said elsewhere."""
    said = [
        {"role": role, "content": f"{role} {number} " + "and another word " * 30}
        for number in range(exchanges)
        for role in ("user", "assistant")
    ]
    answer = await service.client.post("/v1/sessions/import", json={"agent": agent, "messages": said})
    return str(answer.raise_for_status().json()["id"])
