"""What a program may give the way in, and that nothing else of its surroundings is read."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import throughline
import throughline.client
import throughline.tools
from fakes.pooler import environment_of, urls_of
from fakes.raw_sql import run_sql
from fakes.run_folder import memory_folder
from fakes.service_process import RunScript
from fakes.shared_server import copy_data_dir
from fakes.waiting import HANG_SECONDS, until
from throughline.client import (
    Client,
    DatabaseUnavailable,
    DatabaseUnusable,
    EventType,
    IdempotencyKeyReused,
    InvalidInput,
    Limits,
    NotFound,
    QueueFull,
    RunEvent,
    RunStatus,
    SessionBusy,
    SettingInvalid,
    TemporaryError,
    connect,
)
from throughline.domain.basic_types import JsonValue
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

NO_SERVER = "postgresql://nobody:nothing@127.0.0.1:1/nowhere"


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[Client]:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna", pool_size=1) as opened:
        yield opened


async def test_an_id_as_text_means_the_same_as_the_id(client: Client) -> None:
    session = await client.new_session()
    run = await client.submit(session.id, "hi", idempotency_key="k")
    again = [
        await client.submit(text, "hi", idempotency_key="k")
        for text in (str(session.id), str(session.id).upper(), session.id.hex)
    ]

    assert {one.id for one in again} == {run.id}
    assert await client.get_session(str(session.id)) == await client.get_session(session.id)
    assert (await client.get_run(str(run.id))).id == run.id
    assert (await client.cancel(str(run.id))).status is RunStatus.CANCELLED
    assert (await client.wait(str(run.id))).run.id == run.id
    assert [event.run_id async for event in client.events(str(run.id))] == [run.id]
    assert [message.content async for message in client.history(str(session.id))] == ["hi"]


@pytest.mark.parametrize("given", ["", "today", "x" * 10_000, " 0198"])
async def test_what_is_no_id_is_refused_with_what_was_given(client: Client, given: str) -> None:
    for reach in (client.get_session(given), client.submit(given, "hi")):
        with pytest.raises(InvalidInput, match=f"session_id is '{given[:40]}") as refused:
            await reach
        assert len(refused.value.detail) < 300
    for follow in (client.get_run(given), client.cancel(given), client.wait(given)):
        with pytest.raises(InvalidInput, match="run_id is"):
            await follow


async def test_what_to_do_in_a_busy_session_may_be_said_in_words(client: Client) -> None:
    session = await client.new_session()
    first = await client.submit(session.id, "one")

    with pytest.raises(SessionBusy):
        await client.submit(session.id, "two", on_busy="reject")
    with pytest.raises(InvalidInput, match=r"on_busy is 'Interrupt'.*'enqueue', 'reject', 'interrupt'"):
        await client.submit(session.id, "two", on_busy="Interrupt")
    second = await client.submit(session.id, "two", on_busy="enqueue")

    assert [(await client.get_run(one.id)).status for one in (first, second)] == [RunStatus.QUEUED] * 2


async def test_text_interrupts_as_the_value_does(client: Client, database_url: str) -> None:
    session = await client.new_session()
    first = await client.submit(session.id, "one")
    run = "status = 'running', worker = 'elsewhere', lease_until = now() + interval '1 minute', fence = 1"
    await run_sql(database_url, f"update runs set {run}")

    await client.submit(session.id, "two", on_busy="interrupt")

    assert (await client.get_run(first.id)).cancel_requested


async def test_one_connection_is_enough_for_many_users(client: Client) -> None:
    users = [await client.acting_as(f"user-{number}") for number in range(20)]
    sessions = [await user.new_session(title="for the batch") for user in users]
    again = await client.acting_as("user-7")

    assert [one.id async for one in again.sessions()] == [sessions[7].id]
    with pytest.raises(NotFound):
        await client.get_session(sessions[7].id)
    with pytest.raises(InvalidInput, match="name"):
        await client.acting_as("")


async def test_sessions_are_listed_the_last_used_first_and_past_a_page(client: Client) -> None:
    made = [(await client.new_session(title=f"Night {number}")).id for number in range(203)]
    other = await client.new_session("researcher", title="100 % of it")

    assert [one.id async for one in client.sessions()] == [other.id, *reversed(made)]
    assert [one.id async for one in client.sessions(agent="researcher")] == [other.id]
    assert [one.id async for one in client.sessions(title="night 20")] == [made[202], made[201], made[200], made[20]]


async def test_a_session_keeps_what_its_program_knows_it_by(client: Client) -> None:
    mark: dict[str, JsonValue] = {"job": "digest", "days": [1, 5], "more": {"is": None}}
    made = await client.new_session(metadata=mark, idempotency_key="k")
    again = await client.new_session(metadata={name: mark[name] for name in sorted(mark)}, idempotency_key="k")

    assert again == made
    assert [one.metadata async for one in client.sessions()] == [mark]
    with pytest.raises(IdempotencyKeyReused):
        await client.new_session(metadata={"job": "another"}, idempotency_key="k")
    for unfit in ({"at": made.created_at}, {"share": float("nan")}):
        with pytest.raises(InvalidInput, match="metadata"):
            await client.new_session(metadata=unfit)  # type: ignore[arg-type]  # one is no JSON


async def test_a_session_is_branched_at_a_position_of_its_own(client: Client) -> None:
    session = await client.new_session(title="Nights")

    made = await client.branch_session(str(session.id), 0, title="Again", idempotency_key="k")
    again = await client.branch_session(session.id, 0, title="Again", idempotency_key="k")
    untitled = await client.branch_session(session.id, 0)

    assert (made.title, again, untitled.title) == ("Again", made, "Nights")
    assert made.metadata == {"branched_from": str(session.id)}
    with pytest.raises(InvalidInput, match="at most 0"):
        await client.branch_session(session.id, 1)
    with pytest.raises(InvalidInput, match="at is"):
        await client.branch_session(session.id, -1)
    with pytest.raises(NotFound):
        await (await client.acting_as("berta")).branch_session(session.id, 0)


async def test_an_archived_session_takes_messages_once_it_is_unarchived(client: Client, database_url: str) -> None:
    session = await client.new_session()
    await run_sql(database_url, "update sessions set archived = true")
    with pytest.raises(InvalidInput, match="archived"):
        await client.submit(session.id, "hi")

    assert not (await client.unarchive_session(str(session.id))).archived

    await client.submit(session.id, "hi")
    with pytest.raises(NotFound):
        await (await client.acting_as("berta")).unarchive_session(session.id)


async def test_settings_of_others_are_not_read(
    database_url: str, folder_with_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LOG_LEVEL": "info", "PORT": "tcp://10.0.0.7:80", "MAX_QUEUED_PER_SESSION": "1"}.items():
        monkeypatch.setenv(name, value)
    urls = urls_of(database_url)
    monkeypatch.chdir(folder_with_settings)
    monkeypatch.setenv("DATABASE_URL", NO_SERVER)

    async with connect(urls["url"], direct_url=urls["direct_url"]) as client:
        session = await client.new_session()
        runs = [await client.submit(session.id, text) for text in ("one", "two", "three")]

    assert {run.status for run in runs} == {RunStatus.QUEUED}


async def test_the_environment_alone_names_the_database(
    database_url: str, folder_with_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder_with_settings)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(SettingInvalid, match=r"DATABASE_URL.*throughline db address"):
        await connect().__aenter__()

    for name, value in environment_of(database_url).items():
        monkeypatch.setenv(name, value)
    async with connect() as client:
        assert (await client.new_session()).agent == "assistant"


@pytest.fixture
def folder_with_settings(tmp_path: Path) -> Path:
    """Somebody else's project, with a `.env` of its own."""
    (tmp_path / ".env").write_text(f"DATABASE_URL={NO_SERVER}\nLOG_LEVEL=info\n")
    return tmp_path


async def test_the_caps_are_those_that_are_given(database_url: str) -> None:
    urls = urls_of(database_url)
    limits = Limits(max_queued_per_session=1, max_queued_per_owner=2)
    async with connect(urls["url"], direct_url=urls["direct_url"], limits=limits) as client:
        first, second = await client.new_session(), await client.new_session()
        await client.submit(first.id, "one")
        with pytest.raises(QueueFull) as of_session:
            await client.submit(first.id, "two")
        await client.submit(second.id, "one")
        with pytest.raises(QueueFull) as of_owner:
            await client.submit((await client.new_session()).id, "one")

    assert (of_session.value.cap, of_owner.value.cap) == ("max_queued_per_session", "max_queued_per_owner")


@pytest.mark.parametrize("limits", [{"max_queued_per_session": 0}, {"no_worker_timeout_seconds": float("nan")}])
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(limits))} is"):
        Limits(**limits)  # type: ignore[arg-type]  # one of them is a number of seconds


async def test_a_client_behind_its_block_says_that_it_is_closed(database_url: str) -> None:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"]) as client:
        session = await client.new_session()
        run = await client.submit(session.id, "hi")

    for reach in (
        client.new_session(),
        client.submit(session.id, "hi"),
        client.wait(run.id),
        client.acting_as("berta"),
    ):
        with pytest.raises(DatabaseUnusable, match=r"are closed.*`connect`") as told:
            await reach
        assert not isinstance(told.value, TemporaryError)
    for read in (client.events(run.id), client.history(session.id), client.sessions()):
        with pytest.raises(DatabaseUnusable, match="closed"):
            await anext(read)


async def test_a_pool_without_connections_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pool_size is 0"):
        await connect(NO_SERVER, pool_size=0).__aenter__()


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(DatabaseUnavailable):
        await connect(NO_SERVER).__aenter__()


PROGRAM = """
import asyncio, structlog
from throughline.client import ThroughlineError, connect

mine, named = structlog.get_logger(), structlog.get_logger("batch", day=14)
{before}
async def main():
    async with connect("postgresql://nobody@127.0.0.1:1/nowhere"):
        pass

for _ in range(2):
    try:
        asyncio.run(main())
    except ThroughlineError:
        pass
{after}
mine.info("mine")
named.debug("named")
structlog.get_logger("throughline.db.pool").info("quiet")
structlog.get_logger("throughline.db.pool").warning("loud", tries=3)
"""
OF_HOST = (
    "structlog.configure(processors=[structlog.processors.JSONRenderer()],"
    " logger_factory=structlog.PrintLoggerFactory())"
)


async def told_by(run: RunScript, folder: Path, program: str) -> tuple[str, str]:
    script = folder / "program.py"
    script.write_text(program)
    code, answers, error_output = await run(folder, {}, script)
    assert code == 0, error_output
    return answers, error_output


@pytest.mark.process
async def test_a_program_that_leaves_structlog_as_it_is_keeps_its_lines(tmp_path: Path, run_alone: RunScript) -> None:
    answers, error_output = await told_by(run_alone, tmp_path, PROGRAM.format(before="", after=""))

    assert [word in answers for word in ("mine", "named", "quiet", "loud")] == [True, True, False, False]
    assert [word in error_output for word in ("mine", "named", "quiet", "loud")] == [False, False, False, True]


@pytest.mark.process
@pytest.mark.parametrize(("before", "after"), [(OF_HOST, ""), ("", OF_HOST)])
async def test_a_program_that_sets_structlog_up_has_its_way(
    tmp_path: Path, run_alone: RunScript, before: str, after: str
) -> None:
    answers, error_output = await told_by(run_alone, tmp_path, PROGRAM.format(before=before, after=after))

    assert answers.splitlines()[-4:] == [
        '{"event": "mine"}',
        '{"day": 14, "event": "named"}',
        '{"event": "quiet"}',
        '{"tries": 3, "event": "loud"}',
    ]
    assert error_output == ""


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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_database_that_stays_away_is_told_in_the_end(server: EmbeddedServer) -> None:
    limits = Limits(database_away_timeout_seconds=0.01)
    async with connect(server.url, limits=limits) as client, asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        await server.stop()
        with pytest.raises(DatabaseUnavailable):
            await client.wait(run.id)
        with pytest.raises(DatabaseUnavailable):
            await anext(client.events(run.id))


LOADED = "import sys, throughline; print(*sorted(name for name in sys.modules if name.startswith('throughline.')))"


def test_each_public_name_is_the_one_of_its_module() -> None:
    assert throughline.connect is throughline.client.connect
    assert throughline.ToolFailed is throughline.tools.ToolFailed
    assert throughline.count_tokens("") == 0
    assert {name: getattr(throughline, name).__module__.split(".")[0] for name in throughline.__all__} == dict.fromkeys(
        throughline.__all__, "throughline"
    )


def test_the_import_alone_loads_no_module() -> None:
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_a_name_that_is_not_public_is_refused_with_those_that_are() -> None:
    unknown = "connecting"
    with pytest.raises(AttributeError, match=r"no attribute 'connecting'; it has Client, .*connect"):
        getattr(throughline, unknown)
    assert set(throughline.__all__) <= set(dir(throughline))
