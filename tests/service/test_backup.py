"""A database that was dumped and restored as docs/operations/backup-and-restore.md says goes on where it stood."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.dump_programs import DumpPrograms, find_dump_programs
from fakes.event_reader import following, sending, until
from fakes.pooler import environment_of
from fakes.provider_double import Failure, ProviderDouble, ScriptStep
from fakes.raw_sql import end_leases, run_sql
from fakes.service_process import ServiceProcess, run_service
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
UNLOGGED = "select relname from pg_class where relpersistence = 'u' and relkind = 'r' order by relname"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a user reads of one session, and of the memories.

    `found` are the positions of the messages with a word. Their order depends on how far the index has caught up.
    """

    history: Sequence[object]
    summaries: Sequence[object]
    found: Sequence[int]
    memories: Sequence[object]


@pytest.fixture
async def programs(database_url: str) -> DumpPrograms:
    found = await find_dump_programs(database_url)
    if found is None:
        pytest.skip("no pg_dump here is as new as the server")
    return found


async def fill(service: ServiceProcess) -> str:
    """Have turns, a summary and a memory; return the session."""
    session = await service.new_session()
    for number in range(6):
        (await service.send(session, f"heron {number} " + "and another word " * 40)).raise_for_status()
    summary = (await service.client.post(f"/v1/sessions/{session}/summarize")).raise_for_status().json()
    assert summary["outcome"] == "adopted", summary
    (await service.client.post("/v1/memories", json={"text": "The cat is called Miso."})).raise_for_status()
    return session


async def read(service: ServiceProcess, session: str) -> Shown:
    async def data(path: str, **parameters: str) -> list[dict[str, Any]]:
        answer = await service.client.get(path, params=parameters)
        return list(answer.raise_for_status().json()["data"])

    return Shown(
        await service.history(session),
        await data(f"/v1/sessions/{session}/summaries"),
        sorted(hit["message"]["position"] for hit in await data("/v1/search", q="heron", limit="50")),
        await data("/v1/memories"),
    )


async def events_of(service: ServiceProcess, run_id: str) -> list[str]:
    """Return the types of a run's events from the first one on."""
    async with following(service.client, run_id) as events:
        return [event.type async for event in events]


async def test_a_restored_database_has_all_a_user_reads_and_takes_the_next_turn(
    folder: Path,
    on_double: Mapping[str, str],
    programs: DumpPrograms,
    database_url: str,
    empty_database_url: str,
) -> None:
    dump = folder / "throughline.dump"
    async with run_service(folder, on_double) as service:
        session = await fill(service)
        before = await read(service, session)
        run = (await service.client.get(f"/v1/sessions/{session}/runs")).json()["data"][0]["id"]
        lived = await events_of(service, run)
        await programs.dump(database_url, dump)
    await programs.restore(dump, empty_database_url)

    async with run_service(folder, {**on_double, **environment_of(empty_database_url)}) as service:
        after = await read(service, session)
        replayed = await events_of(service, run)
        answer = await service.send(session, "And now?")
        history = await service.history(session)

    assert after == before
    assert len(before.history) == 12
    assert list(before.found) == list(range(1, 13))
    assert before.memories
    assert lived[0] != "reset"
    assert (replayed[0], replayed[-1]) == ("reset", "run.completed")
    assert answer.raise_for_status().json()["run"]["status"] == "succeeded"
    assert [message["content"] for message in history][-2] == "And now?"


async def test_a_turn_that_was_under_way_in_the_dump_is_answered_after_the_restore(
    folder: Path,
    on_double: Mapping[str, str],
    provider_double: ProviderDouble,
    programs: DumpPrograms,
    database_url: str,
    empty_database_url: str,
) -> None:
    dump = folder / "throughline.dump"
    provider_double.script(
        ScriptStep(text="half an answer and more", failure=Failure.HANG_IN_ANSWER), ScriptStep(text="The whole answer")
    )
    async with run_service(folder, on_double) as service:
        session = await service.new_session()
        async with sending(service.client, session, "anybody there?") as stream:
            await until(stream, "message.delta")
            await programs.dump(database_url, dump)
    await programs.restore(dump, empty_database_url)
    await end_leases(empty_database_url)

    async with run_service(folder, {**on_double, **environment_of(empty_database_url)}) as service:
        async with asyncio.timeout(HANG_SECONDS):
            while len(history := await service.history(session)) < 2:
                await asyncio.sleep(0.1)

    assert [message["content"] for message in history] == ["anybody there?", "The whole answer"]


async def test_the_page_names_the_tables_that_a_crash_empties(database_url: str) -> None:
    assert await run_sql(database_url, UNLOGGED) == [("processes",), ("run_events",)]
