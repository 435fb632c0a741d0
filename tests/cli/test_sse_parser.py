from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from throughline.cli.answer_stream import ServerSentEvent, SseParser

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
