"""Tool calls are passed on piece by piece while they arrive, and the pieces are together what the call is."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, ToolCallChunk

from fakes.model_calls import check_call_pieces, hear
from fakes.raw_http_server import anthropic_start, anthropic_stream, openai_stream
from throughline.domain.prompt import AnswerComplete, ToolCallDelta
from throughline.llm.assemble_answer import MOST_NAME_CHARACTERS, AnswerAssembly

CHARACTERS = st.sampled_from([*'{}":, 1aé\u200b', "\x00", "\ud83d", "\ude00", "\udfff"])
SENT_IDS = st.sampled_from(["", "c1", "c2", "call_0", "has blanks"])


def piece(index: int | None, text: str, call_id: str | None = None, name: str | None = None) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[ToolCallChunk(name=name, args=text, id=call_id, index=index)])


def assembled(chunks: Sequence[AIMessageChunk], *, reason: str = "tool_calls") -> tuple[list[object], AnswerComplete]:
    assembly = AnswerAssembly(adds_usage=False, max_call_characters=10_000, taken_ids={"call_0"})
    pieces = [event for chunk in chunks for event in assembly.add(chunk)]
    pieces += assembly.add(AIMessageChunk(content="", response_metadata={"finish_reason": reason}))
    return [*pieces, *assembly.flush()], assembly.finish("model")


@st.composite
def interleaved(draw: st.DrawFn) -> list[AIMessageChunk]:
    """Return the pieces of up to four calls, each in its order, between those of the others."""
    calls = [
        [piece(index, "", draw(SENT_IDS), f"tool_{index}"), *(piece(index, text) for text in draw(st.lists(TEXTS)))]
        for index in range(draw(st.integers(1, 4)))
    ]
    order = draw(st.permutations([number for number, call in enumerate(calls) for _ in call]))
    rests = [iter(call) for call in calls]
    return [next(rests[number]) for number in order]


TEXTS = st.text(CHARACTERS, max_size=4)


@given(interleaved())
def test_the_pieces_of_a_call_are_together_its_arguments(chunks: list[AIMessageChunk]) -> None:
    events, answer = assembled(chunks)

    pieces = [event for event in events if isinstance(event, ToolCallDelta)]
    assert len(pieces) == len(events)
    called = {call.id: call for call in answer.tool_calls}
    told = {piece.call_id for piece in pieces}
    for call in answer.tool_calls:
        joined = "".join(piece.text for piece in pieces if piece.call_id == call.id)
        assert joined == (call.arguments if call.id in told else "")
        assert call.id in told or call.arguments == "{}"
    assert told <= called.keys()
    assert all(piece.name == called[piece.call_id].name for piece in pieces)
    assert all(answer.tool_calls[piece.index].id == piece.call_id for piece in pieces)
    assert "call_0" not in called


def test_each_piece_is_passed_on_as_it_comes() -> None:
    events, _ = assembled([piece(0, "", "c1", "lookup"), piece(0, '{"q": '), piece(0, '"a"}')])

    assert events == [ToolCallDelta(0, "c1", "lookup", '{"q": '), ToolCallDelta(0, "c1", "lookup", '"a"}')]


def test_arguments_that_come_before_the_name_wait_for_it() -> None:
    events, _ = assembled([piece(0, "{", "c1"), piece(0, "}", name="lookup")])

    assert events == [ToolCallDelta(0, "c1", "lookup", "{}")]


def test_a_call_that_a_limit_cuts_off_is_passed_on_and_not_made() -> None:
    events, answer = assembled([piece(0, "{}", "c1", "a"), piece(1, '{"q', "c2", "b")], reason="length")

    assert [event.call_id for event in events if isinstance(event, ToolCallDelta)] == ["c1", "c2"]
    assert [call.id for call in answer.tool_calls] == ["c1"]


@pytest.mark.parametrize(("length", "told"), [(MOST_NAME_CHARACTERS, 2), (MOST_NAME_CHARACTERS + 1, 0)])
def test_a_call_with_a_name_longer_than_any_tools_comes_whole(length: int, told: int) -> None:
    """Each piece repeats the name, so that a long one would multiply the answer."""
    events, answer = assembled([piece(0, "{", "c1", "n" * length), piece(0, "}")])

    assert len(events) == told
    assert answer.tool_calls[0].arguments == "{}"


async def test_anthropics_pieces_are_passed_on() -> None:
    begun = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}
    pieces = ('{"q": ', '"a b"}')
    heard = await hear(
        anthropic_stream(
            anthropic_start(input_tokens=5),
            {"type": "content_block_start", "index": 0, "content_block": begun},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": part}}
                for part in pieces
            ),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ),
        "anthropic:claude-test",
    )

    assert heard.call_pieces == tuple(ToolCallDelta(0, "toolu_1", "lookup", text) for text in pieces)


async def test_a_call_that_comes_whole_is_one_piece() -> None:
    function = {"name": "lookup", "arguments": '{"q": "a"}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    said = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}

    heard = await hear(openai_stream(said))

    assert heard.call_pieces == (ToolCallDelta(0, "c1", "lookup", '{"q": "a"}'),)
    check_call_pieces(heard.call_pieces, heard.answer)
