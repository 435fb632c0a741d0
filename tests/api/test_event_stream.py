"""The event stream over a real socket: complete, resumable, and never closed cleanly before its last event."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import httpx
import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.event_log import MESSAGE_ID, STREAM, Seen
from fakes.raw_sql import run_sql
from fakes.scripted_turns import REPORT
from fakes.waiting import HANG_SECONDS
from throughline.api.runs import render_event
from throughline.cli.chat.answer_stream import SseParser
from throughline.db.database import Database
from throughline.domain.basic_types import MessageId, RunId, SessionId, UserId
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    EventType,
    GraphEvent,
    HistoryQuoted,
    MemoriesQuoted,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
    ToolProgress,
)
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Run, RunError, RunInput, RunStatus
from throughline.domain.summary import CompactionOutcome
from throughline.domain.tool import AwaitedCall, Wait, WaitKind
from throughline.http.documents import UNION
from throughline.http.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bound_url
from throughline.http.services import ApiConfig
from throughline.wire.context import ContextOut

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
STEP_ID = MessageId(UUID(int=6))
CALL = ToolCall("call_1", "calculator", '{"expression": "2+3"}')
RUN = Run(
    id=RunId(UUID(int=1)),
    session_id=SessionId(UUID(int=2)),
    owner_id=UserId(UUID(int=3)),
    agent="assistant",
    seq=1,
    status=RunStatus.RUNNING,
    input=RunInput("What is 2+3?"),
    source=Source.API,
    created_at=NOW,
    user_message_id=MessageId(UUID(int=5)),
    started_at=NOW,
    usage=Usage(120, 4),
)
ANSWER = Message(
    id=MessageId(UUID(int=4)),
    session_id=RUN.session_id,
    position=4,
    role=Role.ASSISTANT,
    content="5",
    source=Source.API,
    created_at=NOW,
    run_id=RUN.id,
)
RESULT = replace(ANSWER, position=3, role=Role.TOOL, tool_call_id=CALL.id, name=CALL.name)
WAITING = replace(
    RUN, status=RunStatus.WAITING, wait=Wait((AwaitedCall(CALL, WaitKind.APPROVAL),), until=NOW, fence=1), wait_count=1
)
SUCCEEDED = replace(
    RUN, status=RunStatus.SUCCEEDED, finished_at=NOW, message_id=ANSWER.id, context=ContextOut.render(REPORT)
)
FAILED = replace(RUN, status=RunStatus.FAILED, finished_at=NOW, error=RunError("model_refused", "The model declined."))
CANCELLED = replace(RUN, status=RunStatus.CANCELLED, finished_at=NOW)
EVENTS: tuple[Event, ...] = (
    RunStarted(RUN),
    CompactionStarted("threshold", 6_900),
    CompactionFinished("threshold", CompactionOutcome.ADOPTED, "", ("pruned",), 6_900, 2_100, 40),
    HistoryQuoted((21, 7), (0.9, 0.5), 80),
    MemoriesQuoted((str(ANSWER.id),), 60),
    ReasoningDelta(ANSWER.id, "I add them."),
    MessageDelta(ANSWER.id, "5"),
    ToolCallDelta(STEP_ID, 0, CALL.id, CALL.name, '{"expression"'),
    ToolCalled(CALL, STEP_ID),
    ToolProgress(CALL.id, 1.0, 2.0, "half"),
    GraphEvent({"seen": [1, None]}),
    ToolAnswered(RESULT),
    MessageCompleted(ANSWER),
    RunWaiting(WAITING, STEP_ID),
    RunEnded(SUCCEEDED, ANSWER),
    RunEnded(FAILED),
    RunEnded(CANCELLED, ANSWER),
    AnswerReset(2),
)


WHOLE = ["run.started", "message.delta", "message.completed", "run.completed"]


def parse(text: str) -> list[Seen]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields:
            found.append(Seen(int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, LOCAL)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.served() as client:
        yield client
        await stage.turns.settle()


async def started_run(stage: ApiStage, client: httpx.AsyncClient) -> str:
    """Start a turn that waits before its end, and return its run's path."""
    session = await open_session(client)
    stage.turns.may_end.clear()
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"})
    return str(accepted.headers["location"])


async def ended_run(stage: ApiStage, client: httpx.AsyncClient) -> str:
    path = await started_run(stage, client)
    await stage.turns.settle()
    return path


async def test_a_message_streams_its_whole_run(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=STREAM)

    events = parse(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["content-location"].endswith("/events")
    assert [event.type for event in events] == WHOLE
    assert [event.id for event in events] == [1, 2, 3, 4]
    assert set(events[-1].data) == {"run", "message", "context"}


async def test_a_replayed_message_streams_the_same_events(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    headers = {**STREAM, "Idempotency-Key": "k"}
    first = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)

    again = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)

    assert parse(again.text) == parse(first.text)


async def test_a_reader_goes_on_where_it_was(
    stage: ApiStage, client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    path = await ended_run(stage, client)

    for last, expected in (("-1", WHOLE), ("0", WHOLE), ("1", WHOLE[1:]), ("2", WHOLE[2:]), (None, WHOLE)):
        with subtests.test(str(last)):
            response = await client.get(f"{path}/events", headers={"Last-Event-ID": last} if last else {})
            assert [event.type for event in parse(response.text)] == expected


async def test_a_reader_that_has_seen_the_end_is_sent_away(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await ended_run(stage, client)

    response = await client.get(f"{path}/events", headers={"Last-Event-ID": "4"})

    assert response.status_code == 204


async def read_until_heartbeat_and_end(stage: ApiStage, client: httpx.AsyncClient, path: str) -> str:
    """Read a run's stream; its turn ends once a heartbeat has come."""
    text = ""
    async with client.stream("GET", f"{path}/events") as response:
        async for chunk in response.aiter_text():
            text += chunk
            if ": heartbeat\n\n" in text:
                stage.turns.may_end.set()
    return text


async def test_a_reader_of_a_running_turn_gets_heartbeats_and_then_the_end(database: Database) -> None:
    stage = set_stage(database, replace(LOCAL, heartbeat_seconds=0.05))

    async with stage.served() as client:
        text = await read_until_heartbeat_and_end(stage, client, await started_run(stage, client))
        await stage.turns.settle()

    assert [event.type for event in parse(text)] == WHOLE


async def test_two_readers_see_everything(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await started_run(stage, client)
    reading = [asyncio.create_task(client.get(f"{path}/events")) for _ in range(2)]

    stage.turns.may_end.set()

    assert [[event.type for event in parse((await task).text)] for task in reading] == [WHOLE, WHOLE]


async def test_a_position_that_is_not_stored_starts_over_with_a_reset(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await ended_run(stage, client)

    response = await client.get(f"{path}/events", headers={"Last-Event-ID": "77"})

    assert [event.type for event in parse(response.text)] == ["reset", *WHOLE]


async def test_a_failed_run_ends_with_its_error(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.error = RunError("model_timeout", "The model was silent for too long.")

    response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=STREAM)

    last = parse(response.text)[-1]
    assert (last.type, last.data["error"]) == (
        "run.failed",
        {"type": "model_timeout", "detail": "The model was silent for too long."},
    )


async def test_a_run_whose_events_are_gone_is_told_from_what_is_stored(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    stage.turns.has_worker = False
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"})
    path = accepted.headers["location"]
    await client.post(f"{path}/cancel")

    response = await client.get(f"{path}/events")

    events = parse(response.text)
    assert events[-1].type == "run.cancelled"
    assert events[-1].data["run"] == (await client.get(path)).json()


async def test_at_shutdown_an_unfinished_stream_is_cut_and_can_be_taken_up(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await started_run(stage, client)
    seen: list[str] = []

    async def read_on() -> None:
        async with client.stream("GET", f"{path}/events") as response:
            async for chunk in response.aiter_text():
                seen.append(chunk)
                stage.services.cut_off()

    with pytest.raises(httpx.RemoteProtocolError):
        await read_on()

    assert [event.type for event in parse("".join(seen))] == WHOLE[:2]


async def test_a_reader_that_leaves_does_not_stop_the_turn(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    async with client.stream("POST", f"{session}/messages", json={"content": "hi"}, headers=STREAM) as response:
        async for _ in response.aiter_text():
            break

    await stage.turns.settle()

    history = (await client.get(f"{session}/messages")).json()["data"]
    assert [message["role"] for message in history] == ["user", "assistant"]


@pytest.mark.parametrize("text", ["a\nb\r\nc\rd", "data: x\n\nevent: y", "\u2028 \u2029 \u0085 \v\f\x1c", "\ud800"])
def test_no_text_breaks_the_framing(text: str) -> None:
    event = RunEvent(RunId(UUID(int=1)), 5, MessageDelta(MESSAGE_ID, text))

    raw = render_event(event)

    lines = raw.decode().splitlines()
    assert lines[:2] == ["id: 5", "event: message.delta"]
    assert json.loads(lines[2].removeprefix("data: ")) == {"message_id": str(MESSAGE_ID), "text": text}
    assert len(lines) == 4


SLOW_HEART = ApiConfig(version="0.0.0", is_local_mode=True, heartbeat_seconds=60)


@pytest.fixture
def stage_ends(database: Database) -> ApiStage:
    return set_stage(database, SLOW_HEART)


@pytest.fixture
async def client_ends(stage_ends: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage_ends.served() as client_ends:
        yield client_ends


async def begin(stage_ends: ApiStage, client_ends: httpx.AsyncClient) -> tuple[str, str]:
    """Start a turn that waits before its end; return the paths of session and run."""
    session = await open_session(client_ends)
    stage_ends.turns.may_end.clear()
    accepted = await client_ends.post(
        f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"}
    )
    await stage_ends.turns.has_begun.wait()
    return session, accepted.headers["location"]


async def read_and_erase(client_ends: httpx.AsyncClient, session: str, run: str) -> None:
    async with client_ends.stream("GET", f"{run}/events") as response:
        async for _ in response.aiter_text():
            await client_ends.delete(session)


def ids_and_types(text: str) -> list[tuple[str, str]]:
    lines = text.splitlines()
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    types = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    return list(zip(ids, types, strict=True))


async def test_a_reader_of_a_stand_in_end_is_sent_away_when_it_comes_back(
    stage_ends: ApiStage, client_ends: httpx.AsyncClient, database_url: str
) -> None:
    _, run = await begin(stage_ends, client_ends)
    await stage_ends.turns.settle()
    await run_sql(database_url, "delete from run_events")

    for last in ("0", "2", "3", "77"):
        first = await client_ends.get(f"{run}/events", headers={"Last-Event-ID": last})
        told = ids_and_types(first.text)
        again = await client_ends.get(f"{run}/events", headers={"Last-Event-ID": told[-1][0]})

        assert [kind for _, kind in told][-3:] == ["reset", "message.completed", "run.completed"]
        assert (again.status_code, again.text) == (204, "")


async def test_a_reader_cut_off_within_a_stand_in_gets_all_of_it_again(
    stage_ends: ApiStage, client_ends: httpx.AsyncClient, database_url: str
) -> None:
    _, run = await begin(stage_ends, client_ends)
    await stage_ends.turns.settle()
    await run_sql(database_url, "delete from run_events")
    first = ids_and_types((await client_ends.get(f"{run}/events")).text)

    again = await client_ends.get(f"{run}/events", headers={"Last-Event-ID": first[0][0]})

    assert [kind for _, kind in ids_and_types(again.text)] == ["reset", *(kind for _, kind in first)]


async def test_the_id_of_a_stand_in_does_not_end_a_run_that_goes_on(
    stage_ends: ApiStage, client_ends: httpx.AsyncClient
) -> None:
    _, run = await begin(stage_ends, client_ends)
    text = ""

    async with client_ends.stream("GET", f"{run}/events", headers={"Last-Event-ID": "999999999"}) as response:
        async for chunk in response.aiter_text():
            text += chunk
            stage_ends.turns.may_end.set()

    assert [kind for _, kind in ids_and_types(text)] == [
        "reset",
        "run.started",
        "message.delta",
        "message.completed",
        "run.completed",
    ]


async def test_readers_of_an_erased_session_are_let_go_at_once(
    stage_ends: ApiStage, client_ends: httpx.AsyncClient
) -> None:
    session, run = await begin(stage_ends, client_ends)

    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(httpx.RemoteProtocolError):
            await read_and_erase(client_ends, session, run)

    stage_ends.turns.may_end.set()
    await asyncio.gather(*stage_ends.turns.tasks, return_exceptions=True)


@asynccontextmanager
async def served_for_good(stage_ends: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    """Serve as `throughline serve` does."""

    async def nothing() -> None:
        """Nothing runs that has to end first."""

    listener = bind_tcp(TcpAddress("127.0.0.1", 0))
    server = HttpServer(stage_ends.app, listener, Shutdown(nothing, grace_seconds=1))
    serving = asyncio.create_task(server.run_until_stopped())
    try:
        async with httpx.AsyncClient(base_url=bound_url(listener)) as client_ends:
            yield client_ends
    finally:
        server.stop()
        await serving


async def test_a_stream_that_is_cut_on_purpose_is_no_error_in_the_log(
    stage_ends: ApiStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="uvicorn.error")
    async with served_for_good(stage_ends) as client_ends:
        session, run = await begin(stage_ends, client_ends)
        with pytest.raises(httpx.RemoteProtocolError):
            await read_and_erase(client_ends, session, run)
        logging.getLogger("uvicorn.error").error("something else")
        stage_ends.turns.may_end.set()
        await asyncio.gather(*stage_ends.turns.tasks, return_exceptions=True)

    assert [record.message for record in caplog.records if record.name == "uvicorn.error"] == ["something else"]


Json: TypeAlias = dict[str, Any]


@pytest.fixture
def document(database: Database) -> Json:
    return set_stage(database, KEYED).app.openapi()


def sent(event: Event) -> Json:
    """Return an event as a reader of the stream gets it."""
    (raw,) = SseParser().feed(render_event(RunEvent(RUN.id, 7, event)))
    return {"id": raw.id, "event": raw.event, "data": json.loads(raw.data)}


def check(document: Json, event: Json) -> None:
    schema = {"$ref": f"#/components/schemas/{UNION}", **document}
    Draft202012Validator(schema, validate_formats=True).validate(event)


def test_there_is_an_event_of_every_type() -> None:
    assert {event.type for event in EVENTS} == set(EventType)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type.value)
def test_an_event_has_the_documented_fields(document: Json, event: Event) -> None:
    raw = sent(event)
    check(document, raw)

    schemas = document["components"]["schemas"]
    name = schemas[UNION]["discriminator"]["mapping"][event.type].rpartition("/")[2]
    data = schemas[name]["properties"]["data"]["$ref"].rpartition("/")[2]
    assert raw["data"].keys() == schemas[data]["properties"].keys()


def test_data_of_another_event_does_not_fit(document: Json) -> None:
    events = {event.type: sent(event) for event in EVENTS}

    with pytest.raises(ValidationError):
        check(document, {**events[EventType.MESSAGE_DELTA], "data": events[EventType.RESET]["data"]})


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/sessions/{session_id}/messages", "post"), ("/v1/runs/{run_id}/events", "get")]
)
def test_a_stream_is_text_that_holds_events(document: Json, path: str, method: str) -> None:
    schema = document["paths"][path][method]["responses"]["200"]["content"]["text/event-stream"]["schema"]

    assert schema["type"] == "string"
    assert schema["contentSchema"] == {"type": "array", "items": {"$ref": f"#/components/schemas/{UNION}"}}


def test_an_answer_to_a_message_is_json_first(document: Json) -> None:
    answers = document["paths"]["/v1/sessions/{session_id}/messages"]["post"]["responses"]["200"]["content"]

    assert list(answers) == ["application/json", "text/event-stream"]
