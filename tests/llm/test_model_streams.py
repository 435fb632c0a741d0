import asyncio
import gc
from dataclasses import replace

import pytest

from fakes.model_calls import CONFIG, IMPATIENT, address_for, hear, refusal_of, simple_request
from fakes.raw_http_server import EVENT_STREAM, Answer, anthropic_start, anthropic_stream, openai_stream, serve_raw
from fakes.waiting import HANG_SECONDS, until
from throughline.domain.errors import AnswerIncomplete, AnswerTooLong, ModelRefused, ModelTimeout, ModelUnavailable
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage, TextPiece, ToolSpec
from throughline.llm.assemble_answer import MOST_CALLS
from throughline.llm.registry import ModelRegistry

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"
TOOL = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {"q": {"type": "string"}}})
USAGE = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}}


def chunk(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}


def said(*texts: str, finish: str | None = "stop") -> list[dict[str, object]]:
    return [*(chunk({"role": "assistant", "content": text}) for text in texts), chunk({}, finish)]


def calls(*pieces: dict[str, object], finish: str = "tool_calls") -> Answer:
    return openai_stream(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, finish))


def piece(index: int | None, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, object]:
    function: dict[str, object] = {"arguments": arguments}
    if name is not None:
        function["name"] = name
    fields: dict[str, object] = {"type": "function", "function": function}
    if call_id is not None:
        fields["id"] = call_id
    return fields if index is None else {**fields, "index": index}


def anthropic_answer(stop_reason: str | None, text: str = "Hello") -> Answer:
    ending: list[dict[str, object]] = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"input_tokens": 7, "output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    start = anthropic_start(input_tokens=7)
    opened: dict[str, object] = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    delta: dict[str, object] = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    return anthropic_stream(start, opened, delta, *(ending if stop_reason else []))


def google_answer(body: str) -> Answer:
    return Answer([f"data: {body}\r\n\r\n"], content_type=EVENT_STREAM)


async def test_an_answer_is_streamed_and_then_complete() -> None:
    heard = await hear(openai_stream(*said("Hel", "lo"), USAGE))

    assert heard.pieces == ("Hel", "lo")
    assert heard.answer.text == "Hello"
    assert heard.answer.finish_reason == "stop"
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (12, 3)


@pytest.mark.parametrize("absurd", [-5, 10**20])
async def test_usage_that_cannot_be_true_is_ignored(absurd: int) -> None:
    broken = {"choices": [], "usage": {"prompt_tokens": absurd, "completion_tokens": absurd, "total_tokens": absurd}}

    heard = await hear(openai_stream(*said("Hello"), USAGE, broken))

    assert heard.answer.text == "Hello"
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (12, 3)


async def test_a_compatible_server_is_asked_with_max_tokens_and_for_usage() -> None:
    heard = await hear(openai_stream(*said("ok")))

    assert heard.sent["max_tokens"] == 100
    assert heard.sent["stream_options"] == {"include_usage": True}
    assert heard.sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


async def test_a_character_split_over_two_pieces_arrives_whole() -> None:
    heard = await hear(openai_stream(*said("Hi \ud83d", "\ude00!")))

    assert heard.pieces == ("Hi ", "😀!")
    assert heard.answer.text == "Hi 😀!"


async def test_half_a_character_at_the_end_and_nul_are_replaced() -> None:
    heard = await hear(openai_stream(*said("a\x00b", "\ud83d")))

    assert heard.answer.text == "a\ufffdb\ufffd"
    assert "".join(heard.pieces) == heard.answer.text


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(openai_stream(chunk({"content": "Hel"}), done=False), id="ends without a finish reason"),
        pytest.param(openai_stream(chunk({"content": "Hel"}), done=True), id="done without a finish reason"),
        pytest.param(openai_stream(*said("")), id="empty"),
        pytest.param(openai_stream(*said(" \n\u200b")), id="only white space"),
        pytest.param(openai_stream({"choices": []}), id="no choices"),
        pytest.param(openai_stream(*said("Hel", finish="error")), id="a finish reason that is none"),
        pytest.param(openai_stream(*said("", finish="length")), id="all tokens spent on nothing"),
        pytest.param(calls(piece(0, '{"q": "a', "c1", "lookup"), finish="length"), id="only a cut tool call"),
    ],
)
async def test_what_is_no_whole_answer_is_incomplete(answer: Answer) -> None:
    error = await refusal_of(answer)

    assert type(error) is AnswerIncomplete


async def test_a_connection_cut_in_the_middle_is_a_passing_failure() -> None:
    error = await refusal_of(openai_stream(chunk({"content": "Hel"}), is_cut=True))

    assert type(error) is ModelUnavailable


async def test_a_text_cut_at_the_token_limit_is_an_answer() -> None:
    heard = await hear(openai_stream(*said("Once upon", finish="length")))

    assert (heard.answer.text, heard.answer.finish_reason) == ("Once upon", "length")


@pytest.mark.parametrize(
    "events",
    [
        [chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop")],
        said("Some te", finish="content_filter"),
    ],
)
async def test_a_refusal_is_told_as_one(events: list[dict[str, object]]) -> None:
    error = await refusal_of(openai_stream(*events))

    assert type(error) is ModelRefused


async def test_tool_call_arguments_are_kept_as_the_model_wrote_them() -> None:
    heard = await hear(calls(piece(0, '{"q":', "c1", "lookup"), piece(0, ' "a b" }')))

    assert heard.answer.tool_calls == (ToolCall("c1", "lookup", '{"q": "a b" }'),)
    assert heard.answer.text == ""


async def test_long_arguments_that_are_no_json_take_time_proportional_to_their_length() -> None:
    half = "x" * 500_000

    heard = await hear(calls(piece(0, half, "c1", "lookup"), piece(0, half)))

    assert [len(call.arguments) for call in heard.answer.tool_calls] == [1_000_000]


async def test_calls_that_go_on_for_ever_are_stopped_while_they_come_in() -> None:
    half = "x" * 501

    error = await refusal_of(
        calls(piece(0, half, "c1", "lookup"), piece(0, half)), request=replace(simple_request(), max_answer_bytes=1_000)
    )

    assert type(error) is AnswerTooLong
    assert "1,000 characters" in error.detail


async def test_pieces_of_many_calls_that_take_turns_come_together_by_index_and_id() -> None:
    first = [piece(number // 2, "{", f"c{number}", "lookup") for number in range(6)]
    second = [piece(number // 2, "}", f"c{number}") for number in range(6)]
    without_id = [piece(number, " ") for number in range(3)]

    heard = await hear(calls(*first, *second, *without_id))

    assert [(call.id, call.arguments) for call in heard.answer.tool_calls] == [
        ("c0", "{}"),
        ("c1", "{} "),
        ("c2", "{}"),
        ("c3", "{} "),
        ("c4", "{}"),
        ("c5", "{} "),
    ]


async def test_an_answer_has_as_many_calls_as_are_allowed_and_not_one_more() -> None:
    most = [piece(number, "{}", f"c{number}", "lookup") for number in range(MOST_CALLS)]

    heard = await hear(calls(*most))
    error = await refusal_of(calls(*most, piece(MOST_CALLS, "{}", "last", "lookup")))

    assert len(heard.answer.tool_calls) == MOST_CALLS
    assert type(error) is AnswerTooLong


async def test_unparsable_arguments_reach_the_tool_node_and_missing_ones_are_empty() -> None:
    heard = await hear(calls(piece(0, '{"q": oops', "c1", "lookup"), piece(1, "", "c2", "lookup")))

    assert [call.arguments for call in heard.answer.tool_calls] == ['{"q": oops', "{}"]


async def test_a_tool_call_cut_at_the_token_limit_is_dropped_and_the_text_kept() -> None:
    events = [chunk({"content": "Let me see."}), chunk({"tool_calls": [piece(0, '{"q": "a', "c1", "lookup")]})]

    heard = await hear(openai_stream(*events, chunk({}, "length")))

    assert heard.answer.text == "Let me see."
    assert heard.answer.tool_calls == ()


async def test_tool_calls_without_index_or_with_the_same_index_are_told_apart() -> None:
    heard = await hear(
        calls(piece(None, "{}", "c1", "first"), piece(0, "{}", "c2", "second"), piece(0, "{}", "c3", "third"))
    )

    assert [(call.id, call.name) for call in heard.answer.tool_calls] == [
        ("c1", "first"),
        ("c2", "second"),
        ("c3", "third"),
    ]


async def test_missing_used_and_unusable_tool_call_ids_are_replaced_by_unique_ones() -> None:
    used = ToolCall("call_0", "lookup", "{}")
    prompt = Prompt(
        "",
        (
            PromptMessage(Role.USER, "go"),
            PromptMessage(Role.ASSISTANT, "", tool_calls=(used,)),
            PromptMessage(Role.TOOL, "found", tool_call_id="call_0", name="lookup"),
        ),
    )
    answer = calls(
        piece(0, "{}", "call_0", "a"),
        piece(1, "{}", None, "b"),
        piece(2, "{}", "same", "c"),
        piece(3, "{}", "same", "d"),
        piece(4, "{}", "has blanks and ü", "e"),
    )

    heard = await hear(answer, request=ModelRequest(prompt, (TOOL,), 100))

    ids = [call.id for call in heard.answer.tool_calls]
    assert len(set(ids)) == 5
    assert "call_0" not in ids
    assert ids[2] == "same"
    assert all(call_id.isascii() and " " not in call_id for call_id in ids)


async def test_stored_messages_of_any_kind_are_sent_in_a_form_providers_accept() -> None:
    prompt = Prompt(
        "",
        (
            PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock("data:image/png;base64,AA=="))),
            PromptMessage(
                Role.ASSISTANT,
                "",
                tool_calls=(ToolCall("c1", "web.search now", '{"q": oops'), ToolCall("c2", "", '{"n": NaN}')),
            ),
            PromptMessage(Role.TOOL, "bad arguments", tool_call_id="c1", name="web.search now"),
            PromptMessage(Role.TOOL, "", tool_call_id="c2"),
        ),
    )

    heard = await hear(openai_stream(*said("ok")), request=ModelRequest(prompt, (), 100))

    messages = heard.sent["messages"]
    assert isinstance(messages, list)
    user, assistant, first, second = messages
    assert [block["type"] for block in user["content"]] == ["text", "image_url"]
    functions = [call["function"] for call in assistant["tool_calls"]]
    assert functions == [
        {"name": "web_search_now", "arguments": '{"_raw": "{\\"q\\": oops"}'},
        {"name": "unknown_tool", "arguments": '{"_raw": "{\\"n\\": NaN}"}'},
    ]
    assert (first["content"], second["content"]) == ("bad arguments", "(no output)")


async def test_silence_before_the_first_token_is_a_timeout_and_hangs_up() -> None:
    registry = ModelRegistry(IMPATIENT)
    async with serve_raw(openai_stream(hangs=True)) as server:
        model = registry.get("gpt-4o", address_for("gpt-4o", server))

        with pytest.raises(ModelTimeout, match=r"0\.3 seconds"):
            await anext(model.stream(simple_request()))

        await asyncio.wait_for(server.hung_up.wait(), HANG_SECONDS)
        await registry.close()


async def test_silence_between_tokens_is_a_timeout() -> None:
    error = await refusal_of(openai_stream(chunk({"content": "Hel"}), hangs=True), config=IMPATIENT)

    assert type(error) is ModelTimeout


@pytest.mark.parametrize("model_name", ["gpt-4o", ANTHROPIC])
async def test_closing_the_stream_early_hangs_up_on_the_provider(model_name: str) -> None:
    whole = (
        openai_stream(chunk({"content": "Hel"}), hangs=True) if model_name == "gpt-4o" else anthropic_answer("end_turn")
    )
    registry = ModelRegistry(CONFIG)
    async with serve_raw(replace(whole, pieces=list(whole.pieces)[:3], hangs=True)) as server:
        stream = registry.get(model_name, address_for(model_name, server)).stream(simple_request())

        first = await anext(stream)
        await stream.aclose()

        assert first == TextPiece(first.text if isinstance(first, TextPiece) else "")
        await asyncio.wait_for(server.hung_up.wait(), HANG_SECONDS)
        await registry.close()
        gc.collect()


async def test_cancelling_the_reader_cancels_the_call() -> None:
    registry = ModelRegistry(CONFIG)
    async with serve_raw(openai_stream(hangs=True)) as server:
        stream = registry.get("gpt-4o", address_for("gpt-4o", server)).stream(simple_request())
        reading = asyncio.ensure_future(anext(stream))
        await until(lambda: bool(server.requests))

        reading.cancel()

        with pytest.raises(asyncio.CancelledError):
            await reading

        await asyncio.wait_for(server.hung_up.wait(), HANG_SECONDS)
        await registry.close()


async def test_anthropic_answers_are_read() -> None:
    heard = await hear(anthropic_answer("end_turn"), ANTHROPIC)

    assert (heard.answer.text, heard.answer.finish_reason) == ("Hello", "end_turn")
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (7, 4)
    assert heard.sent["max_tokens"] == 100
    assert heard.sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize(
    ("stop_reason", "expected"), [(None, AnswerIncomplete), ("refusal", ModelRefused), ("pause_turn", AnswerIncomplete)]
)
async def test_anthropic_answers_that_are_none_are_refused(stop_reason: str | None, expected: type[Exception]) -> None:
    error = await refusal_of(anthropic_answer(stop_reason), ANTHROPIC)

    assert type(error) is expected


async def test_gemini_answers_are_read() -> None:
    body = (
        '{"candidates": [{"content": {"parts": [{"text": "Hello"}], "role": "model"}, "finishReason": "STOP"}],'
        ' "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 1, "totalTokenCount": 5}}'
    )

    heard = await hear(google_answer(body), GEMINI)

    assert (heard.answer.text, heard.answer.finish_reason) == ("Hello", "STOP")
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (4, 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"promptFeedback": {"blockReason": "SAFETY"}}', ModelRefused),
        ('{"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}', AnswerIncomplete),
        ('{"candidates": [{"finishReason": "PROHIBITED_CONTENT"}]}', ModelRefused),
    ],
)
async def test_gemini_answers_that_are_none_are_refused(body: str, expected: type[Exception]) -> None:
    error = await refusal_of(google_answer(body), GEMINI)

    assert type(error) is expected
