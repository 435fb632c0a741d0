"""A server that takes messages and a worker that answers them share the database and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url

from fakes.conversations import open_conversation
from fakes.event_log import Seen, following, sending, text_of, until
from fakes.pooler import direct_url, environment_of
from fakes.programs import ROOT
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.provider_double.script import SUMMARISER
from fakes.raw_sql import BACKENDS, end_leases, run_sql, until_sql
from fakes.service_process import RunScript, ServiceProcess, run_command, run_service, run_worker
from fakes.shared_server import copy_data_dir
from fakes.slack_delivery import take
from fakes.slack_double import TEAM
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.migrations import status
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import SessionId
from throughline.domain.keys import NewKey, Scope
from throughline.domain.run import Run
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer
from throughline.slack.store.database import slack_database
from throughline.slack.store.people import SlackId

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "docs" / "examples" / "ask_from_a_script.py"
HANG = ScriptStep(text="half an answer and more", failure=Failure.HANG_IN_ANSWER)
SLOW_HEARTBEATS = {"LEASE_SECONDS": "600"}
"""The next heartbeat would come later than any test waits: what happens before it happens at once."""


async def accept(server: ServiceProcess, session: str, content: str, on_busy: str = "enqueue") -> str:
    """Send a message without waiting; return its run's id."""
    answer = await server.client.post(
        f"/v1/sessions/{session}/messages",
        json={"content": content, "on_busy": on_busy},
        headers={"Prefer": "respond-async"},
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run"]["id"])


async def run_of(server: ServiceProcess, run: str) -> dict[str, object]:
    return dict((await server.client.get(f"/v1/runs/{run}")).json())


async def ended(server: ServiceProcess, run: str) -> dict[str, object]:
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await run_of(server, run))["status"] in {"queued", "running"}:
            await asyncio.sleep(0.05)
    return found


async def test_what_the_server_takes_the_worker_answers_in_every_mode(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(*(ScriptStep(text=f"answer {number}") for number in range(3)))
    session = await server.new_session()
    early = await accept(server, session, "before there is a worker")
    async with run_worker(folder, settings, "--concurrency", "1"):
        first = await ended(server, early)
        waited = (await server.send(session, "waiting")).json()
        async with sending(server.client, session, "streaming") as events:
            streamed = await until(events, "run.completed")

    assert first["status"] == "succeeded"
    assert waited["message"]["content"] == "answer 1"
    assert text_of(streamed) == "answer 2"
    assert [message["content"] for message in await server.history(session)][1::2] == [
        "answer 0",
        "answer 1",
        "answer 2",
    ]


async def test_a_script_with_nothing_but_the_databases_address_is_answered(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble, run_alone: RunScript
) -> None:
    provider_double.script(ScriptStep(text="four hundred"))
    bare = environment_of(direct_url(settings))
    async with run_worker(folder, settings):
        code, told, complained = await run_alone(folder, bare, EXAMPLE, "how many?")

    assert code == 0, complained
    assert "four hundred" in told
    assert "succeeded" in told


async def test_a_cancel_at_the_server_ends_the_workers_model_call_before_its_heartbeat(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, ScriptStep(text="going on"))
    async with run_worker(folder, {**settings, **SLOW_HEARTBEATS}), asyncio.timeout(HANG_SECONDS):
        session = await server.new_session()
        async with sending(server.client, session, "tell me") as events:
            shown = await until(events, "message.delta")
            await server.client.post(f"/v1/runs/{shown[0].data['run']['id']}/cancel")  # type: ignore[index]  # JSON
            cancelled = (await until(events, "run.cancelled"))[-1]
        further = await server.send(session, "and now?")

    kept = (await server.history(session))[1]
    assert kept["content"] == text_of(shown)
    assert kept["metadata"] == {"interrupted": True}
    assert cancelled.data["message"]["content"] == kept["content"]  # type: ignore[index]  # JSON
    assert further.json()["message"]["content"] == "going on"


async def test_an_interrupting_message_keeps_what_was_written_and_is_answered_next(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, ScriptStep(text="something else"))
    async with run_worker(folder, {**settings, **SLOW_HEARTBEATS}), asyncio.timeout(HANG_SECONDS):
        session = await server.new_session()
        async with sending(server.client, session, "a long story") as events:
            shown = text_of(await until(events, "message.delta"))
            second = await accept(server, session, "stop", on_busy="interrupt")
            outcome = await ended(server, second)

    history = await server.history(session)
    assert outcome["status"] == "succeeded"
    assert [message["content"] for message in history] == ["a long story", shown, "stop", "something else"]
    assert [message["metadata"] for message in history] == [{}, {"interrupted": True}, {}, {}]


async def test_a_turn_that_is_cancelled_while_its_tool_runs_leaves_a_session_that_goes_on(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "waiter.yaml").write_text("name: waiter\ntools: ['fakes.own_tools:hang_politely']\n")
    call = ScriptStep(calls=(ScriptedCall("c1", "hang_politely"),))
    provider_double.script(call, ScriptStep(text="never mind"))
    # The server knows the agent by its name only where its own folder has it: the session is made in the database.
    async with run_worker(folder, {**settings, "AGENTS_DIR": str(folder / "agents")}):
        session = await server.new_session()
        await run_sql(direct_url(settings), "update sessions set agent = 'waiter'")
        async with sending(server.client, session, "wait for me") as events:
            run = str((await until(events, "tool.call"))[0].data["run"]["id"])  # type: ignore[index]  # JSON
            await server.client.post(f"/v1/runs/{run}/cancel")
            await until(events, "run.cancelled")
        further = await server.send(session, "forget it")

    assert further.json()["message"]["content"] == "never mind"


async def test_of_two_workers_one_answers_and_the_lines_of_a_session_stay_in_order(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(*(ScriptStep(text=f"answer {number}") for number in range(10)))
    session = await server.new_session()
    runs = [await accept(server, session, f"message {number}") for number in range(10)]
    refused = await server.send(session, "one too many")
    async with run_worker(folder, settings, name="one"), run_worker(folder, settings, name="two"):
        outcomes = [await ended(server, run) for run in runs]

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert {outcome["status"] for outcome in outcomes} == {"succeeded"}
    contents = [message["content"] for message in await server.history(session)]
    assert contents == [f"{kind} {number}" for number in range(10) for kind in ("message", "answer")]
    assert not any(request.overlapped for request in provider_double.requests)


async def test_a_message_that_kills_three_workers_fails_clearly_and_the_session_goes_on(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(HANG, HANG, HANG, ScriptStep(text="alive"))
    session = await server.new_session()
    run = await accept(server, session, "poison")
    seen: list[Seen] = []
    for _ in range(3):
        after = seen[-1].id if seen else 0
        async with run_worker(folder, settings) as worker, following(server.client, run, after) as events:
            seen = await until(events, "message.delta")
            worker.kill()
            await worker.wait()
        await end_leases(direct_url(settings))
    async with run_worker(folder, settings):
        outcome = await ended(server, run)
        further = await server.send(session, "better?")

    assert (outcome["status"], outcome["error"]["type"]) == ("failed", "run_abandoned")  # type: ignore[index]  # JSON
    assert [event.type for event in seen][:1] == ["reset"], "a further attempt takes back what was shown"
    assert further.json()["message"]["content"] == "alive"
    assert [message["content"] for message in await server.history(session)] == ["poison", "better?", "alive"]


async def test_lost_connections_in_the_middle_of_an_answer_lose_nothing_of_it(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    told = "a story of many words that takes its time to be told until the very end"
    provider_double.script(ScriptStep(text=told, pieces=12, delay_seconds=0.1))
    cut = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name like 'throughline%'"
    session = await server.new_session()
    worker = run_worker(folder, {**settings, "LEASE_SECONDS": "6"})
    async with worker, sending(server.client, session, "tell me") as events:
        seen = await until(events, "message.delta")
        for _ in range(3):
            await run_sql(direct_url(settings), cut)
            await asyncio.sleep(0.2)
        seen += await until(events, "run.completed")

    assert text_of(seen) == told
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert [message["content"] for message in await server.history(session)] == ["tell me", told]


async def test_a_reader_that_takes_nothing_does_not_slow_the_run(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="a long and winding story " * 120_000, pieces=60))
    session = await server.new_session()
    body = b'{"content": "tell me"}'
    head = f"POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with run_worker(folder, settings):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port, limit=1_000)
        writer.write((head + kind).encode() + body)
        await writer.drain()
        await until_sql(direct_url(settings), "select status from runs", [("succeeded",)])
        first = await reader.readline()
        writer.close()

    assert first.startswith(b"HTTP/1.1 200")


ANNA = "U0ANNA001"


async def channel_session(database: Database, name: str) -> SessionId:
    """Have this user write in a channel; return the channel's session."""
    links = slack_database(database, "assistant").links
    await links.link_by_code(SlackId(TEAM, ANNA), await links.new_code(await database.users.get_or_create(name)))
    return await take(database, "What is 6 * 7?", channel="C0GENERAL", user=ANNA)


async def test_the_command_line_goes_on_with_a_session_of_a_channel(
    folder: Path, database: Database, database_url: str
) -> None:
    session = await channel_session(database, "local")
    async with run_worker(folder, environment_of(database_url)):
        code, told, complained = await run_command(
            folder, environment_of(database_url), "chat", "--session", str(session), typed="What is 2 + 3?\n"
        )

    assert code == 0, complained
    assert "5" in told
    assert await run_sql(database_url, "select source from runs order by seq") == [("slack",), ("cli",)]


async def test_a_service_without_slacks_token_serves_participants_and_nobody_else(
    folder: Path, database: Database, database_url: str
) -> None:
    session = await channel_session(database, "anna")
    scopes = frozenset({Scope.READ, Scope.WRITE})
    secrets = [(await database.keys.create(NewKey(name, f"of {name}", scopes))).secret for name in ("anna", "bert")]
    async with run_service(folder, environment_of(database_url)) as service:
        answers = [
            await service.client.post(
                f"/v1/sessions/{session}/messages",
                json={"content": "What is 2 + 3?"},
                headers={"Authorization": f"Bearer {secret}"},
            )
            for secret in secrets
        ]

    assert [answer.status_code for answer in answers] == [httpx.codes.OK, httpx.codes.NOT_FOUND]


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
def settings_ahead(settings: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """The settings, with an agent that summarises early."""
    (folder / "agents").mkdir()
    (folder / "agents" / "assistant.yaml").write_text(AGENT)
    return {**settings, "AGENTS_DIR": str(folder / "agents")}


@pytest.fixture
async def server_ahead(folder: Path, settings_ahead: Mapping[str, str]) -> AsyncGenerator[ServiceProcess]:
    async with run_service(folder, settings_ahead, "--no-worker") as started:
        yield started


async def context_of(server_ahead: ServiceProcess, session: str) -> dict[str, object]:
    return dict((await server_ahead.client.get(f"/v1/sessions/{session}/context")).json())


async def prepared(server_ahead: ServiceProcess, session: str, through_position: int) -> None:
    """Wait until a summary is prepared that reaches so far."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            match (await context_of(server_ahead, session))["prepared"]:
                case {"through_position": int(reached)} if reached >= through_position:
                    return
            await asyncio.sleep(0.05)


async def fill(server_ahead: ServiceProcess, session: str, turns: int) -> None:
    for number in range(turns):
        answer = await server_ahead.send(session, f"stone {number} " + "and another word " * 160)
        assert answer.is_success, answer.text


async def test_a_prepared_summary_is_put_to_use_without_asking_a_model(
    folder: Path, settings_ahead: Mapping[str, str], server_ahead: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(SUMMARY, line=SUMMARISER, then_default=True)
    async with run_worker(folder, settings_ahead):
        session = await server_ahead.new_session()
        await fill(server_ahead, session, 3)
        await prepared(server_ahead, session, 4)
        await fill(server_ahead, session, 1)
        await prepared(server_ahead, session, 6)
        paid = [request for request in provider_double.requests if request.is_summary]
        asked = len(provider_double.requests)

        async with sending(server_ahead.client, session, "the last stone " * 180) as events:
            seen = await until(events, "message.delta")
        first = provider_double.requests[asked]

    after = await context_of(server_ahead, session)
    assert len(paid) >= 1
    assert not first.is_summary
    assert "context.compaction.finished" in [event.type for event in seen]
    assert after["summary"]["through_position"] >= 4  # type: ignore[index]  # JSON
    assert "one after the other" in str(first.prompt[0])


async def test_a_worker_that_dies_over_a_summary_costs_no_turn_and_another_writes_it(
    folder: Path, settings_ahead: Mapping[str, str], server_ahead: ServiceProcess, provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep(text="too slow", delay_seconds=30), line=SUMMARISER, then_default=True)
    session = await server_ahead.new_session()
    async with run_worker(folder, settings_ahead) as worker:
        await fill(server_ahead, session, 3)
        async with asyncio.timeout(HANG_SECONDS):
            while not any(request.is_summary for request in provider_double.requests):
                await asyncio.sleep(0.05)
        worker.kill()
        await worker.wait()
    async with run_worker(folder, settings_ahead, name="another"):
        await fill(server_ahead, session, 1)
        history = await server_ahead.history(session)
        context = await context_of(server_ahead, session)

    assert len(history) == 8
    assert context["summary"] is None


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
