"""The engine's promises over random sessions; `make fuzz` plays many more."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.fuzz import play_and_judge
from context.mutants import MUTANTS, Mutant, broken_by, mutated
from context.play import Play
from context.strategies import Said, conversation_input
from fakes.growth import grows_linearly
from throughline.context.fit_prompt import fit_view
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy, Strategy
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Role, ToolCall

SESSIONS = 650
RARE_SESSIONS = (591, 957)
"""The first ones that show `no prune` and `a prepared cut may tear a group`; all other mutants show before 350."""

SEEDS_OF_PAST_FAULTS = (
    98_983,  # notes that left after the newest step was folded would have had room for it
    37_174,  # a newest step within a tool's share stays whole while older messages are trimmed
    1_026_656,  # a pin shown a few tokens above its level is cut further before the user's text is
    3_008_160,  # a pinned call's name alone is too much for a window of 200 tokens: the pin goes last
    3_029_039,  # calls that cannot be cut leave less for texts: one fitting is enough, the next changes nothing
    6_141_375,  # an image that was cut before needs no squeezing: its step is folded as it is
    6_119_125,  # the newest step is pinned: it stays, and the one before it is folded after it was squeezed
    3_035_875,  # a user's text that was cut to next to nothing does not grow again
)
SEEDS_OF_EVERY_RUN = (
    *range(20),
    *sorted({mutant.first for mutant in MUTANTS} - {*range(20)}),
    *SEEDS_OF_PAST_FAULTS,
)
"""The first ones, and those whose sessions break a promise if a known fault, past or of a mutant, is made again."""


@pytest.mark.slow
def test_the_sessions_that_would_reveal_known_faults_break_no_promise() -> None:
    assert play_and_judge(SEEDS_OF_EVERY_RUN).faults == []


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.timeout(1200)  # 25 s of both cores, which others may be using, too
def test_no_session_breaks_a_promise() -> None:
    assert play_and_judge((*range(SESSIONS), *RARE_SESSIONS)).faults == []


ALWAYS_PLAYED = {
    "no summary_shortened",  # a stage
    "no repair",
    "pins may be trimmed",
    "the new summary counts nothing",
    "a restore is undone",
}
"""One of each kind, and all of them show at once; the others are played by `make test-slow`."""


@pytest.mark.slow  # each is played in a process of its own
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in ALWAYS_PLAYED else pytest.mark.proof)
        for mutant in MUTANTS
    ],
)
def test_a_mutant_breaks_a_promise(mutant: Mutant, tmp_path: Path) -> None:
    assert broken_by(mutant, tmp_path).startswith("FAULT")


@pytest.mark.proof
@pytest.mark.slow
def test_the_engine_itself_breaks_none(tmp_path: Path) -> None:
    unchanged = Mutant("unchanged", "compaction/last_stages.py", "SQUEEZES = 3\n", "SQUEEZES = 3\n")

    assert broken_by(unchanged, tmp_path, sessions=100) == ""


def test_always_played_names_are_known_mutants() -> None:
    """A name that is none would leave its mutant to `make test-slow`, and nothing would tell."""
    assert {mutant.name for mutant in MUTANTS} >= ALWAYS_PLAYED


def test_each_mutant_follows_the_code() -> None:
    """Those that are not played do not lose what they replace."""
    assert all(mutated(mutant) for mutant in MUTANTS)


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
