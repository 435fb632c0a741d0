"""The checks of streams and of what the model saw can fail, too."""

import random
from dataclasses import replace
from typing import Any

import httpx
import pytest

from chaos.calls import Call, check_calls, check_read, head_of
from chaos.findings import Fault
from chaos.messages import Name, answer_to, text_of
from chaos.readers import Event, Reader, check_reading
from chaos.stored import Stored, StoredEvent, StoredMessage, StoredSession

TEXT = text_of(Name("talk", 1))
ANSWER = answer_to(TEXT)
STORED = tuple(
    StoredEvent("r", seq, kind, data)
    for seq, (kind, data) in enumerate(
        (
            ("run.started", {}),
            ("message.delta", {"text": ANSWER[:9]}),
            ("message.delta", {"text": ANSWER[9:]}),
            ("run.completed", {}),
        ),
        start=1,
    )
)


def read(*numbers: int) -> Reader:
    reader = Reader(httpx.AsyncClient(), [], random.Random(1), cuts=0)
    for number in numbers:
        stored = STORED[number - 1]
        reader.events.append(Event(stored.seq, stored.type, dict(stored.data) or end_of("r")))
    reader.run_id = "r"
    return reader


def end_of(run_id: str) -> dict[str, Any]:
    """What an end shows; a start, which shows less, may show it too."""
    return {"run": {"id": run_id}, "message": {"content": ANSWER}}


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        pytest.param((1, 2, 3, 4), set(), id="all of it once"),
        pytest.param((1, 2, 4), {Fault.EVENTS, Fault.ANSWER}, id="one missed"),
        pytest.param((1, 2, 2, 3, 4), {Fault.EVENTS, Fault.DUPLICATED, Fault.ANSWER}, id="one twice"),
        pytest.param((1, 2, 3), {Fault.EVENTS}, id="the end missed"),
    ],
)
def test_a_reader_must_get_each_event_once(numbers: tuple[int, ...], faults: set[Fault]) -> None:
    assert {finding.fault for finding in check_reading(read(*numbers), TEXT, STORED)} == faults


def test_the_end_of_another_run_is_found() -> None:
    reader = read(1, 2, 3, 4)
    reader.events[-1] = replace(reader.events[-1], data=end_of("another"))

    assert {finding.fault for finding in check_reading(reader, TEXT, STORED)} == {Fault.ANSWER}


def calls(*spans: tuple[int, float, float]) -> list[Call]:
    return [Call(f"chaos:talk:{number}", "answer", began, ended) for number, began, ended in spans]


@pytest.mark.parametrize(
    ("spans", "faults"),
    [
        pytest.param([(1, 0, 1), (2, 1, 2)], set(), id="one after the other"),
        pytest.param([(1, 0, 2), (2, 1, 3)], {Fault.ORDER}, id="two at once"),
        pytest.param([(2, 0, 1), (1, 1, 2)], {Fault.ORDER}, id="in another order"),
        pytest.param([(1, 0, 1), (1, 2, 3), (2, 4, 5)], set(), id="one tried again"),
    ],
)
def test_the_model_must_see_the_turns_one_by_one_as_they_were_accepted(
    spans: list[tuple[int, float, float]], faults: set[Fault]
) -> None:
    order = {"chaos:talk": ["chaos:talk:1", "chaos:talk:2"]}

    assert {finding.fault for finding in check_calls(calls(*spans), order)} == faults


def test_a_request_the_model_refuses_is_found() -> None:
    refused = [Call("Invalid 'messages'", "refused", 0, 1)]

    assert [finding.fault for finding in check_calls(refused, {})] == [Fault.ANSWER]


def test_a_message_behind_the_cursor_that_no_summariser_was_shown_is_found() -> None:
    said = [StoredMessage(f"m{place}", "s", place, "user", f"{place} {TEXT}", "r") for place in (1, 2, 3)]
    stored = Stored((StoredSession("s", 3, 2),), tuple(said), ())
    first, second, other = ((place, head_of(said[index].content)) for place, index in ((1, 0), (2, 1), (2, 2)))

    def found(*shown: tuple[int, str]) -> list[Fault]:
        return [finding.fault for finding in check_read(stored, [Call("", "summary", 0, 1, frozenset(shown))])]

    assert found(first, second) == []
    assert found(first) == [Fault.UNREAD]
    assert found(first, other) == [Fault.UNREAD]
