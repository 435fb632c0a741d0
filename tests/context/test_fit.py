"""The last stage: never over, never invalid, the user's message there, the same bytes each time."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.prompt_judge import faults, positions, weigh
from context.strategies import COUNTS, PIECES, Said, by_bytes, by_length, conversation_input
from throughline.context.fit_prompt import FittedPrompt, MessageVariant, fit_prompt, fit_view
from throughline.context.measure import count_message
from throughline.context.plan_context import plan_context
from throughline.context.policy import ContextPolicy, PrunePolicy
from throughline.context.view.context_input import ContextInput
from throughline.context.view.shrink_message import cap_output, cut_to_bytes, shrink_message, truncate_middle
from throughline.domain.errors import PromptCannotFit
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall, text_of
from throughline.domain.prompt import PromptMessage
from throughline.llm.counters import make_counter


def fits(context_input: ContextInput, fitted: FittedPrompt) -> bool:
    return (
        weigh(fitted.prompt, context_input.tools_tokens, context_input.count, context_input.factor)
        <= context_input.budget.budget_tokens
    )


def tool_turn(results: Sequence[str], arguments: str = "{}") -> list[Said]:
    asked = tuple(ToolCall(f"id{number}", "search", arguments) for number in range(len(results)))
    answers = [Said(Role.TOOL, text, tool_call_id=call.id) for text, call in zip(results, asked, strict=True)]
    return [Said(Role.USER, "look it up"), Said(Role.ASSISTANT, "", asked), *answers]


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


@given(
    st.lists(st.builds(lambda piece, times: piece * times, st.sampled_from(PIECES), st.integers(1, 300)), max_size=5),
    st.integers(0, 500),
    st.sampled_from(COUNTS),
)
def test_the_result_never_takes_more_than_allowed(
    pieces: list[str], max_tokens: int, count: Callable[[str], int]
) -> None:
    text = "".join(pieces)

    cut = truncate_middle(text, max_tokens, count)

    assert cut == "" or count(cut) <= max_tokens
    assert cut == text or len(text) == 0 or count(text) > max_tokens or len(text) > 32 * max_tokens


@given(st.text(max_size=300), st.integers(1, 200))
def test_a_byte_cap_holds_for_any_text(text: str, max_bytes: int) -> None:
    cut = cut_to_bytes(text, max_bytes)

    head, _, tail = cut.partition("\n[… ")
    assert cut == text or len((head + tail.partition("…]\n")[2]).encode()) <= max_bytes


def test_head_and_tail_stay_and_the_mark_says_how_much_is_gone() -> None:
    text = "A" * 1000 + "B" * 1000

    cut = truncate_middle(text, 100, by_length, " of message #7")

    head, mark, tail = cut.split("\n")
    assert set(head) == {"A"}
    assert set(tail) == {"B"}
    assert mark == f"[… {2000 - len(head) - len(tail):,} characters of message #7 left out …]"
    assert by_length(cut) > 80


def test_ten_megabytes_are_cut_with_a_few_small_counts() -> None:
    seen: list[int] = []

    def spy(text: str) -> int:
        seen.append(len(text))
        return by_bytes(text)

    truncate_middle("汉字 abc " * 1_500_000, 1000, spy)

    assert len(seen) <= 10
    assert sum(seen) < 100_000


@pytest.mark.parametrize("text", ["word " * 20_000, "汉" * 30_000, " " * 60_000, "aGVsbG8K" * 9000])
def test_a_real_tokenizer_agrees(text: str) -> None:
    count = make_counter("tiktoken").count

    cut = truncate_middle(text, 500, count)

    assert 350 < count(cut) <= 500


@pytest.mark.parametrize("max_tokens", [50, 80, 100])
def test_arguments_that_are_no_json_are_cut_by_what_is_sent_for_them(max_tokens: int) -> None:
    message = PromptMessage(Role.ASSISTANT, "", (ToolCall("abcd", "search", '"' * 200),))

    shrunk = shrink_message(message, max_tokens, by_length)

    assert count_message(message, by_length) > 100
    assert count_message(shrunk, by_length) <= max_tokens


SHORT, LONG = TextBlock("short"), TextBlock("long " * 1_000)
IMAGE = ImageBlock("https://example.org/a.png")


def test_blocks_that_are_short_enough_are_returned_as_they_are() -> None:
    blocks = (SHORT, IMAGE)

    assert cap_output(blocks, 2_000, 1) is blocks


def test_of_several_blocks_only_the_long_ones_are_cut() -> None:
    capped = cap_output((SHORT, IMAGE, LONG), 2_000, 7)

    assert capped[:2] == (SHORT, IMAGE)
    cut = capped[2]
    assert isinstance(cut, TextBlock)
    assert len(cut.text) < len(LONG.text)
    assert "of message #7" in cut.text
