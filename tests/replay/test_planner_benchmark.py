"""The planner's benchmark times what it says it times: each state does what its name says."""

import pytest

from benchmarks.planner import STATES, Timing, render
from benchmarks.planner_input import conversation, langchain_messages
from throughline.context.plan import plan_context


@pytest.mark.parametrize(
    ("state", "is_pruned", "is_cut"),
    [("at rest", False, False), ("pruning", True, False), ("compacting", False, True), ("over the window", True, True)],
)
def test_a_state_does_what_its_name_says(state: str, is_pruned: bool, is_cut: bool) -> None:  # noqa: FBT001  # cases
    plan = plan_context(conversation(1000, *STATES[state]))

    assert ("pruned" in plan.fired, bool(plan.decision.to_summarise)) == (is_pruned, is_cut)


def test_the_baseline_gets_the_same_messages() -> None:
    inp = conversation(100, "tau-bench", 0.5)

    given = list(langchain_messages(inp))

    assert [message.content for message in given[:-1]] == [row.content for row in inp.rows]
    assert len(inp.rows) in {99, 100}


def test_only_a_slow_planner_at_rest_fails_the_run() -> None:
    slow = Timing(1000, "at rest", "nothing", ours=(1.01, 2.0), baseline=(1.0, 1.0))

    assert slow.is_slow
    assert not Timing(1000, "compacting", "cut", ours=(9.0, 9.0), baseline=(1.0, 1.0)).is_slow
    assert not Timing(100, "at rest", "nothing", ours=(0.9, 2.0), baseline=(1.0, 1.0)).is_slow
    assert "| 1.01 | 2.00 | 1.01 | 1.00 | 1.00 |" in render([slow])
