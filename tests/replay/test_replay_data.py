"""The recorded conversations in the project are read whole, and chained as one real session would be."""

import itertools

import pytest

from benchmarks.replay_data import (
    CLOSING_ANSWER,
    SAMPLE,
    Conversation,
    Dataset,
    Json,
    Step,
    Turn,
    chain,
    merge_turns,
    tool_shapes,
)
from benchmarks.replay_messages import NOTHING_RETURNED, turns_of
from benchmarks.replay_readers import LOADERS, load_datasets


@pytest.fixture(scope="module")
def sample() -> dict[str, Dataset]:
    return load_datasets(SAMPLE)


def test_the_sample_holds_runs_with_tool_calls_and_meetings(sample: dict[str, Dataset]) -> None:
    calls = [call for turn in _turns(sample["tau-bench"]) for step in turn.steps for call in step.calls]

    assert set(sample) == set(LOADERS)
    assert len(calls) == 73
    assert len(_turns(sample["qmsum"])) > 500


def test_an_event_log_becomes_few_turns_of_many_calls_each_with_what_it_led_to(sample: dict[str, Dataset]) -> None:
    first, second = sample["openhands-events"].conversations
    calls = [call for step in first.turns[0].steps for call in step.calls]

    assert "OpenHands" in sample["openhands-events"].system_prompt
    assert [len(first.turns), len(calls), len(second.turns)] == [1, 22, 1]
    assert (calls[0].id, calls[0].name) == ("toolu_01", "execute_bash")
    assert calls[0].arguments == '{"command": "ls -l /workspace/ponylang__ponyc__0.1"}'
    assert calls[0].result.startswith("total ")
    older = [call for step in second.turns[0].steps for call in step.calls]
    assert {call.name for call in older} == {"run", "run_ipython"}
    assert older[0].arguments == '{"command": "ls -R /workspace"}'


def test_a_trajectory_is_read_with_its_calls_and_in_plain_text_alike(sample: dict[str, Dataset]) -> None:
    runs = sample["swe-agent-demos"].conversations
    calls = [[call.name for turn in run.turns for step in turn.steps for call in step.calls] for run in runs]

    assert sample["swe-agent-demos"].system_prompt.startswith("SETTING")
    assert [len(run.turns) for run in runs] == [4, 4, 1, 1]
    assert [len(names) for names in calls] == [0, 0, 5, 11]
    assert calls[2][:2] == ["find_file", "open"]


def test_a_channel_log_keeps_each_line_and_names_who_said_it(sample: dict[str, Dataset]) -> None:
    turns = _turns(sample["ubuntu-irc"])

    first = turns[0]
    assert len(turns) == 3000
    assert first.user.startswith(f"[01:26] <{first.authors[0]}> ")
    assert len({author for turn in turns for author in turn.authors}) > 300
    assert all(not turn.authors for turn in turns if turn.user.startswith("==="))


def test_a_step_without_calls_inside_a_turn_is_said_with_the_next_one() -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "assistant", "content": "before anybody asked"},
        {"role": "user", "content": " "},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "thinking"},
        {"role": "assistant", "content": "looking", "tool_calls": [call, {**call, "id": "unanswered"}]},
        {"role": "tool", "tool_call_id": "c1", "content": " "},
    ]

    [turn] = turns_of(messages)

    assert [step.text for step in turn.steps] == ["thinking\n\nlooking", CLOSING_ANSWER]
    assert [(call.id, call.result) for call in turn.steps[0].calls] == [("c1", NOTHING_RETURNED)]


def test_every_turn_ends_with_an_answer_and_every_result_says_something(sample: dict[str, Dataset]) -> None:
    turns = [turn for dataset in sample.values() for turn in _turns(dataset)]

    assert all(turn.user.strip() and turn.steps[-1].text and not turn.steps[-1].calls for turn in turns)
    assert all(step.calls for turn in turns for step in turn.steps[:-1])
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
    assert max(len(turn.authors) for turn in merged) > 1


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
