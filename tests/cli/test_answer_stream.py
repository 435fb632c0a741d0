import asyncio
import os
import signal
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import httpx
import pytest

from app.cli.answer_stream import AnswerEvent, AnswerStream, ConnectionCut
from app.cli.answering import Answering
from app.cli.chat_state import ChatState
from app.cli.client import ServiceClient
from app.cli.failures import RequestRefused, ServiceUnreachable
from app.cli.screen import Screen
from app.domain.events import EventType
from app.wire.events import MessageDelta, RunCancelled, RunCompleted
from fakes.fake_service import Cut, Event, FakeService, Step, WaitForCancel, answer_of, delta, serving, started
from fakes.wire_shapes import run_out


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def client(service: FakeService, tmp_path: Path) -> AsyncIterator[ServiceClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with serving(service, tmp_path / "s"), httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        yield ServiceClient(http, place="the fake")


async def read(
    client: ServiceClient, service: FakeService, script: list[Step], *, retries: int = 3
) -> list[AnswerEvent]:
    service.scripts = [script]
    session_id = service.add_session(1)
    stream = AnswerStream(client, session_id, "hello", retry_delays=(0.0,) * retries)
    return [event async for event in stream.events()]


def text_of(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, MessageDelta))


async def test_a_cut_stream_goes_on_behind_the_last_event_seen(client: ServiceClient, service: FakeService) -> None:
    events = await read(client, service, [started(), delta("a"), Cut(), delta("b"), Cut(), *answer_of("c")[1:]])

    assert text_of(events) == "abc"
    assert [item.last_event_id for item in service.received] == ["", "2", "3"]
    assert [event.attempt for event in events if isinstance(event, ConnectionCut)] == [1, 1]
    assert isinstance(events[-1], RunCompleted)


async def test_a_cut_before_the_run_is_known_sends_the_same_message_with_the_same_key(
    client: ServiceClient, service: FakeService
) -> None:
    service.names_run = False

    events = await read(client, service, [Cut(), *answer_of("once")])

    assert text_of(events) == "once"
    assert [item.path for item in service.received] == ["message", "message"]
    assert len({item.key for item in service.received}) == 1


async def test_a_stream_that_ends_without_its_last_event_is_taken_up_again(
    client: ServiceClient, service: FakeService
) -> None:
    with pytest.raises(ServiceUnreachable, match="come back with"):
        await read(client, service, [started(), delta("a")], retries=2)

    assert [item.path for item in service.received] == ["message", "events", "events"]


async def test_a_refused_message_is_not_sent_again(client: ServiceClient, service: FakeService) -> None:
    stream = AnswerStream(client, "unknown", "hello", retry_delays=(0.0,))

    with pytest.raises(RequestRefused, match="no such session"):
        _ = [event async for event in stream.events()]

    assert service.received == []


async def test_ctrl_c_cancels_the_run_and_waits_for_its_end(client: ServiceClient, service: FakeService) -> None:
    cancelled = Event(EventType.RUN_CANCELLED, RunCancelled(run=run_out(status="cancelled"), message=None))
    service.scripts = [[started(), delta("half"), WaitForCancel(), cancelled]]
    out, err = StringIO(), StringIO()
    state = ChatState(client, Screen(out=out, err=err), "assistant")
    stream = AnswerStream(client, service.add_session(1), "hello", retry_delays=())
    before = signal.getsignal(signal.SIGINT)

    answering = asyncio.create_task(Answering(state, stream).run())
    await stream.run_known.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await answering

    assert service.cancelled.is_set()
    assert out.getvalue() == "half\n"
    assert "stopped" in err.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_second_ctrl_c_stops_waiting(client: ServiceClient, service: FakeService) -> None:
    service.scripts = [[started(), WaitForCancel(), WaitForCancel(), delta("")]]
    err = StringIO()
    state = ChatState(client, Screen(out=StringIO(), err=err), "assistant")
    stream = AnswerStream(client, service.add_session(1), "hello", retry_delays=(60.0,))

    answering = asyncio.create_task(Answering(state, stream).run())
    await stream.run_known.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await service.cancelled.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await answering

    assert "no longer listening" in err.getvalue()
