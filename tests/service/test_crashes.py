"""What dies may die at any moment: the history stays whole, the run ends, the session stays usable."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos.bench import FORMS, Form, open_bench
from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.grounds import Grounds, lay_out
from chaos.notes import check_notes
from chaos.points import KillPoint, Side
from chaos.scenario_idempotency import play_idempotency
from chaos.scenario_senders import play_senders
from chaos.scenario_streams import play_streams
from chaos.stored import read_stored
from chaos.turns import KINDS, TurnKind
from fakes.event_log import Seen, following, sending, until
from fakes.pooler import environment_of
from fakes.programs import DumpPrograms, find_dump_programs
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import end_leases, run_sql
from fakes.service_process import ServiceProcess, free_port, run_service
from fakes.shared_server import copy_data_dir
from fakes.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

THINKER = "{name: thinker, tools: [calculator], parameters: {return_reasoning: true}}"


async def read_until(service: ServiceProcess, session: str, text: str, event: str) -> None:
    """Stream a message until `event` has arrived."""
    headers = {"Accept": "text/event-stream"}
    path = f"/v1/sessions/{session}/messages"
    async with service.client.stream("POST", path, json={"content": text}, headers=headers) as response:
        async for line in response.aiter_lines():
            if line == f"event: {event}":
                return


async def until_finished(service: ServiceProcess, session: str, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            history = await service.history(session)
            if len(history) >= count:
                return history
            await asyncio.sleep(0.1)


async def test_a_service_killed_in_mid_stream_finishes_the_run_after_its_restart(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    port = free_port()
    provider_double.script(
        ScriptStep(calls=(ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)),
        ScriptStep(text="The answer is being written", failure=Failure.HANG_IN_ANSWER),
        ScriptStep(text="The answer is 42"),
        ScriptStep(text="And on it goes"),
    )
    async with run_service(folder, on_double, port=port) as service:
        session = await service.new_session()
        await read_until(service, session, "what is 6*7?", "message.delta")
        await service.kill()
    await end_leases(database_url)

    async with run_service(folder, on_double, port=port) as service:
        history = await until_finished(service, session, 4)
        further = await service.send(session, "go on")

    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"]
    assert [message["content"] for message in history] == ["what is 6*7?", "", "42", "The answer is 42"]
    assert further.json()["message"]["content"] == "And on it goes"


async def test_a_service_killed_between_two_steps_sends_the_reasoning_of_the_first_again(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    settings = {**on_double, "AGENTS_DIR": str(folder / "agents"), "DEFAULT_LLM": "openai:double-128k-cl100k-thinks"}
    (folder / "agents").mkdir()
    (folder / "agents" / "a.yaml").write_text(THINKER)
    provider_double.script(
        ScriptStep(thinking="I multiply.", calls=(ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)),
        ScriptStep(thinking="It is being", failure=Failure.HANG_IN_ANSWER),
        ScriptStep(thinking="Forty-two.", text="It is 42."),
    )
    async with run_service(folder, settings) as service:
        session = await service.new_session("thinker")
        reading = asyncio.create_task(read_until(service, session, "what is 6*7?", "tool.result"))
        async with asyncio.timeout(HANG_SECONDS):
            while len(provider_double.requests) < 2:
                await asyncio.sleep(0.02)
        await service.kill()
        await asyncio.gather(reading, return_exceptions=True)
    await end_leases(database_url)

    async with run_service(folder, settings) as service:
        history = await until_finished(service, session, 4)

    assert [message["content"] for message in history] == ["what is 6*7?", "", "42", "It is 42."]
    resumed = [message for message in provider_double.requests[-1].prompt if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in resumed] == ["I multiply."]


async def test_a_service_killed_while_a_call_is_written_shows_it_again_under_other_ids(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    calls = (ScriptedCall("c1", "calculator", '{"expression": "6*7"}'),)
    provider_double.script(
        ScriptStep(text="I compute.", calls=calls, failure=Failure.HANG_IN_ANSWER, pieces=1),
        ScriptStep(text="I compute.", calls=calls),
        ScriptStep(text="It is 42."),
    )
    async with run_service(folder, on_double) as service:
        session = await service.new_session()
        async with sending(service.client, session, "what is 6*7?") as events:
            before = await until(events, "tool.call.delta")
        await service.kill()
    await end_leases(database_url)

    async with run_service(folder, on_double) as service:
        run = str(value(before[0], "run", "id"))
        async with following(service.client, run) as events:
            told = await until(events, "run.completed")
        history = await service.history(session)

    ids = [message["id"] for message in history]
    resets = [number for number, event in enumerate(told) if event.type == "reset"]
    shown = [event for event in told if event.type.endswith(".delta")]
    kept = [event for event in told[resets[-1] :] if event.type.endswith(".delta")]
    assert [event.data["user_message_id"] for event in told if event.type == "run.started"] == [ids[0]] * 2
    assert {event.data["message_id"] for event in kept} == {ids[1], ids[3]}
    assert not {event.data["message_id"] for event in shown if event not in kept} & set(ids)
    arguments = "".join(str(event.data["arguments_delta"]) for event in kept if event.type == "tool.call.delta")
    called = next(event.data for event in told if event.type == "tool.call")
    assert called == {"id": "c1", "name": "calculator", "arguments": arguments, "message_id": ids[1]}


def value(event: Seen, *path: str) -> object:
    """Return what stands at this path in the event's data."""
    found: object = event.data
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    return found


async def test_a_killed_postgres_is_started_again_and_nothing_stored_is_lost(
    folder: Path,
) -> None:
    await copy_data_dir(folder / "data")
    async with run_service(folder, {}, "--data-dir", str(folder / "data")) as service:
        session = await service.new_session()
        before = (await service.send(session, "first")).json()["message"]

        os.kill(postmaster_of(folder), signal.SIGKILL)
        async with asyncio.timeout(HANG_SECONDS):
            answer = await service.send(session, "second", **{"Idempotency-Key": "second"})
            while answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                await asyncio.sleep(0.2)
                answer = await service.send(session, "second", **{"Idempotency-Key": "second"})

        history = await service.history(session)

    assert answer.status_code == httpx.codes.OK
    assert [message["content"] for message in history if message["role"] == "user"] == ["first", "second"]
    assert history[1] == {**before, "citations": [], "reasoning": None}


def postmaster_of(folder: Path) -> int:
    pid_file = next((folder / "data").rglob("postmaster.pid"))
    return int(pid_file.read_text().splitlines()[0])


async def test_a_stopped_service_leaves_with_zero_and_gives_back_what_it_could_not_finish(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(
        ScriptStep(text="half an answer", failure=Failure.HANG_IN_ANSWER), ScriptStep(text="a whole answer")
    )
    settings = {**on_double, "SHUTDOWN_GRACE_SECONDS": "0.5"}
    async with run_service(folder, settings) as service:
        session = await service.new_session()
        reading = asyncio.create_task(read_until(service, session, "hello", "run.completed"))
        async with asyncio.timeout(HANG_SECONDS):
            while not provider_double.requests:
                await asyncio.sleep(0.02)

        code = await service.terminate()
        outcome = (await asyncio.gather(reading, return_exceptions=True))[0]

    async with run_service(folder, settings) as service:
        history = await until_finished(service, session, 2)

    assert code == 0
    assert isinstance(outcome, httpx.RemoteProtocolError), "an unfinished stream is aborted, never closed cleanly"
    assert [message["content"] for message in history] == ["hello", "a whole answer"]


SERVE, WORKER = FORMS
END = "update runs + update sessions + insert messages + insert run_events"


@pytest.fixture
async def grounds(folder: Path, database_url: str) -> AsyncGenerator[Grounds]:
    async with lay_out(folder, database_url=database_url, data_dir=folder / "data") as made:
        yield made


def kind_named(name: str) -> TurnKind:
    return next(kind for kind in KINDS if kind.name == name)


def found(trace: Sequence[KillPoint], side: Side, label: str, times: int = 1) -> KillPoint:
    """Find the `times`-th passing of what is labelled so in a trace."""
    points = [point for point in trace if point.side is side and point.place.label.startswith(label)]
    assert len(points) >= times, f"the turn no longer comes past {label!r}: {sorted({p.place.label for p in trace})}"
    return points[times - 1]


@pytest.mark.parametrize(
    ("form", "kind", "places"),
    [
        pytest.param(
            SERVE,
            "plain",
            [(Side.AFTER, "insert runs", 1), (Side.BEFORE, "model text", 2)],
            id="while a message is accepted and answered",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            SERVE,
            "plain",
            [(Side.BEFORE, END, 1), (Side.AFTER, END, 1)],
            id="while the answer is stored",
        ),
        pytest.param(
            WORKER,
            "tools",
            [
                (Side.AFTER, "update sessions + insert messages", 2),
                (Side.AFTER, "tool note_once", 1),
                (Side.AFTER, "update sessions + insert messages", 4),
            ],
            id="while tools are called",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            WORKER,
            "compaction",
            [(Side.AFTER, "insert summaries", 1), (Side.BEFORE, "commit", 2)],
            id="while a summary is written and adopted",
            marks=pytest.mark.proof,
        ),
    ],
)
async def test_a_process_that_is_killed_loses_nothing_and_does_nothing_twice(
    grounds: Grounds, form: Form, kind: str, places: list[tuple[Side, str, int]]
) -> None:
    async with open_bench(grounds, form, grounds.database_url) as bench:
        trace = await bench.trace(kind_named(kind))
        reached = [await bench.kill_at(kind_named(kind), found(trace, *place)) for place in places]

    stored = await read_stored(grounds.database_url)
    findings = [*check(bench.client.log, stored), *check_read(stored, read_calls(grounds.calls_log)), *bench.late]
    assert findings == []
    assert check_notes(grounds.notes) == ()
    assert any(session.through_position for session in stored.sessions) == (kind == "compaction")
    assert reached == [True] * len(places)


@pytest.mark.parametrize("cuts", [12, pytest.param(40, marks=pytest.mark.proof)])
async def test_a_stream_that_is_cut_goes_on_at_another_server_without_gap_or_repetition(
    grounds: Grounds, cuts: int
) -> None:
    report = await play_streams(grounds, cuts=cuts, dice=random.Random(4))

    assert report.findings == ()
    assert report.counts["cuts"] >= cuts


@pytest.mark.parametrize("senders", [20, pytest.param(64, marks=pytest.mark.proof)])
async def test_many_senders_on_one_session_are_answered_in_the_order_of_acceptance(
    grounds: Grounds, senders: int
) -> None:
    report = await play_senders(grounds, senders=senders, rounds=1)

    assert report.findings == ()
    assert report.counts["messages"] == senders


@pytest.mark.parametrize("clients", [16, pytest.param(50, marks=pytest.mark.proof)])
async def test_one_key_from_many_clients_at_once_is_one_run_and_as_many_equal_answers(
    grounds: Grounds, clients: int
) -> None:
    report = await play_idempotency(grounds, clients=clients, keys=1)

    assert report.findings == ()
    assert (report.counts["runs"], report.counts["model calls"]) == (1, 1)


UNLOGGED = """
    select distinct coalesce(i.inhparent, c.oid)::regclass::text from pg_class c
        left join pg_inherits i on i.inhrelid = c.oid
    where c.relpersistence = 'u' and c.relkind = 'r' order by 1
"""


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
