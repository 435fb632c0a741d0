"""The replay's own judgement: what counts as lost, unread or unstable, and what fails the run."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.replay_check import Played, find_differences, find_unread
from benchmarks.replay_data import Call, Step, Turn
from benchmarks.replay_table import Row, failures_of, progress, render_table

CALL = Call("call_1", "look_up", '{"q": 1}', "found")
TURN = Turn("find it", (Step("", (CALL,)), Step("Here it is.")))
GOOD = Row(
    provider="openai",
    dataset="tau-bench",
    window="8k",
    counting="cl100k",
    turns=10,
    prompts=20,
    compactions=2,
    stages=(("pruned", 3), ("pruned_aggressively", 1)),
    largest_fill=0.75,
    over_window=0,
    failed_turns=0,
    invalid=0,
    differences=0,
    cursor=31,
    unread=0,
    stable_prefix=0.99,
    prompt_tokens=9000,
    repeated_tokens=5000,
    summary_calls=2,
    summary_tokens=1000,
    summary_written_tokens=300,
    full_history_price=11_600,
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


def test_a_message_whose_authors_were_not_kept_is_noticed() -> None:
    said = [Played(replace(TURN, authors=("ann",)), is_answered=True)]
    kept = [{**history()[0], "metadata": {"authors": ["ann"]}}, *history()[1:]]

    assert find_differences(said, kept) == []
    assert find_differences(said, history())


def summary_request(*positions: int, **more: object) -> dict[str, Any]:
    ended = {"verdict": "answered", "refusal": "", "is_whole": True}
    return {"line": "summariser", **ended, "positions": list(positions), **more}


def test_every_message_behind_the_cursor_that_some_summariser_was_shown_is_read() -> None:
    assert find_unread(0, []) == []
    assert find_unread(5, [summary_request(1, 2, 3), summary_request(3, 4, 5, 6)]) == []


def test_one_message_that_no_summariser_was_shown_is_found() -> None:
    assert find_unread(6, [summary_request(1, 2, 3), summary_request(5, 6)]) == [4]
    assert find_unread(7, [summary_request(1, 2, 3), summary_request(4, 5, 6)]) == [7]


@pytest.mark.parametrize(
    "ending",
    [
        {"verdict": "failed", "refusal": "reset"},
        {"verdict": "over_window", "refusal": "too long"},
        {"verdict": "invalid"},
        {"refusal": "empty"},
        {"is_whole": False},
        {"line": "a conversation's own"},
    ],
)
def test_what_was_shown_in_a_request_that_did_not_end_well_is_not_read(ending: dict[str, object]) -> None:
    assert find_unread(3, [summary_request(1, 2), summary_request(3, **ending)]) == [3]


def test_the_table_has_a_line_a_cell_and_calls_one_without_compactions_not_run() -> None:
    lines = render_table([GOOD, replace(GOOD, window="128k", compactions=0)]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert "75.0%" in lines[2]
    assert "pruned 3, pruned_aggressively 1" in lines[2]
    assert "not run" in lines[3]


def test_a_first_refusal_is_allowed_to_the_counting_nobody_knows_only() -> None:
    assert failures_of(GOOD) == []
    assert failures_of(replace(GOOD, counting="bytes2", over_window=1)) == []
    assert failures_of(replace(GOOD, over_window=1)) == ["openai tau-bench 8k cl100k: 1 prompts over the window"]
    assert failures_of(replace(GOOD, compactions=0)) == [
        "openai tau-bench 8k cl100k: no compaction: the cell shows nothing"
    ]
    assert len(failures_of(replace(GOOD, failed_turns=1, invalid=2, differences=3))) == 3


def test_an_unread_message_and_an_unstable_beginning_fail_the_run() -> None:
    assert failures_of(replace(GOOD, unread=1)) == [
        "openai tau-bench 8k cl100k: 1 messages behind the cursor that no summariser was shown"
    ]
    assert failures_of(replace(GOOD, stable_prefix=0.949)) == [
        "openai tau-bench 8k cl100k: only 94.9% of prompts stay between stages"
    ]


def test_the_line_of_progress_tells_what_a_table_would_for_a_run_that_is_stopped() -> None:
    line = progress(replace(GOOD, over_window=3, unread=2))

    assert line.startswith("10 turns, 20 prompts, 2 compactions, 3 over the window, 0 invalid, 2 unread, ")
    assert line.endswith("50% of full history's price, 99.0% stable")
