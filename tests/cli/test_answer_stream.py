import asyncio
import gzip
import os
import signal
from collections.abc import AsyncIterator
from io import StringIO
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.command_stage import CommandStage, Cut, TerminalScreen
from fakes.scripted_turns import said
from fakes.wire_shapes import context_out, message_out, run_out
from throughline.cli.chat.answer_stream import (
    MAX_EVENT_BYTES,
    AnswerEvent,
    AnswerStream,
    ConnectionCut,
    ServerSentEvent,
    SseParser,
)
from throughline.cli.chat.print_answer import Answering, AnswerView
from throughline.cli.chat.state import ChatState
from throughline.cli.client import RequestRefused, ServiceClient, ServiceUnreachable, SessionFilter, UnexpectedReply
from throughline.cli.connection import MAX_REPLY_BYTES, bound_reply
from throughline.cli.screen import Screen
from throughline.wire.context import RestoredOut
from throughline.wire.events import MessageDelta, RunCompleted


@pytest.fixture
async def client(service: CommandStage) -> AsyncIterator[ServiceClient]:
    async with service.client() as client:
        yield client


async def read(client: ServiceClient, service: CommandStage, *cuts: Cut, retries: int = 3) -> list[AnswerEvent]:
    """Send a message, cut the streams of its answer, and return the events that came."""
    service.way.cuts = list(cuts)
    stream = AnswerStream(client, await session_of(service), "hello", retry_delays=(0.0,) * retries)
    return [event async for event in stream.events()]


async def session_of(service: CommandStage) -> str:
    return str((await service.session()).session.id)


def text_of(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, MessageDelta))


def places(service: CommandStage) -> list[str]:
    """The last words of the paths that streams were asked for at."""
    return [request.url.path.rpartition("/")[2] for request in service.way.streams]


async def test_a_cut_stream_goes_on_behind_the_last_event_seen(client: ServiceClient, service: CommandStage) -> None:
    service.api.turns.scripts = [said("a", "b", "c")]

    events = await read(client, service, Cut(after=2), Cut(after=1))

    assert text_of(events) == "abc"
    assert [request.headers.get("last-event-id", "") for request in service.way.streams] == ["", "2", "3"]
    assert [event.attempt for event in events if isinstance(event, ConnectionCut)] == [1, 1]
    assert isinstance(events[-1], RunCompleted)


async def test_a_cut_before_the_run_is_known_sends_the_same_message_with_the_same_key(
    client: ServiceClient, service: CommandStage
) -> None:
    service.api.turns.scripts = [said("once"), said("twice")]

    events = await read(client, service, Cut(after=0, names_run=False))

    assert text_of(events) == "once"
    assert places(service) == ["messages", "messages"]
    assert len({request.headers["idempotency-key"] for request in service.way.streams}) == 1


async def test_a_stream_that_ends_without_its_last_event_is_taken_up_again(
    client: ServiceClient, service: CommandStage
) -> None:
    cuts = Cut(after=2, ends=True), Cut(after=0, ends=True), Cut(after=0, ends=True)

    with pytest.raises(ServiceUnreachable, match="ontinue with"):
        await read(client, service, *cuts, retries=2)

    assert places(service) == ["messages", "events", "events"]


async def test_a_refused_message_is_not_sent_again(client: ServiceClient, service: CommandStage) -> None:
    stream = AnswerStream(client, "unknown", "hello", retry_delays=(0.0,))

    with pytest.raises(RequestRefused, match="There is no session unknown"):
        _ = [event async for event in stream.events()]

    assert places(service) == ["messages"]


async def test_ctrl_c_cancels_the_run_and_waits_for_its_end(client: ServiceClient, service: CommandStage) -> None:
    turns = service.api.turns
    turns.may_end.clear()
    turns.scripts = [said("half")]
    out, err = StringIO(), StringIO()
    state = ChatState(client, Screen(out=out, err=err), "assistant")
    stream = AnswerStream(client, await session_of(service), "hello", retry_delays=())
    before = signal.getsignal(signal.SIGINT)

    answering = asyncio.create_task(Answering(state, stream).run())
    await stream.run_known.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await turns.is_cancelled.wait()
    await turns.settle()
    await answering

    assert out.getvalue() == "half\n"
    assert "stopped" in err.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_second_ctrl_c_stops_waiting(client: ServiceClient, service: CommandStage) -> None:
    service.api.turns.may_end.clear()
    err = StringIO()
    state = ChatState(client, Screen(out=StringIO(), err=err), "assistant")
    stream = AnswerStream(client, await session_of(service), "hello", retry_delays=(60.0,))

    answering = asyncio.create_task(Answering(state, stream).run())
    await stream.run_known.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await service.api.turns.is_cancelled.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await answering

    assert "no longer waiting" in err.getvalue()


async def test_an_answer_nobody_waits_for_is_no_part_of_the_next(
    client: ServiceClient, service: CommandStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    service.api.turns.may_end.clear()
    service.api.turns.scripts = [said("half")]
    terminal = TerminalScreen(80, 10)
    state = ChatState(client, Screen(out=terminal, err=StringIO(), width=80), "assistant")
    stream = AnswerStream(client, await session_of(service), "hello", retry_delays=(60.0,))

    answering = asyncio.create_task(Answering(state, stream).run())
    while "half" not in terminal.rows:
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)
    await service.api.turns.is_cancelled.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await answering
    state.screen.write("next")
    state.screen.end_line()

    assert terminal.rows == ["half", "next"]


async def test_an_event_of_a_newer_service_is_passed_over() -> None:
    ended = RunCompleted(run=run_out(status="succeeded"), message=message_out(2), context=context_out())
    text = f"event: something.of_later\ndata: {{}}\n\nevent: run.completed\ndata: {ended.model_dump_json()}\n\n"
    reply = httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: reply), base_url="http://x") as http:
        stream = AnswerStream(ServiceClient(http, place="x"), "s", "hello", retry_delays=())
        events = [event async for event in stream.events()]

    assert events == [ended]


@pytest.mark.parametrize(
    ("restored", "coming"),
    [
        (None, "⚡ the next message triggers a compaction"),
        (
            RestoredOut(at_position=4, tokens_since=0, tokens_needed=9),
            "⚡ the next message leaves out what does not fit",
        ),
    ],
)
def test_the_line_below_an_answer_announces_no_compaction_while_a_restore_holds(
    restored: RestoredOut | None, coming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    context = context_out(will_trigger=True, next_action="compact", next_trigger="window", restored=restored)
    err = StringIO()

    AnswerView(Screen(out=TerminalScreen(80, 10), err=err)).show(
        RunCompleted(run=run_out(status="succeeded"), message=message_out(2), context=context)
    )

    assert f"3,000 of 8,192 tokens (37%) · {coming}" in err.getvalue()


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ONE_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00"), min_size=1)
EVENTS = st.lists(
    st.builds(ServerSentEvent, data=TEXT.map(lambda t: t.replace("\r", "\n")), event=ONE_LINE, id=ONE_LINE)
)


def serialise(event: ServerSentEvent, line_end: str) -> str:
    data = [f"data: {line}" for line in event.data.split("\n")]
    return line_end.join(["", ": comment", f"id: {event.id}", f"event: {event.event}", *data, "", ""])


def parse(stream: bytes, cuts: list[int] | None = None) -> list[ServerSentEvent]:
    parser = SseParser()
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    return [event for chunk in chunks for event in parser.feed(chunk)]


@given(EVENTS, st.sampled_from(["\n", "\r", "\r\n"]), st.lists(st.integers(0, 10_000)), st.sampled_from(["", "\ufeff"]))
def test_what_was_written_is_read_wherever_the_stream_is_cut(
    events: list[ServerSentEvent], line_end: str, cuts: list[int], mark: str
) -> None:
    body = mark + "".join(serialise(event, line_end) for event in events)

    assert parse(body.encode(), cuts) == events


@given(EVENTS.filter(bool), st.sampled_from(["\n", "\r\n"]))
def test_every_single_byte_may_be_its_own_chunk(events: list[ServerSentEvent], line_end: str) -> None:
    body = "".join(serialise(event, line_end) for event in events).encode()

    assert parse(body, list(range(len(body)))) == events


def test_an_event_is_given_out_as_soon_as_its_blank_line_ends_with_a_carriage_return() -> None:
    parser = SseParser()

    first = list(parser.feed(b"data: a\r\r"))
    second = list(parser.feed(b"\ndata: b\r\n\r\n"))

    assert [event.data for event in [*first, *second]] == ["a", "b"]
    assert len(first) == 1


def test_an_event_without_its_blank_line_is_dropped() -> None:
    assert parse(b"data: whole\n\ndata: half\n") == [ServerSentEvent("whole")]


def test_the_id_stays_in_force_until_another_comes_and_one_with_nul_is_ignored() -> None:
    assert [e.id for e in parse(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\x00\ndata: c\n\nid\ndata: d\n\n")] == [
        "1",
        "1",
        "1",
        "",
    ]


def test_odd_fields_and_events_without_data_are_handled_as_the_standard_says() -> None:
    assert parse(b"event: x\n\nfoo: bar\nretry: 3\n\ndata\n\ndata:  two\n\n") == [
        ServerSentEvent(""),
        ServerSentEvent(" two"),
    ]


PIECE = b" " * 1_000_000


class Endless(httpx.AsyncByteStream):
    """A body without end; `sent` counts its bytes."""

    def __init__(self) -> None:
        """Begin."""
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield one piece after the other."""
        while True:
            self.sent += len(PIECE)
            yield PIECE


def client_of(response: httpx.Response) -> ServiceClient:
    http = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: response),
        base_url="http://server.test",
        event_hooks={"response": [bound_reply]},
    )
    return ServiceClient(http, place="http://server.test")


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "application/json"), (500, "text/html"), (200, "text/event-stream")]
)
async def test_an_answer_without_end_is_read_up_to_a_bound(status: int, kind: str) -> None:
    body = Endless()
    client = client_of(httpx.Response(status, stream=body, headers={"content-type": kind}))

    with pytest.raises(
        UnexpectedReply, match=r"larger than 100,000,000 bytes, the most that the service sends. Check that"
    ):
        await client.sessions(SessionFilter(), limit=1)

    assert body.sent == MAX_REPLY_BYTES + len(PIECE)


async def test_a_compressed_answer_is_refused_without_reading_it() -> None:
    response = httpx.Response(200, content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})

    with pytest.raises(UnexpectedReply, match=r"compressed \(gzip\), although the request forbids it. Check the proxy"):
        await client_of(response).agents()


@pytest.mark.slow
def test_an_event_without_end_is_read_up_to_a_bound() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: first\n\ndata: second\ndata: ")) != []

    for _ in range(MAX_EVENT_BYTES // len(PIECE)):
        assert list(parser.feed(PIECE)) == []

    with pytest.raises(UnexpectedReply, match="the most that the service sends"):
        list(parser.feed(PIECE))
