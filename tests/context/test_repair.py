"""Repair: any sequence becomes valid, a valid one stays, and doing it twice changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.prompt_judge import faults
from context.strategies import Said, conversation_input, conversations
from fakes.growth import grows_linearly
from throughline.context.fit_prompt import fit_prompt
from throughline.context.view.groups import EMPTY_USER_TEXT, MISSING_RESULT, OPENING, is_valid, repair_messages
from throughline.context.view.view_state import ViewState, range_at, truncated
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall, text_of
from throughline.domain.prompt import Prompt, PromptMessage
from throughline.domain.reasoning import MOST_BLANKS, SplitText, ThinkBlockSplitter

CALL = ToolCall("a", "search", "{}")


def messages(said: list[Said]) -> list[PromptMessage]:
    return [
        PromptMessage(item.role, item.content, item.tool_calls, item.tool_call_id, position=number)
        for number, item in enumerate(said, 1)
    ]


any_messages = conversations(2000).map(messages)
odd_messages = st.lists(
    st.builds(
        PromptMessage,
        st.sampled_from(tuple(Role)),
        st.sampled_from(("", " ", "text", (), (TextBlock(" "),), (TextBlock("t"), ImageBlock("https://e.org/i.png")))),
        st.sampled_from(((), (CALL,), (CALL, CALL), (ToolCall("", "x", ""), ToolCall("b", "y", "{}")))),
        st.sampled_from((None, "a", "b", "")),
    ),
    max_size=12,
)


@given(st.one_of(any_messages, odd_messages))
def test_any_sequence_becomes_valid(said: list[PromptMessage]) -> None:
    repaired = repair_messages(said)

    assert faults(Prompt("", repaired)) == []
    assert is_valid(repaired)


@given(st.one_of(any_messages, odd_messages))
def test_repairing_twice_changes_nothing_more(said: list[PromptMessage]) -> None:
    once = repair_messages(said)

    assert repair_messages(once) == once
    assert repair_messages(said) == once


@given(any_messages)
def test_the_order_of_all_but_late_results_is_kept(said: list[PromptMessage]) -> None:
    heads = [m.position for m in repair_messages(said) if m.role is not Role.TOOL and m.position is not None]

    assert heads == sorted(set(heads))


@given(odd_messages)
def test_the_quick_check_agrees_with_an_independent_judge(said: list[PromptMessage]) -> None:
    if is_valid(said):
        assert faults(Prompt("", tuple(said))) == []


def test_a_missing_result_is_made_up_and_a_second_one_left_out() -> None:
    asked = PromptMessage(Role.ASSISTANT, "", (CALL, ToolCall("b", "read", "{}")))
    answer = PromptMessage(Role.TOOL, "found", tool_call_id="b")

    repaired = repair_messages([PromptMessage(Role.USER, "go"), asked, answer, answer])

    assert [(m.tool_call_id, m.content) for m in repaired[2:]] == [("a", MISSING_RESULT), ("b", "found")]


def test_a_late_result_moves_to_its_call() -> None:
    said = [
        PromptMessage(Role.USER, "go"),
        PromptMessage(Role.ASSISTANT, "", (CALL,)),
        PromptMessage(Role.USER, "hello?"),
        PromptMessage(Role.TOOL, "found", tool_call_id="a"),
    ]

    assert [m.content for m in repair_messages(said)] == ["go", "", "found", "hello?"]


def test_an_id_used_again_gets_a_new_name_with_its_result() -> None:
    step = [PromptMessage(Role.ASSISTANT, "", (CALL,)), PromptMessage(Role.TOOL, "found", tool_call_id="a")]

    repaired = repair_messages([PromptMessage(Role.USER, "go"), *step, *step])

    assert [m.tool_call_id for m in repaired if m.role is Role.TOOL] == ["a", "a_2"]
    assert repaired[3].tool_calls[0].id == "a_2"


@given(st.lists(st.sampled_from(("a", "a_2", "a_2_2", "a_3", "", "call_2", "call")), max_size=30))
def test_ids_used_again_get_the_least_numbers_that_are_free(ids: list[str]) -> None:
    said = [PromptMessage(Role.ASSISTANT, "", (ToolCall(call_id, "search", "{}"),)) for call_id in ids]

    repaired = repair_messages([PromptMessage(Role.USER, "go"), *said])

    used: list[str] = []
    for call_id in ids:
        numbered = (f"{call_id or 'call'}_{number}" for number in range(2, 40))
        used.append(next(name for name in (call_id, *numbered) if name and name not in used))
    assert [call.id for message in repaired for call in message.tool_calls] == used


def test_ids_used_again_thousands_of_times_are_renamed_in_one_pass() -> None:
    renamed: list[str] = []

    class CountedId(str):
        """An id that notes each name that is tried for it."""

        __slots__ = ()

        def __format__(self, format_spec: str, /) -> str:
            renamed.append(self)
            return str(self)

    step = PromptMessage(Role.ASSISTANT, "", (ToolCall(CountedId("call_0"), "search", "{}"),))

    repair_messages([PromptMessage(Role.USER, "go"), *[step] * 2000])

    assert len(renamed) == 1999


def test_empty_texts_are_shown_or_left_out() -> None:
    repaired = repair_messages([PromptMessage(Role.USER, " \u200b"), PromptMessage(Role.ASSISTANT, "\n")])

    assert repaired == (PromptMessage(Role.USER, EMPTY_USER_TEXT),)


def test_a_prompt_never_begins_with_the_assistant() -> None:
    repaired = repair_messages([PromptMessage(Role.ASSISTANT, "and so on")])

    assert [m.content for m in repaired] == [OPENING, "and so on"]


def test_a_further_truncation_leaves_what_is_shorter_and_binds_nothing_later() -> None:
    state = truncated(truncated(ViewState(), 10, 300), 20, 4000)

    assert [state.truncated_to(position) for position in (1, 10, 11, 20, 21)] == [300, 300, 4000, 4000, None]
    assert truncated(state, 30, 200).truncations == ((30, 200),)
    assert truncated(state, 15, 500).truncations == ((10, 300), (15, 500), (20, 4000))


def test_a_position_is_found_in_the_range_that_holds_it() -> None:
    ranges = ((3, 5), (8, 8))

    assert [range_at(ranges, position) for position in (2, 3, 5, 6, 8, 9)] == [None, (3, 5), (3, 5), None, (8, 8), None]


def test_a_new_report_gets_the_room_there_is_however_short_older_messages_were_cut() -> None:
    before = [Said(Role.USER, "write it"), Said(Role.ASSISTANT, "line " * 600)]
    call = ToolCall("c", "read", "{}")
    asked = [Said(Role.USER, "read it"), Said(Role.ASSISTANT, "", (call,))]
    own = [*asked, Said(Role.TOOL, "report " * 4000, tool_call_id="c")]
    old = ViewState(truncations=((2, 60),))

    fitted = fit_prompt(replace(conversation_input(before, own, None), view_state=old))

    assert fitted.notes == ("messages_truncated",)
    assert len(text_of(fitted.prompt.messages[-1].content)) > 15_000
    assert len(text_of(fitted.prompt.messages[1].content)) < 250
    assert fitted.view_state.truncations[0] == (2, 60)


WHOLE: list[tuple[str, SplitText]] = [
    ("Hello", SplitText(text="Hello")),
    ("<think>I see.</think>Hello", SplitText("I see.", "Hello")),
    ("\n <think>\nI see.\n</think>\n\nHello\n", SplitText("\nI see.\n", "Hello\n")),
    ("<thinking>a < b</thinking> Hello", SplitText("a < b", "Hello")),
    ("[THINK]I see.[/THINK]Hello", SplitText("I see.", "Hello")),
    ("<think>one</think>\n<think>two</think>\nHello", SplitText("onetwo", "Hello")),
    ("<think></think>\n\nHello", SplitText(text="Hello")),
    ("<think>It never ends. </thin", SplitText("It never ends. </thin")),
    ("<think>a</thinking>b</think>c", SplitText("a</thinking>b", "c")),
    ("Write <think>x</think> yourself.", SplitText(text="Write <think>x</think> yourself.")),
    ("```\n<think>x</think>\n```", SplitText(text="```\n<think>x</think>\n```")),
    ("<thinks>no tag</thinks>", SplitText(text="<thinks>no tag</thinks>")),
    ("<reasoning>asked for</reasoning>", SplitText(text="<reasoning>asked for</reasoning>")),
    ("I see.\n</think>\nHello", SplitText(text="I see.\n</think>\nHello")),
    ("  <thi", SplitText(text="  <thi")),
    ("   ", SplitText(text="   ")),
    (f"{' ' * (MOST_BLANKS + 1)}<think>x</think>", SplitText(text=f"{' ' * (MOST_BLANKS + 1)}<think>x</think>")),
]


def split(pieces: list[str]) -> SplitText:
    splitter = ThinkBlockSplitter()
    found = [*(splitter.feed(piece) for piece in pieces), splitter.flush()]
    return SplitText("".join(one.reasoning for one in found), "".join(one.text for one in found))


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_only_blocks_at_the_very_beginning_are_reasoning(text: str, expected: SplitText) -> None:
    assert split([text]) == expected


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_the_cut_into_pieces_does_not_matter(text: str, expected: SplitText) -> None:
    assert split(list(text)) == expected


@given(st.text(alphabet="<think>/ ab\n", max_size=40), st.integers(1, 7))
def test_any_text_is_split_the_same_in_pieces(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]

    assert split(pieces) == split([text])


def test_reasoning_is_returned_while_it_arrives() -> None:
    splitter = ThinkBlockSplitter()

    assert splitter.feed("<think>The first words, </").reasoning == "The first words, "
    assert splitter.feed("b> and more.</think>Yes").reasoning == "</b> and more."


def test_after_a_stop_a_tag_is_text() -> None:
    splitter = ThinkBlockSplitter()
    held = splitter.feed(" <thi")
    splitter.stop()

    assert (held, splitter.feed("nk>x</think>")) == (SplitText(), SplitText(text=" <think>x</think>"))


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["a", "<", "</think", "\n"])
def test_the_time_is_linear_in_the_pieces(piece: str) -> None:
    assert grows_linearly(lambda pieces: split(["<think>", *pieces]), lambda count: [piece] * count, 20_000)
