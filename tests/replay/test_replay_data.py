"""The recorded conversations in the project are read whole, and chained as one real session would be."""

import itertools

import pytest

from benchmarks.replay import SAMPLE
from benchmarks.replay_data import Conversation, Dataset, Step, Turn, chain, load_datasets, merge_turns, tool_shapes


@pytest.fixture(scope="module")
def sample() -> dict[str, Dataset]:
    return load_datasets(SAMPLE)


def test_the_sample_holds_runs_with_tool_calls_and_meetings(sample: dict[str, Dataset]) -> None:
    calls = [call for turn in _turns(sample["tau-bench"]) for step in turn.steps for call in step.calls]

    assert set(sample) == {"tau-bench", "qmsum"}
    assert len(calls) == 73
    assert len(_turns(sample["qmsum"])) > 500


def test_every_turn_ends_with_an_answer_and_every_result_says_something(sample: dict[str, Dataset]) -> None:
    turns = [turn for dataset in sample.values() for turn in _turns(dataset)]

    assert all(turn.user and turn.steps[-1].text and not turn.steps[-1].calls for turn in turns)
    assert all(call.result.strip() for turn in turns for step in turn.steps for call in step.calls)


def test_a_chain_goes_on_for_ever_and_never_repeats_a_call_id(sample: dict[str, Dataset]) -> None:
    runs = sample["tau-bench"]
    turns = list(itertools.islice(chain(runs), 3 * len(_turns(runs))))

    ids = [call.id for turn in turns for step in turn.steps for call in step.calls]

    assert len(ids) == len(set(ids)) == 3 * 73
    assert max(map(len, ids)) <= 40


def test_short_lines_of_talk_are_joined_up_to_a_size_and_nothing_is_lost(sample: dict[str, Dataset]) -> None:
    lines = _turns(sample["qmsum"])

    merged = list(merge_turns(lines, 500))

    texts = "\n".join(turn.user for turn in merged)
    assert "\n".join(turn.user for turn in lines).startswith(texts)
    assert all(len(turn.user) >= 480 for turn in merged)


def test_tools_are_known_by_all_arguments_they_were_given(sample: dict[str, Dataset]) -> None:
    shapes = tool_shapes(sample.values())

    assert shapes["search_direct_flight"] == {"date": "str", "destination": "str", "origin": "str"}
    assert shapes["update_reservation_flights"]["flights"] == "list"


def test_a_turn_with_tool_calls_is_not_joined_to_the_next() -> None:
    working = Turn("do it", (Step("working"), Step("done")))

    merged = list(merge_turns([working, Turn("thanks", (Step("bye"),))], 1000))

    assert merged == [working]


def _turns(dataset: Dataset) -> list[Turn]:
    conversations: tuple[Conversation, ...] = dataset.conversations
    return [turn for conversation in conversations for turn in conversation.turns]
