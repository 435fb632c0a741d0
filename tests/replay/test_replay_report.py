"""The replay's own judgement: what counts as a lost message, and what fails the run."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.replay_check import Played, find_differences
from benchmarks.replay_data import Call, Step, Turn
from benchmarks.replay_table import Row, failures_of, render_table

CALL = Call("call_1", "look_up", '{"q": 1}', "found")
TURN = Turn("find it", (Step("", (CALL,)), Step("Here it is.")))
GOOD = Row(
    dataset="tau-bench",
    window="8k",
    counting="cl100k",
    turns=10,
    prompts=20,
    compactions=2,
    largest_fill=0.75,
    over_window=0,
    refused_turns=0,
    failed_turns=0,
    invalid=0,
    summary_calls=2,
    summary_tokens=1000,
    prompt_tokens=9000,
    full_history_tokens=20_000,
    stable_prefix=0.9,
    turns_per_second=12.5,
    differences=0,
)


def stored(position: int, role: str, content: str, **more: object) -> dict[str, Any]:
    return {"position": position, "role": role, "content": content, "tool_calls": [], "tool_call_id": None, **more}


def history() -> list[dict[str, Any]]:
    call = {"id": CALL.id, "name": CALL.name, "arguments": CALL.arguments}
    return [
        stored(1, "user", "find it"),
        stored(2, "assistant", "", tool_calls=[call]),
        stored(3, "tool", "found", tool_call_id="call_1"),
        stored(4, "assistant", "Here it is."),
    ]


def test_a_history_that_holds_everything_has_no_differences() -> None:
    assert find_differences([Played(TURN, is_answered=True)], history()) == []


@pytest.mark.parametrize("place", range(4))
def test_a_lost_or_changed_message_is_noticed(place: int) -> None:
    lost = [message for index, message in enumerate(history()) if index != place]
    changed = [*history()[:place], {**history()[place], "content": "other"}, *history()[place + 1 :]]

    assert find_differences([Played(TURN, is_answered=True)], lost)
    assert find_differences([Played(TURN, is_answered=True)], changed)


def test_a_turn_that_failed_may_have_stored_its_first_messages_only() -> None:
    assert find_differences([Played(TURN, is_answered=False)], history()[:3]) == []


def test_the_table_has_one_line_for_each_cell_and_calls_a_cell_without_compactions_not_run() -> None:
    lines = render_table([GOOD, replace(GOOD, window="128k", compactions=0)]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert "75.0%" in lines[2]
    assert "not run" in lines[3]


def test_a_first_refusal_is_allowed_to_the_counting_nobody_knows_only() -> None:
    assert failures_of(GOOD) == []
    assert failures_of(replace(GOOD, counting="bytes2", over_window=1)) == []
    assert failures_of(replace(GOOD, over_window=1)) == ["tau-bench 8k cl100k: 1 prompts over the window"]
    assert failures_of(replace(GOOD, compactions=0)) == ["tau-bench 8k cl100k: no compaction: the cell shows nothing"]
    assert len(failures_of(replace(GOOD, failed_turns=1, invalid=2, differences=3))) == 3
