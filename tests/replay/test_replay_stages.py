"""What a run's events tell of its prompts: where a stage came between two model calls, and what stayed the same."""

import json
from collections.abc import Mapping

import pytest

from benchmarks.replay_stages import Stage, Told, read_turn, stable_share, stage_flags

ADOPTED = {"cause": "threshold", "outcome": "adopted", "fired": ["pruned"], "through_position": 40}
ANSWERED = {"verdict": "answered"}
REFUSED = {"verdict": "over_window"}


def stream(*events: tuple[str, Mapping[str, object]]) -> str:
    """Write events as the service sends them, with a heartbeat between."""
    lines = (
        f"id: {seq}\nevent: {name}\ndata: {json.dumps(data)}\n\n: heartbeat\n\n"
        for seq, (name, data) in enumerate(events, 1)
    )
    return "".join(lines)


def test_a_stage_belongs_to_the_call_after_it() -> None:
    told = read_turn(
        stream(
            ("message.completed", {"message": {}}),
            ("tool.result", {}),
            ("context.compaction.started", {"cause": "threshold"}),
            ("context.compaction.finished", ADOPTED),
            ("message.delta", {"text": "event: run.failed"}),
            ("message.completed", {"message": {}}),
            ("run.completed", {"run": {}}),
        )
    )

    assert told.is_answered
    assert (told.stages, told.calls) == ([Stage("adopted", ("pruned",))], [0, 1])
    assert stage_flags(told, [ANSWERED, ANSWERED]) == [False, True]


def test_a_refused_prompt_and_the_smaller_one_after_it_are_one_call() -> None:
    told = Told("run.completed", stages=[Stage("adopted", ())], calls=[0, 1, 0])

    assert stage_flags(told, [ANSWERED, REFUSED, ANSWERED, ANSWERED]) == [False, True, True, False]


@pytest.mark.parametrize("ending", [[], [("run.failed", {"error": {"type": "quota"}})]])
def test_a_run_that_does_not_end_with_its_answer_is_not_answered(ending: list[tuple[str, dict[str, object]]]) -> None:
    told = read_turn(stream(("context.compaction.finished", ADOPTED), *ending))

    assert not told.is_answered
    assert told.error
    assert stage_flags(told, [ANSWERED]) == [True]


def request(shared: int, previous: int) -> dict[str, int]:
    return {"shared_bytes": shared, "previous_bytes": previous}


def test_a_beginning_that_changes_without_a_stage_is_seen() -> None:
    assert stable_share([(request(0, 0), False), (request(100, 100), False), (request(30, 100), True)]) == 1.0
    assert stable_share([(request(1000, 1000), False), (request(800, 1000), False), (request(0, 9000), True)]) == 0.9


def test_nothing_to_compare_is_no_change() -> None:
    assert stable_share([]) == stable_share([(request(0, 0), False)]) == 1.0
