"""The strategies `truncation` and `importance`: what leaves the view, and how much has to be said before more does."""

from dataclasses import replace

import pytest

from context.strategies import Said, conversation_input
from throughline.context.fit_prompt import MessageVariant, fit_view
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy, ImportanceWeights, Strategy
from throughline.context.preview import preview_call
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Role

TURNS = 60


def stages(policy: ContextPolicy, window: int, tokens: int) -> list[int]:
    """Play turns of two messages of so many tokens each; return in which something was taken away."""
    said: list[Said] = []
    state, found = ViewState(), []
    for number in range(TURNS):
        words = "word " * (tokens * 4 // 5)
        context_input = replace(conversation_input(said, (), words, window=window, policy=policy), view_state=state)
        plan = plan_context(context_input)
        fitted = fit_view(plan.view)
        state = fitted.view_state
        found += [number] if plan.fired or fitted.notes else []
        said += [Said(Role.USER, words), Said(Role.ASSISTANT, words)]
    return found


@pytest.mark.parametrize("strategy", [Strategy.TRUNCATION, Strategy.IMPORTANCE])
@pytest.mark.parametrize(("window", "tokens"), [(8192, 270), (16_384, 550), (16_384, 1500)])
def test_a_stage_comes_after_a_fifth_of_the_window_was_said(strategy: Strategy, window: int, tokens: int) -> None:
    found = stages(ContextPolicy(strategy=strategy), window, tokens)

    said = TURNS * 2 * tokens
    assert 1 <= len(found) <= said / (0.19 * window)


def test_the_newest_messages_stay_where_they_leave_room_to_go_on() -> None:
    said = [Said(role, "word " * 80) for _ in range(40) for role in (Role.USER, Role.ASSISTANT)]

    assert shown(said, keep_recent=20) == 19
    assert shown(said, keep_recent=50) == 38  # down to the target


def shown(said: list[Said], keep_recent: int) -> int:
    policy = ContextPolicy(strategy=Strategy.TRUNCATION, keep_recent=keep_recent)
    return sum(message.position is not None for message in plan_context(asked(said, policy)).view.messages)


def asked(said: list[Said], policy: ContextPolicy) -> ContextInput:
    return conversation_input(said, policy=policy)


@pytest.mark.parametrize("strategy", [Strategy.TRUNCATION, Strategy.IMPORTANCE])
def test_next_to_nothing_is_not_taken_away(strategy: Strategy) -> None:
    said = [Said(role, "ok") for _ in range(10) for role in (Role.USER, Role.ASSISTANT)]
    context_input = conversation_input(said, user="word " * 4700, policy=ContextPolicy(strategy=strategy))

    plan = plan_context(context_input)

    assert plan.tokens > context_input.budget.threshold_tokens
    assert plan.fired == ()


def test_a_preview_shows_what_each_message_scores_and_what_is_left_out_below() -> None:
    said = [Said(Role.USER, "word " * 160), Said(Role.ASSISTANT, "ok"), Said(Role.ASSISTANT, "word " * 160)] * 30
    weights = ImportanceWeights(user=0.8, long_answer=0.5)
    policy = ContextPolicy(strategy=Strategy.IMPORTANCE, importance=weights, min_score_threshold=0.2)

    plan = preview_call(asked(said, policy))
    other = preview_call(asked(said, ContextPolicy()))

    assert plan.min_score_threshold == 0.2
    assert [one.score for one in plan.messages[:3]] == [0.8, 0.1, 0.5]
    trimmed = {one.score for one in plan.messages if one.form is MessageVariant.TRIMMED}
    assert 0.1 in trimmed
    assert all(one.form is MessageVariant.TRIMMED for one in plan.messages[:-20] if one.score == 0.1)
    assert {one.score for one in other.messages} == {None}
    assert other.min_score_threshold is None
