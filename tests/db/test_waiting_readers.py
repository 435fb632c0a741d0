"""Readers that wait cost the database nothing each, and what no notification told still reaches them."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from fakes.conversations import Conversation
from fakes.database_wire import database_wire
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs import followed_runs
from throughline.domain.errors import NotFound
from throughline.domain.events import RunEvent
from throughline.domain.run import ClaimedRun
from throughline.turn.follow_run import Followed, Following, Idle

READERS = 12
TIMEOUT_SECONDS = 60.0
ROW = """
    insert into run_events (run_id, seq, type, data)
    values ('{run}', {seq}, '{type}', '{{"text": "x", "message_id": "00000000-0000-0000-0000-000000000004"}}')
"""


class Reader:
    """Reads a run to its end and keeps what it is told."""

    def __init__(self, followed: AsyncIterator[Followed]) -> None:
        self.events: list[RunEvent] = []
        self.idle: list[Idle] = []
        self.reading = asyncio.create_task(self._read(followed))

    async def _read(self, followed: AsyncIterator[Followed]) -> None:
        async for item in followed:
            if isinstance(item, Idle):
                self.idle.append(item)
            else:
                self.events.extend(item)

    async def until_idle(self, times: int) -> None:
        wanted = len(self.idle) + times
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.idle) < wanted:
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _looks_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_runs, "LISTENING_SECONDS", 0.2)


@pytest.fixture
async def claimed(conversation: Conversation) -> ClaimedRun:
    return await conversation.start()


def follow(database: Database, claimed: ClaimedRun, *, heartbeat_seconds: float = 0.05) -> Reader:
    return Reader(
        Following(database.followed_runs, time.monotonic, heartbeat_seconds=heartbeat_seconds).events(claimed.run)
    )


async def test_the_number_of_waiting_readers_does_not_show_in_what_is_executed(
    claimed: ClaimedRun, database_url: str
) -> None:
    async with database_wire(database_url) as wire:
        database = await Database.open(DatabaseConfig(url=wire.url))
        readers = [follow(database, claimed) for _ in range(READERS)]
        await asyncio.gather(*(reader.until_idle(1) for reader in readers))

        wire.clear()
        while not wire.statements:
            await asyncio.gather(*(reader.until_idle(5) for reader in readers))

        for reader in readers:
            reader.reading.cancel()
        assert all("from unnest" in statement for statement in wire.statements), set(wire.statements)
        await database.close()


async def test_how_often_a_worker_is_looked_for_does_not_depend_on_the_number_of_readers(
    database_url: str,
) -> None:
    async with database_wire(database_url) as wire:
        database = await Database.open(DatabaseConfig(url=wire.url))
        wire.clear()

        answers = await asyncio.gather(*(database.followed_runs.has_running_worker() for _ in range(READERS)))

        assert answers == [False] * READERS
        assert sum("is_worked_on" in statement for statement in wire.statements) == 1
        await database.close()


@pytest.mark.listening("it waits for the listener")
async def test_events_that_nobody_told_of_are_found_while_the_process_listens(
    database: Database, claimed: ClaimedRun, database_url: str
) -> None:
    reader = follow(database, claimed, heartbeat_seconds=TIMEOUT_SECONDS)
    await run_sql(database_url, ROW.format(run=claimed.run.id, seq=1, type="message.delta"))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not reader.events:
            await asyncio.sleep(0.01)
        await run_sql(database_url, ROW.format(run=claimed.run.id, seq=2, type="run.completed"))
        await reader.reading

    assert database.notifier.is_listening
    assert [found.is_last for found in reader.events] == [False, True]


async def test_a_status_that_nobody_told_of_is_found(
    database: Database, claimed: ClaimedRun, database_url: str
) -> None:
    reader = follow(database, claimed)
    await reader.until_idle(1)
    await run_sql(database_url, "update runs set status = 'queued', lease_until = null")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        while reader.idle[-1].run.status.value != "queued":
            await asyncio.sleep(0.01)

    assert not reader.reading.done()
    reader.reading.cancel()


async def test_readers_of_a_run_that_vanished_are_let_go(
    database: Database, claimed: ClaimedRun, database_url: str
) -> None:
    reader = follow(database, claimed, heartbeat_seconds=TIMEOUT_SECONDS)
    await run_sql(database_url, "delete from runs")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(NotFound):
            await reader.reading
