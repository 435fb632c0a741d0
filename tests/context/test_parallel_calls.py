"""A step with several calls is never torn from its results, wherever a summary or a prompt ends."""

from dataclasses import replace

import pytest

from context.prompt_judge import anthropic_faults, faults
from context.strategies import Said, conversation_input
from context.test_plan import adopt, not_torn, turns
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.fit_prompt import fit_prompt
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy
from throughline.domain.message import Role, ToolCall

MOST_CALLS = 8


def parallel(calls: int, words: int) -> list[Said]:
    """Return a turn with one step of so many calls, whose results were stored in another order."""
    asked = tuple(ToolCall(f"c{number}", "search", "{}") for number in range(calls))
    order = [*asked[1::2], *asked[0::2]]
    results = [Said(Role.TOOL, "word " * words, tool_call_id=call.id) for call in order]
    return [Said(Role.USER, "look everywhere"), Said(Role.ASSISTANT, "", asked), *results, Said(Role.ASSISTANT, "done")]


@pytest.mark.parametrize("calls", range(2, MOST_CALLS + 1))
def test_two_summaries_in_a_row_end_beside_a_step_wherever_they_would_cut_it(calls: int) -> None:
    group = parallel(calls, words=30)
    ends = set()
    for recent in range(1, calls + 8):
        context_input = conversation_input(
            [*turns(4), *group, *turns(2)], policy=ContextPolicy(min_recent_messages=recent, target=0.2)
        )
        for trigger in (CompactionTrigger.MANUAL, CompactionTrigger.OVERFLOW):
            plan = plan_context(context_input, forced=trigger)
            if plan.decision.through_position is None:
                continue
            ends.add(plan.decision.through_position)
            assert not_torn(context_input.rows, plan.decision.through_position)
            context_input = adopt(context_input, plan, "They looked.")
            prompt = fit_prompt(context_input).prompt
            assert faults(prompt) == []
            assert anthropic_faults(prompt) == []

    assert len(ends) > 1


@pytest.mark.parametrize("calls", range(2, MOST_CALLS + 1))
def test_a_prompt_that_has_room_for_part_of_a_step_shows_no_call_without_its_result(calls: int) -> None:
    context_input = conversation_input([*turns(2), *parallel(calls, words=120), *turns(12)])
    whole = fit_prompt(context_input).tokens
    shown = set()
    for window in range(600, 2 * whole, max(whole // 40, 1)):
        narrow = replace(
            context_input,
            budget=conversation_input(window=window, policy=context_input.policy).budget,
        )
        prompt = fit_prompt(narrow).prompt
        assert faults(prompt) == []
        assert anthropic_faults(prompt) == []
        shown.add(sum(len(message.tool_calls) for message in prompt.messages))

    assert shown >= {0, calls}


@pytest.mark.parametrize("given", range(MOST_CALLS))
def test_a_turn_that_was_cancelled_between_its_results_leaves_valid_prompts(given: int) -> None:
    group = parallel(MOST_CALLS, words=30)[: 2 + given]
    context_input = conversation_input([*turns(4), *group, *turns(2)])

    plan = plan_context(context_input, forced=CompactionTrigger.MANUAL)
    for one in (context_input, adopt(context_input, plan, "They looked.")):
        prompt = fit_prompt(one).prompt
        assert faults(prompt) == []
        assert anthropic_faults(prompt) == []
