"""What `Accept` asks for: a stream only where the client prefers it."""

import pytest

from throughline.http.headers import prefers_stream


@pytest.mark.parametrize(
    "accept",
    [
        "text/event-stream",
        "TEXT/Event-Stream ; q=0.5",
        "text/*",
        "text/event-stream, */*",
        "text/event-stream, application/json;q=0.9",
        "application/json;q=0.2, text/event-stream;q=0.3",
        "text/event-stream;charset=utf-8",
        "application/json;q=0, */*",
    ],
)
def test_a_stream_is_preferred(accept: str) -> None:
    assert prefers_stream([accept])


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "text/event-stream;q=0",
        "text/event-stream;q=0.0, */*",
        "text/event-stream;q=nonsense",
        "text/event-stream;q=nan",
        "application/json;x=text/event-stream",
        "text/event-streamer",
        "text/html, */*;q=0.8",
        ";q=1,,;",
    ],
)
def test_json_is_served(accept: str) -> None:
    assert not prefers_stream([accept])


def test_several_headers_are_read_as_one() -> None:
    assert not prefers_stream(["text/event-stream;q=0.5", "application/json"])
    assert prefers_stream(["text/event-stream", "application/json;q=0.5"])
    assert not prefers_stream([])
