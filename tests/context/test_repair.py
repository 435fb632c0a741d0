"""Repair: any sequence becomes valid, a valid one stays, and doing it twice changes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from context.prompt_judge import faults
from context.strategies import Said, conversations
from throughline.context.view.groups import EMPTY_USER_TEXT, MISSING_RESULT, OPENING, is_valid, repair_messages
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import Prompt, PromptMessage

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
