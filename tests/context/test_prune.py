"""Pruning: old tool outputs become stubs, and no output before a call has seen it."""

from dataclasses import replace

from context.strategies import Said, conversation_input
from throughline.context.fit_prompt import fit_view
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy, PrunePolicy
from throughline.context.view.context_input import ContextInput
from throughline.domain.message import Role, ToolCall


def step(number: int, outputs: int, words: int) -> list[Said]:
    """One answer that calls so many tools at once, and what each of them returned."""
    calls = tuple(ToolCall(f"c{number}_{index}", "fetch", "{}") for index in range(outputs))
    results = [Said(Role.TOOL, "page " + "word " * words, tool_call_id=call.id) for call in calls]
    return [Said(Role.ASSISTANT, "", calls), *results]


def running(*steps: list[Said], policy: ContextPolicy | None = None) -> ContextInput:
    own = [Said(Role.USER, "compare the pages"), *(said for each in steps for said in each)]
    return conversation_input(own=own, user=None, window=128_000, policy=policy)


def pages_shown(context_input: ContextInput) -> list[int | None]:
    """Return the positions of the outputs that the next call sees."""
    messages = fit_view(plan_context(context_input).view).prompt.messages
    return [m.position for m in messages if m.role is Role.TOOL and str(m.content).startswith("page")]


def test_outputs_that_no_call_has_seen_are_shown_however_many_they_are() -> None:
    context_input = running(step(0, outputs=10, words=7600))

    assert plan_context(context_input).tokens > context_input.policy.prune.start * context_input.budget.window_tokens
    assert pages_shown(context_input) == list(range(3, 13))


def test_the_outputs_of_the_step_before_give_way_to_new_ones() -> None:
    context_input = running(step(0, outputs=10, words=5000), step(1, outputs=10, words=5000))

    assert pages_shown(context_input) == list(range(14, 24))


def test_outputs_that_were_seen_are_pruned_as_the_numbers_kept_say() -> None:
    several = [step(number, outputs=1, words=7600) for number in range(10)]
    few = ContextPolicy(prune=PrunePolicy(keep_last=2))

    assert pages_shown(running(*several)) == [13, 15, 17, 19, 21]
    assert pages_shown(running(*several, policy=few)) == [19, 21]
    assert pages_shown(running(*several, policy=replace(few, prune=PrunePolicy(keep_last=0)))) == [21]


def test_outputs_that_were_not_seen_are_shown_at_the_harder_prune_too() -> None:
    context_input = running(step(0, outputs=2, words=7600), step(1, outputs=12, words=7400))

    plan = plan_context(context_input)

    assert plan.fired == ("pruned",)
    assert plan.tokens > context_input.policy.prune.aggressive * context_input.budget.window_tokens
    assert pages_shown(context_input) == list(range(6, 18))
