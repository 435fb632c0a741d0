"""What a program may give the way in, and that nothing else of its surroundings is read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.pooler import environment_of, urls_of
from fakes.raw_sql import run_sql
from throughline.client import (
    Client,
    DatabaseUnavailable,
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    Limits,
    NotFound,
    QueueFull,
    RunStatus,
    SessionBusy,
    SettingInvalid,
    TemporaryError,
    connect,
)
from throughline.domain.basic_types import JsonValue

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
