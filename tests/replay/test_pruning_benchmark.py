"""The benchmark of pruning plays recorded runs, and sees a prompt that no answer could follow."""

import pytest

from benchmarks.planner_input import SAMPLE
from benchmarks.pruning import OFF, ON, Session, main, play
from benchmarks.replay_readers import load_datasets


def test_pruning_writes_fewer_summaries_and_every_prompt_can_be_answered() -> None:
    runs = load_datasets(SAMPLE)["tau-bench"]

    on, off = play(runs, 8192, ON), play(runs, 8192, OFF)

    assert on.faults == off.faults == []
    assert on.stages["pruned"] > 0 == off.stages["pruned"]
    assert on.stages["summarised"] < off.stages["summarised"]
    assert 0 < on.uncached_tokens < on.tokens


def test_an_output_that_should_be_whole_and_is_not_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "outputs_kept", lambda *_: 50)
    runs = load_datasets(SAMPLE)["tau-bench"]

    assert "is not shown whole" in play(runs, 8192, ON).faults[0]


def test_the_table_has_a_line_for_each_set_and_window(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--datasets", "tau-bench", "--windows", "8k"]) == 0

    assert "| tau-bench | 8k | " in capsys.readouterr().out
