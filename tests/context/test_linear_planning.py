"""Planning takes time in proportion to the rows it is given, and nothing that lies before the cursor but pins."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.play import Play
from context.strategies import Said, conversation_input
from fakes.growth import grows_linearly
from throughline.context.fit_prompt import fit_view
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy, Strategy
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Role, ToolCall

ROWS = 1_000
TEXT = "word " * 40


def talk(rows: int) -> list[Said]:
    return [Said((Role.USER, Role.ASSISTANT)[number % 2], TEXT) for number in range(rows)]


def steps(rows: int, *, call_id: str = "c{}") -> list[Said]:
    said = [Said(Role.USER, "Look it all up.")]
    for number in range(rows // 2):
        call = ToolCall(call_id.format(number), "search", "{}")
        said += [Said(Role.ASSISTANT, "", (call,)), Said(Role.TOOL, TEXT * 3, tool_call_id=call.id)]
    return said


def parallel(rows: int) -> list[Said]:
    calls = tuple(ToolCall(f"c{number}", "search", "{}") for number in range(rows))
    answers = [Said(Role.TOOL, TEXT, tool_call_id=call.id) for call in calls]
    return [Said(Role.USER, "Look it all up."), Said(Role.ASSISTANT, "", calls), *answers]


def given_input(said: Sequence[Said], share: float, *, is_running: bool = False, **policy: object) -> ContextInput:
    """Return the messages in a window of which they take the share."""
    rules = ContextPolicy(max_messages_before_summary=10**6, max_tokens_before_summary=10**9, **policy)  # type: ignore[arg-type]  # by name
    window = int(sum(70 for _ in said) / share)
    history, own = ((), said) if is_running else (said, ())
    return conversation_input(history, own, None if is_running else "And now?", window=window, policy=rules)


def pinned(context_input: ContextInput) -> ContextInput:
    return replace(
        context_input, history=tuple(replace(row, pinned=row.position % 3 == 0) for row in context_input.history)
    )


def with_ranges(context_input: ContextInput) -> ContextInput:
    every_tenth = tuple((row.position, row.position + 2) for row in context_input.history[::10])
    return replace(
        context_input, view_state=ViewState(folded=every_tenth, left_out=every_tenth, truncations=every_tenth)
    )


CASES: dict[str, Callable[[int], ContextInput]] = {
    "at rest": lambda rows: given_input(talk(rows), 0.5),
    "tool outputs to prune": lambda rows: given_input(steps(rows), 0.9),
    "a cut to find": lambda rows: given_input(talk(rows), 0.9),
    "twice the window": lambda rows: given_input(talk(rows), 2.0, auto_summarize=False),
    "one giant turn": lambda rows: given_input(steps(rows), 2.0, is_running=True),
    "one giant step": lambda rows: given_input(parallel(rows), 2.0, is_running=True),
    "calls of one id": lambda rows: given_input(steps(rows, call_id="call_0"), 0.5),
    "every third message pinned": lambda rows: pinned(given_input(talk(rows), 0.9)),
    "many ranges": lambda rows: with_ranges(given_input(talk(rows), 0.5)),
    "truncation": lambda rows: given_input(talk(rows), 0.9, strategy=Strategy.TRUNCATION),
    "importance": lambda rows: given_input(talk(rows), 0.9, strategy=Strategy.IMPORTANCE),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_planning_and_fitting_take_time_in_proportion_to_the_rows(case: str) -> None:
    assert grows_linearly(lambda context_input: fit_view(plan_context(context_input).view), CASES[case], ROWS)


@pytest.mark.slow
@given(st.integers(0, 2**40))
def test_what_lies_before_the_cursor_changes_nothing(seed: int) -> None:
    for step in Play(seed):
        raw = step.raw
        known = {row.position for row in (*raw.pinned, *raw.history, *raw.own)}
        before = (row for row in step.rows[: raw.summary_through_position] if row.position not in known)
        whole = replace(raw, history=(*(row for row in before if not row.pinned), *raw.history))

        planned = plan_context(whole, forced=step.forced)

        assert planned.view.messages == step.plan.view.messages
        assert (planned.decision.trigger, planned.decision.to_summarise) == (
            step.plan.decision.trigger,
            step.plan.decision.to_summarise,
        )
