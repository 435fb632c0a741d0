"""What a command does on a database beside its own work: nothing for others where others serve it, else all of it."""

from pathlib import Path

import pytest
from sqlalchemy import make_url

from fakes.conversations import open_conversation
from fakes.data_dir_template import copy_data_dir
from fakes.pooler import environment_of
from fakes.raw_sql import run_sql
from fakes.service_process import run_command
from throughline.db.connection.migrations import status
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.run import Run
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

pytestmark = pytest.mark.slow


async def turn_of_a_stranger(database: Database) -> Run:
    """Put a turn in line that some other process is to take, which knows the agent."""
    conversation = await open_conversation(database, owner="stranger")
    return (await conversation.submit("for others")).run


async def outcome(database: Database, run: Run) -> tuple[str, int]:
    found = await database.runs.get_run(run.owner_id, run.id)
    return found.status.value, found.attempt


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [(("sessions", "list"), ""), (("agents",), ""), (("chat",), "What is 2 + 3?\n")],
    ids=["looks", "knows agents", "chats"],
)
async def test_on_the_server_of_others_a_command_leaves_their_turns_and_jobs_alone(
    folder: Path, database: Database, database_url: str, arguments: tuple[str, ...], typed: str
) -> None:
    waiting = await turn_of_a_stranger(database)

    code, told, complained = await run_command(folder, environment_of(database_url), *arguments, typed=typed)

    assert code == 0, complained
    assert await outcome(database, waiting) == ("queued", 0)
    assert await run_sql(database_url, "select count(*) from job_schedules") == [(0,)]
    if typed:
        assert "5" in told


@pytest.mark.parametrize(
    "arguments", [("sessions", "list"), ("keys", "list"), ("slack", "link", "--user", "anna"), ("chat",)]
)
async def test_on_the_server_of_others_a_command_leaves_the_schema_and_names_the_upgrade(
    folder: Path, empty_database_url: str, arguments: tuple[str, ...]
) -> None:
    code, _, complained = await run_command(folder, environment_of(empty_database_url), *arguments)

    assert code == 1
    assert "no schema" in complained
    assert "throughline db upgrade" in complained
    assert (await status(empty_database_url)).current is None


async def test_a_chat_on_an_embedded_server_that_nobody_serves_answers_what_waits_there(folder: Path) -> None:
    data = folder / "data"
    await copy_data_dir(data)
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=data))
    try:
        database = await Database.open(DatabaseConfig(url=server.url))
        waiting = await turn_of_a_stranger(database)

        code, _, complained = await run_command(folder, {}, "chat", "--data-dir", str(data), typed="What is 2 + 3?\n")

        assert code == 0, complained
        assert await outcome(database, waiting) == ("succeeded", 1)
        await database.close()
    finally:
        await server.stop()


async def test_status_makes_no_database_and_says_which_one_it_looked_for(folder: Path) -> None:
    code, told, complained = await run_command(folder, {}, "status", "--data-dir", str(folder / "data"))

    assert (code, told) == (1, "")
    assert f"no embedded database in {folder / 'data'}" in complained
    assert "DATABASE_URL" in complained
    assert not (folder / "data").exists()


async def test_status_says_which_database_it_read_without_its_password(folder: Path, database_url: str) -> None:
    address = make_url(database_url)

    code, told, complained = await run_command(folder, environment_of(database_url), "status")

    assert code == 0, complained
    assert told.startswith(f"Database: {address.database} at ")
    assert address.password is None or address.password not in told
