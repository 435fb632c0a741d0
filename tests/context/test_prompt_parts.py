"""The parts of a prompt add up to it, and hold its text."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.strategies import Said, conversation_input
from throughline.context.policy import ContextPolicy
from throughline.context.preview import Preview, plan_next_call, preview_call
from throughline.context.prompt_parts import PromptPartKind
from throughline.context.quoted_history import Quotation
from throughline.context.summaries.kept_facts_text import FACTS_HEADING, INSTRUCTIONS_HEADING
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Role, ToolCall

SUMMARY = (
    f"[#1-#4]\nThey met.\n\n{INSTRUCTIONS_HEADING}\n- Be brief. [#1]\n\n{FACTS_HEADING}\nValues:\n- Port 5433 [#2]"
)


def preview(context_input: ContextInput) -> Preview:
    return preview_call(plan_next_call(context_input))


def texts(plan: Preview, kind: PromptPartKind) -> list[str]:
    return [part.shown_text for part in plan.parts if part.kind is kind]


def with_output(words: int) -> list[Said]:
    call = ToolCall("c1", "search", '{"q": "port"}')
    return [
        Said(Role.USER, "Search it."),
        Said(Role.ASSISTANT, "", (call,)),
        Said(Role.TOOL, "word " * words, tool_call_id="c1"),
        Said(Role.ASSISTANT, "Found."),
    ]


@given(
    number=st.integers(0, 120),
    words=st.integers(0, 120),
    summary=st.sampled_from(["", "They met.", SUMMARY]),
    factor=st.floats(0.7, 2.3),
    tools_tokens=st.integers(0, 300),
    is_automatic=st.booleans(),
)
def test_the_parts_of_a_prompt_add_up_to_its_tokens(
    number: int, words: int, summary: str, factor: float, tools_tokens: int, *, is_automatic: bool
) -> None:
    said = [Said(role, "word " * words) for _ in range(number) for role in (Role.USER, Role.ASSISTANT)]
    context_input = conversation_input(
        said,
        summary=summary,
        cursor=4 if summary else 0,
        factor=factor,
        tools_tokens=tools_tokens,
        policy=ContextPolicy(auto_summarize=is_automatic),
    )

    plan = preview(context_input)

    assert sum(part.tokens for part in plan.parts) == plan.tokens
    assert all(part.tokens >= 0 for part in plan.parts)


def test_the_system_message_is_divided_into_prompt_summary_and_kept_facts() -> None:
    context_input = conversation_input([Said(Role.USER, "Hi")], summary=SUMMARY, cursor=4)

    plan, shown = preview(context_input), plan_next_call(context_input).view.system
    whole = "".join(part.shown_text for part in plan.parts if part.message is None)

    assert texts(plan, PromptPartKind.SYSTEM) == ["You are a helpful assistant."]
    assert texts(plan, PromptPartKind.FACTS) == [SUMMARY.partition("They met.\n\n")[2]]
    assert texts(plan, PromptPartKind.SUMMARY)[0].endswith("[#1-#4]\nThey met.")
    assert "".join(whole.split()) == "".join(shown.split())


def test_messages_are_told_apart_by_how_the_prompt_shows_them() -> None:
    context_input = conversation_input([*with_output(400), Said(Role.USER, "Keep this."), Said(Role.ASSISTANT, "ok")])
    rows = tuple(replace(row, pinned=row.position == 5) for row in context_input.history)
    pruned = replace(context_input, history=rows, view_state=ViewState(pruned_through_position=3))

    plan = preview(pruned)

    assert texts(plan, PromptPartKind.PINNED) == ["Keep this."]
    assert [text[:10] for text in texts(plan, PromptPartKind.SHORTENED)] == ["[Output of"]
    assert texts(plan, PromptPartKind.WHOLE) == ["Search it.", 'search({"q": "port"})', "Found.", "ok"]
    assert texts(plan, PromptPartKind.NEXT) == ["And now?"]
    assert [shown.id for shown in plan.messages] == [row.id for row in rows]


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_quotations_are_a_part_of_their_own(factor: float) -> None:
    context_input = conversation_input([Said(Role.USER, "Hi")], summary=SUMMARY, cursor=4, factor=factor)
    earlier = replace(context_input.history[0], position=2, content="The port is 5433.")

    plan = preview_call(plan_next_call(context_input), [Quotation(earlier, "The port is 5433.", 1.0)])

    assert plan.quoted == (2,)
    assert "The port is 5433." in texts(plan, PromptPartKind.QUOTED)[0]
    assert sum(part.tokens for part in plan.parts) == plan.tokens


def test_a_preview_names_the_sizes_above_which_outputs_become_stubs() -> None:
    plan = preview(conversation_input([Said(Role.USER, "Hi")], window=10_000))

    assert plan.prune_tokens is not None
    assert plan.prune_tokens[0] < plan.prune_tokens[1] <= plan.budget_tokens
