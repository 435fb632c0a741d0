"""The event stream over a real socket: complete, resumable, and never closed cleanly before its last event."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import LOCAL, ApiStage, open_session, set_stage
from fakes.event_log import MESSAGE_ID
from throughline.api.answer_turn import render_event
from throughline.db.database import Database
from throughline.domain.basic_types import RunId
from throughline.domain.events import MessageDelta, RunEvent
from throughline.domain.run import RunError

STREAM = {"Accept": "text/event-stream"}
WHOLE = ["run.started", "message.delta", "message.completed", "run.completed"]


@dataclass(frozen=True)
class Seen:
    """One event as a reader sees it."""

    id: int
    type: str
    data: dict[str, object]


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
