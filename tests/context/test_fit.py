"""The last stage: never over, never invalid, the user's message there, the same bytes each time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from context.prompt_judge import faults, positions, weigh
from context.strategies import Said, by_bytes, by_length, conversation_input, inputs, well_formed_turns
from throughline.context.fit_prompt import FittedPrompt, MessageVariant, fit_prompt
from throughline.context.policy import ContextPolicy
from throughline.context.view.context_input import ContextInput
from throughline.domain.errors import PromptCannotFit
from throughline.domain.message import Content, Role, TextBlock, ToolCall, is_blank, text_of
from throughline.domain.prompt import PromptMessage


def fits(context_input: ContextInput, fitted: FittedPrompt) -> bool:
    return (
        weigh(fitted.prompt, context_input.tools_tokens, context_input.count, context_input.factor)
        <= context_input.budget.budget_tokens
    )


def tool_turn(results: Sequence[str], arguments: str = "{}") -> list[Said]:
    asked = tuple(ToolCall(f"id{number}", "search", arguments) for number in range(len(results)))
    answers = [Said(Role.TOOL, text, tool_call_id=call.id) for text, call in zip(results, asked, strict=True)]
    return [Said(Role.USER, "look it up"), Said(Role.ASSISTANT, "", asked), *answers]


@pytest.mark.slow
@given(inputs())
def test_every_prompt_keeps_what_is_promised_of_it(context_input: ContextInput) -> None:
    """One test: to draw a conversation takes several times as long as to fit it."""
    fitted = fit_prompt(context_input)

    not_over_the_budget(context_input, fitted)
    valid_and_in_order(fitted)
    holds_the_users_current_message(context_input, fitted)
    accounts_for_every_stored_message(context_input, fitted)
    assert fit_prompt(replace(context_input)) == fitted, "the same input gives the same bytes"


def not_over_the_budget(context_input: ContextInput, fitted: FittedPrompt) -> None:
    assert weigh(fitted.prompt, context_input.tools_tokens, context_input.count, context_input.factor) == fitted.tokens
    assert fitted.tokens <= context_input.budget.budget_tokens


def valid_and_in_order(fitted: FittedPrompt) -> None:
    prompt = fitted.prompt
    heads = [m.position for m in prompt.messages if m.role is not Role.TOOL and m.position is not None]
    assert faults(prompt) == []
    assert heads == sorted(heads)
    assert len(set(positions(prompt))) == len(positions(prompt))


def holds_the_users_current_message(context_input: ContextInput, fitted: FittedPrompt) -> None:
    current = context_input.user or context_input.own[0]
    text = first_text(current.content)
    place = getattr(current, "position", None)
    shown = [m for m in fitted.prompt.messages if m.role is Role.USER and m.position == place]
    if is_blank(text):
        assert shown
    else:
        assert any(begins_alike(text_of(message.content), text) for message in shown)


def first_text(content: Content) -> str:
    """The text, or the first block that is not blank."""
    if isinstance(content, str):
        return content
    return next((block.text for block in content if isinstance(block, TextBlock) and not is_blank(block.text)), "")


def begins_alike(shown: str, text: str) -> bool:
    """The same text, or its beginning, or where there is hardly any room a mark in its place."""
    return text.strip()[:3] in shown or "left out" in shown or shown == "[…]"


def accounts_for_every_stored_message(context_input: ContextInput, fitted: FittedPrompt) -> None:
    shown = {item.position: item.form for item in fitted.shown}
    visible = set(positions(fitted.prompt))
    assert list(shown) == [row.position for row in context_input.rows]
    for position, form in shown.items():
        assert (position in visible) is (form in {MessageVariant.WHOLE, MessageVariant.TRUNCATED})


@given(st.lists(well_formed_turns(8192), min_size=1, max_size=8), st.integers(0, 40))
def test_prompts_grow_at_their_end_while_no_rung_fires(turns: list[list[Said]], at: int) -> None:
    said = [item for turn in turns for item in turn]
    at = min(at, len(said))
    while at < len(said) and said[at].role is Role.TOOL:
        at += 1
    earlier = fit_prompt(conversation_input(said[:at], user=None, window=1_000_000))
    later = fit_prompt(conversation_input(said, user=None, window=1_000_000))
    assume(not earlier.notes and not later.notes)

    assert later.prompt.system == earlier.prompt.system
    assert later.prompt.messages[: len(earlier.prompt.messages)] == earlier.prompt.messages


def test_everything_is_shown_whole_while_it_fits() -> None:
    said = [Said(Role.USER, "Hello"), Said(Role.ASSISTANT, "Hi"), *tool_turn(["found"]), Said(Role.ASSISTANT, "Here")]

    fitted = fit_prompt(conversation_input(said, user="Thanks"))

    assert [text_of(message.content) for message in fitted.prompt.messages] == [
        "Hello", "Hi", "look it up", "", "found", "Here", "Thanks",
    ]  # fmt: skip
    assert fitted.notes == ()
    assert {item.form for item in fitted.shown} == {MessageVariant.WHOLE}


def test_stored_counts_are_not_taken_again() -> None:
    context_input = conversation_input([Said(Role.USER, "word " * 10), Said(Role.ASSISTANT, "fine")] * 50)
    counted: list[str] = []

    def spy(text: str) -> int:
        counted.append(text)
        return by_length(text)

    fit_prompt(replace(context_input, count=spy))

    assert all("word" not in text for text in counted)


def test_another_counters_counts_are_not_trusted() -> None:
    context_input = conversation_input([Said(Role.USER, "x" * 40_000), Said(Role.ASSISTANT, "fine")])
    cheap = tuple(replace(row, token_count=1, counter="another") for row in context_input.history)

    fitted = fit_prompt(replace(context_input, history=cheap))

    assert fits(context_input, fitted)
    assert fitted.notes


def test_a_huge_tool_output_is_shown_middle_out_even_in_an_empty_window() -> None:
    output = "HEAD" + "x" * 200_000 + "TAIL"

    fitted = fit_prompt(conversation_input(own=tool_turn([output]), user=None, window=1_000_000))

    shown = text_of(fitted.prompt.messages[-1].content)
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    assert "150,008 characters of message #3 left out" in shown
    assert fitted.notes == ()
    assert fitted.shown[-1].form is MessageVariant.TRUNCATED


def test_a_big_old_message_is_truncated_before_anything_is_trimmed() -> None:
    said = [Said(Role.USER, "short question"), Said(Role.ASSISTANT, "y" * 60_000)]

    fitted = fit_prompt(conversation_input(said, user="next"))

    assert fitted.notes == ("messages_truncated",)
    assert text_of(fitted.prompt.messages[0].content) == "short question"


def test_the_oldest_groups_go_first_and_a_note_names_them() -> None:
    said = [Said(role, f"{number} " * 60) for number in range(100) for role in (Role.USER, Role.ASSISTANT)]

    fitted = fit_prompt(conversation_input(said, user="next"))

    first, second = fitted.prompt.messages[:2]
    assert fitted.notes == ("oldest_trimmed",)
    assert second.position is not None
    assert text_of(first.content) == f"[Earlier messages #1-#{second.position - 1} are not shown here.]"
    assert positions(fitted.prompt) == list(range(second.position, 201))


def test_fifty_parallel_results_are_squeezed_rather_than_hidden() -> None:
    own = tool_turn([f"result {number} " + "z" * 4000 for number in range(50)])

    fitted = fit_prompt(conversation_input(own=own, user=None))

    assert fits(conversation_input(own=own, user=None), fitted)
    assert fitted.notes == ("messages_truncated", "messages_squeezed")
    assert text_of(fitted.prompt.messages[2].content).startswith("result 0")


def test_running_steps_are_folded_when_nothing_else_helps() -> None:
    own = [Said(Role.USER, "look everything up")]
    for number in range(200):
        call = ToolCall(f"c{number}", "search", "{}")
        own += [Said(Role.ASSISTANT, "", (call,)), Said(Role.TOOL, "found " * 20, tool_call_id=call.id)]

    fitted = fit_prompt(conversation_input(own=own, user=None, window=4096))

    note = text_of(fitted.prompt.messages[1].content)
    assert fitted.notes[-1] == "steps_folded"
    assert text_of(fitted.prompt.messages[0].content) == "look everything up"
    assert note.startswith("[Steps #2-#")
    assert fitted.prompt.messages[-1].position == 401


def test_giant_call_arguments_are_cut_to_valid_json() -> None:
    own = tool_turn(["fine"], arguments='{"code": "' + "q" * 90_000 + '"}')

    fitted = fit_prompt(conversation_input(own=own, user=None))

    shown = fitted.prompt.messages[1].tool_calls[0].arguments
    assert shown.startswith('{"_truncated": "')
    assert shown.endswith('"}')
    assert fitted.shown[1].form is MessageVariant.TRUNCATED


def test_a_users_text_of_ten_windows_is_cut_visibly_and_the_rest_stays() -> None:
    said = [Said(Role.USER, "my name is Ada"), Said(Role.ASSISTANT, "Hello Ada")]

    fitted = fit_prompt(conversation_input(said, user="BEGIN" + "汉" * 81_920 + "END", count=by_bytes))

    last = text_of(fitted.prompt.messages[-1].content)
    assert last.startswith("BEGIN")
    assert last.endswith("END")
    assert "characters left out" in last
    assert text_of(fitted.prompt.messages[0].content) == "my name is Ada"


def test_a_long_summary_gives_way_before_messages_do() -> None:
    said = [Said(Role.USER, "m " * 400), Said(Role.ASSISTANT, "n " * 400)]

    fitted = fit_prompt(conversation_input(said, summary="fact. " * 5000, cursor=10, window=8192))

    assert fitted.notes == ("summary_shortened",)
    assert "left out" in fitted.prompt.system


def test_the_running_users_message_stays_when_the_cursor_has_passed_it() -> None:
    own = tool_turn(["first", "second"])
    context_input = conversation_input(own=own, user=None)
    behind = replace(context_input, summary="what happened", summary_tokens=4, summary_through_position=2)

    fitted = fit_prompt(behind)

    assert text_of(fitted.prompt.messages[0].content) == "look it up"


def test_a_result_whose_call_was_summarised_is_left_out() -> None:
    context_input = conversation_input(own=tool_turn(["first"]), user=None)
    behind = replace(context_input, summary="what happened", summary_tokens=4, summary_through_position=2)

    fitted = fit_prompt(behind)

    assert [item.form for item in fitted.shown] == [MessageVariant.WHOLE, MessageVariant.LEFT_OUT]
    assert faults(fitted.prompt) == []


def test_a_system_prompt_beyond_the_window_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(PromptCannotFit, match="shorten the system prompt"):
        fit_prompt(conversation_input(system_prompt="rule " * 10_000, window=4096))


def test_nothing_said_yet_is_an_empty_prompt() -> None:
    fitted = fit_prompt(conversation_input(user=None))

    assert fitted.prompt.messages == ()


def test_a_tiny_window_still_shows_the_user_something() -> None:
    policy = ContextPolicy(response_reserve=64)

    fitted = fit_prompt(
        conversation_input(user="help " * 500, window=256, policy=policy, summary="s " * 900, cursor=9, factor=1.15)
    )

    assert isinstance(fitted.prompt.messages[-1], PromptMessage)
    assert "help" in text_of(fitted.prompt.messages[-1].content)


def test_a_users_text_that_all_but_fills_the_window_is_cut_last_and_the_note_stays() -> None:
    said = [Said(Role.USER, "earlier " * 40)] * 3

    fitted = fit_prompt(conversation_input(said, user="x" * 24_470))

    assert fitted.notes == ("oldest_trimmed", "user_text_truncated")
    assert text_of(fitted.prompt.messages[0].content) == "[Earlier messages #1-#3 are not shown here.]"


def test_the_summary_is_left_out_before_the_users_text_is_cut() -> None:
    fitted = fit_prompt(conversation_input(user="x" * 23_000, summary="fact " * 1100, cursor=10))

    assert fitted.notes == ("summary_dropped",)
    assert fitted.prompt.system == "You are a helpful assistant."
    assert text_of(fitted.prompt.messages[0].content) == "[Earlier messages #1-#10 are not shown here.]"


def test_where_notes_take_all_the_room_they_give_way() -> None:
    own = [*tool_turn(["found " * 40]), *tool_turn(["found " * 40])[1:]]

    fitted = fit_prompt(conversation_input([Said(Role.USER, "hi")], own, None, window=64))

    assert fitted.notes[-1] == "notes_dropped"
    assert [text_of(message.content) for message in fitted.prompt.messages] == ["look it up"]


def test_one_huge_output_does_not_hide_earlier_rows_when_the_first_are_not_loaded() -> None:
    said = [*(Said(Role.USER, f"text {number}") for number in range(6)), *tool_turn(["word " * 20_000])]
    whole = conversation_input([*said, Said(Role.ASSISTANT, "found")], policy=ContextPolicy(auto_summarize=False))
    context_input = replace(whole, history=whole.history[2:])

    shown = fit_prompt(context_input).prompt.messages

    assert {3, 4, 5, 6} <= {message.position for message in shown}
