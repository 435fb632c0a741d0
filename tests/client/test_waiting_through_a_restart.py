"""Whoever waits for a run goes on where the database was stopped and started meanwhile, and gives up in the end."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fakes.data_dir_template import copy_data_dir
from fakes.memory_folder import memory_folder
from fakes.waiting import HANG_SECONDS, until
from throughline.client import Client, DatabaseUnavailable, EventType, Limits, RunEvent, RunStatus, connect
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

pytestmark = pytest.mark.slow
WAITS_ON = "client waiting for database"


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "data"


@pytest.fixture
async def server(data_dir: Path) -> AsyncIterator[EmbeddedServer]:
    await copy_data_dir(data_dir)
    started = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    yield started
    await started.stop()  # once more is nothing


async def test_waiting_and_following_go_on_behind_a_restart(data_dir: Path, server: EmbeddedServer) -> None:
    seen: list[RunEvent] = []

    async def follow(client: Client, run_id: str) -> None:
        seen.extend([event async for event in client.events(run_id)])

    async with connect(server.url) as client, asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        waiting = asyncio.create_task(client.wait(run.id))
        following = asyncio.create_task(follow(client, str(run.id)))
        with capture_logs() as logs:
            await server.stop()
            await until(
                lambda: [line["event"] for line in logs].count(WAITS_ON) > 3 or waiting.done() or following.done()
            )
            assert not waiting.done()
            assert not following.done()
            again = await EmbeddedServer.start(EmbeddedConfig(data_dir))
        try:
            await client.cancel(run.id)
            ended = await waiting
            await following
        finally:
            await again.stop()

    assert ended.run.status is RunStatus.CANCELLED
    assert seen[-1].type is EventType.RUN_CANCELLED


async def test_a_database_that_stays_away_is_told_in_the_end(server: EmbeddedServer) -> None:
    limits = Limits(database_away_timeout_seconds=0.01)
    async with connect(server.url, limits=limits) as client, asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        await server.stop()
        with pytest.raises(DatabaseUnavailable):
            await client.wait(run.id)
        with pytest.raises(DatabaseUnavailable):
            await anext(client.events(run.id))
