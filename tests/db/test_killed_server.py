"""What a step of a turn has stored is there when PostgreSQL was killed the moment after."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fakes.conversations import open_conversation, user_message
from fakes.data_dir_template import copy_data_dir
from fakes.memory_folder import memory_folder
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.run import USER_STEP
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer
from throughline.postgres_server.process import find_server

pytestmark = pytest.mark.slow


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "data"


def kill_at_once(data_dir: Path) -> None:
    """Kill all of the server's processes, none of which gets to write what it still holds."""
    server = find_server(data_dir / "postgres" / "cluster")
    assert server is not None
    processes = [server, *server.children(recursive=True)]
    for process in processes:
        process.suspend()
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=10)


@pytest.mark.parametrize("step", [USER_STEP, "assistant:0", "tool:0:0"])
async def test_a_stored_step_survives_a_killed_server(data_dir: Path, step: str) -> None:
    await copy_data_dir(data_dir)
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    database = await Database.open(DatabaseConfig(url=server.url))
    conversation = await open_conversation(database)
    claimed = await conversation.start()

    await database.messages.append_message(claimed.lease, step, user_message("Hello"))
    kill_at_once(data_dir)
    await database.close()

    again = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    assert await run_sql(again.url, "select step, content from messages") == [(step, "Hello")]
    await again.stop()
    await server.stop()  # gives back its share too: with one left the server would run on in a folder that is removed
    assert find_server(data_dir / "postgres" / "cluster") is None
