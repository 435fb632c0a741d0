"""What models send as reasoning, on each wire: read apart from the answer, and streamed before it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, Heard, hear, refusal_of, simple_request
from fakes.raw_http_server import EVENT_STREAM, Answer, anthropic_start, anthropic_stream, openai_stream, serve_raw
from throughline.domain.errors import AnswerIncomplete, AnswerTooLong
from throughline.domain.message import Role
from throughline.domain.prompt import (
    NO_PARAMETERS,
    AnswerComplete,
    ModelParameters,
    ModelRequest,
    Prompt,
    PromptMessage,
    ReasoningPiece,
    TextPiece,
    ToolSpec,
)
from throughline.llm.openai_wire import make_openai
from throughline.llm.registry import ModelRegistry
from throughline.llm.translate_messages import to_langchain, wants_content

THOUGHT = "First 😀, then second."
PIECES = ("First \ud83d", "\ude00, then ", "second.")
"""The same in pieces, the first of which ends within a character."""


def openai_answer(*deltas: Mapping[str, object], finish: str = "stop") -> Answer:
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    ending = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return openai_stream(*events, ending)


def members(name: str) -> Answer:
    """Reasoning in a member of the deltas, then the answer."""
    return openai_answer(
        {"role": "assistant", "content": ""},
        *({name: piece, "content": None} for piece in PIECES),
        {name: None, "content": "Yes."},
    )


def details(*, with_text: bool) -> Answer:
    """OpenRouter's parts of reasoning, alone or beside the text that they have too."""
    parts = [
        {"reasoning_details": [{"type": "reasoning.text", "text": piece, "index": 0, "signature": None}]}
        for piece in PIECES
    ]
    beside = [{"reasoning": piece} if with_text else {} for piece in PIECES]
    opaque = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "b64", "index": 1}]}
    return openai_answer(
        *({**part, **text} for part, text in zip(parts, beside, strict=True)), opaque, {"content": "Yes."}
    )


def anthropic_answer(*blocks: Sequence[dict[str, object]]) -> Answer:
    """Content blocks, each opened by its first item; the others are its deltas."""
    events: list[dict[str, object]] = [anthropic_start(input_tokens=7)]
    for index, (opened, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    usage: dict[str, object] = {"input_tokens": 7, "output_tokens": 4}
    stopped = {"stop_reason": "end_turn", "stop_sequence": None}
    return anthropic_stream(
        *events, {"type": "message_delta", "delta": stopped, "usage": usage}, {"type": "message_stop"}
    )


THINKING: list[dict[str, object]] = [
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "First 😀, "},
    {"type": "thinking_delta", "thinking": "then second."},
    {"type": "signature_delta", "signature": "c2lnbmVk"},
]
TEXT: list[dict[str, object]] = [{"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."}]
REDACTED: list[dict[str, object]] = [{"type": "redacted_thinking", "data": "b64"}]
GEMINI_SAYS = (
    '{"candidates": [{"content": {"role": "model", "parts": [{"text": "First 😀, ", "thought": true}]}}]}',
    '{"candidates": [{"content": {"role": "model", "parts": [{"text": "then second.", "thought": true}]}}]}',
    '{"candidates": [{"content": {"role": "model", "parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]}',
)

WIRES: list[tuple[str, str, Answer]] = [
    ("DeepSeek, SGLang, llama.cpp, Qwen", "some-model", members("reasoning_content")),
    ("vLLM, Ollama, LM Studio", "some-model", members("reasoning")),
    ("others", "some-model", members("thinking")),
    ("OpenRouter", "some-model", details(with_text=True)),
    ("parts alone", "some-model", details(with_text=False)),
    ("in the text", "some-model", openai_answer({"content": f"<think>{THOUGHT}</th"}, {"content": "ink>\n\nYes."})),
    ("Anthropic", "anthropic:claude-test", anthropic_answer(REDACTED, THINKING, TEXT)),
    (
        "Gemini",
        "google_genai:gemini-test",
        Answer([f"data: {body}\r\n\r\n" for body in GEMINI_SAYS], content_type=EVENT_STREAM),
    ),
]


@pytest.mark.parametrize(("model", "answer"), [pytest.param(*wire[1:], id=wire[0]) for wire in WIRES])
async def test_reasoning_is_read_apart_from_the_answer(model: str, answer: Answer) -> None:
    heard = await hear(answer, model)

    assert "".join(heard.reasoning) == THOUGHT
    assert "".join(heard.pieces) == heard.answer.text == "Yes."
    assert heard.answer.reasoning is not None
    assert heard.answer.reasoning.text == THOUGHT


async def test_reasoning_comes_before_the_text_and_in_pieces() -> None:
    registry = ModelRegistry(CONFIG)
    async with serve_raw(members("reasoning")) as server:
        model = registry.get("some-model", f"{server.url}/v1")
        events = [event async for event in model.stream(simple_request())]
        await registry.close()

    kinds = [type(event) for event in events]
    assert kinds == [ReasoningPiece, ReasoningPiece, ReasoningPiece, TextPiece, AnswerComplete]


async def test_a_summary_of_reasoning_by_openais_newer_api_is_read() -> None:
    heard = await _hear_responses(
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"id": "rs_1", "type": "reasoning", "summary": []},
        },
        *_summary_part(0, "First"),
        *_summary_part(1, "Second"),
    )

    assert heard.answer.reasoning is not None
    assert heard.answer.reasoning.text == "First\n\nSecond"
    assert heard.answer.text == "Yes."


def _summary_part(number: int, text: str) -> list[dict[str, object]]:
    where: dict[str, object] = {"item_id": "rs_1", "output_index": 0, "summary_index": number}
    return [
        {"type": "response.reasoning_summary_part.added", **where, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **where, "delta": text},
    ]


RESPONSE: dict[str, object] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5-codex",
    "output": [],
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 11,
    },
}
"""What ends an answer of the Responses API."""


async def _hear_responses(*events: dict[str, object]) -> Heard:
    """Ask a model that LangChain asks over the Responses API, at the address in OpenAI's own variable."""
    text: dict[str, object] = {
        "item_id": "msg_1",
        "output_index": 1,
        "content_index": 0,
        "delta": "Yes.",
        "logprobs": [],
    }
    numbered: list[dict[str, object]] = [
        *events,
        {"type": "response.output_text.delta", **text},
        {"type": "response.completed", "response": RESPONSE},
    ]
    registry = ModelRegistry(CONFIG)
    answer = openai_stream(*({**event, "sequence_number": n} for n, event in enumerate(numbered)), done=False)
    async with serve_raw(answer) as server:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OPENAI_API_KEY", "test-key")
            environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            model = registry.get("openai:gpt-5-codex")
            *deltas, last = [event async for event in model.stream(simple_request())]
        await registry.close()
    assert isinstance(last, AnswerComplete)
    thought = tuple(event.text for event in deltas if isinstance(event, ReasoningPiece))
    return Heard((), last, server.requests[0], thought)


async def test_a_tag_that_a_server_with_separate_reasoning_sends_is_text() -> None:
    heard = await hear(openai_answer({"reasoning": "Hm."}, {"content": "<think>is a tag</think>"}))

    assert (heard.answer.text, heard.reasoning) == ("<think>is a tag</think>", ("Hm.",))


@pytest.mark.parametrize("odd", [7, ["a"], {"text": "a"}, None, ""])
async def test_members_with_other_values_are_no_reasoning(odd: object) -> None:
    heard = await hear(openai_answer({"reasoning_content": odd, "reasoning_details": odd}, {"content": "Yes."}))

    assert (heard.answer.text, heard.answer.reasoning) == ("Yes.", None)


@pytest.mark.parametrize(
    "thought", [{"reasoning_content": "On and on"}, {"content": "<think>On and on"}], ids=["member", "text"]
)
async def test_an_answer_of_nothing_but_reasoning_says_what_to_do(thought: dict[str, object]) -> None:
    error = await refusal_of(openai_answer(thought, finish="length"))

    assert isinstance(error, AnswerIncomplete)
    assert "the whole answer was reasoning" in error.detail
    assert "context.response_reserve" in error.detail


Json = dict[str, Any]  # parsed JSON
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
ON = ModelParameters(return_reasoning=True)
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def openai_call(*deltas: Mapping[str, object], call: Mapping[str, object] | None = None) -> Answer:
    """Deltas, then a tool call."""
    events = [*deltas, {"tool_calls": [{**CALL, **(call or {})}]}]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in events]
    return openai_stream(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})


def anthropic_call(*blocks: tuple[Json, Json | None]) -> Answer:
    """Blocks with the delta of each, then a tool call."""
    call = (
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
    )
    events: list[dict[str, object]] = [anthropic_start(input_tokens=7)]
    for index, (opened, delta) in enumerate((*blocks, call)):
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        if delta is not None:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    usage = {"input_tokens": 7, "output_tokens": 4}
    ended: dict[str, object] = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}
    return anthropic_stream(*events, ended, {"type": "message_stop"})


def text_block(text: str) -> tuple[Json, Json]:
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": text}


def signed(thinking: str, signature: str) -> tuple[tuple[Json, None], Json]:
    """A block that arrives whole, and how it is to be sent back."""
    block = {"type": "thinking", "thinking": thinking, "signature": signature}
    return (block, None), block


def gemini(parts: list[Json], *, is_last: bool = True) -> str:
    candidate = {"content": {"role": "model", "parts": parts}, **({"finishReason": "STOP"} if is_last else {})}
    return f"data: {json.dumps({'candidates': [candidate]})}\r\n\r\n"


async def sent_after(
    answer: Answer, model: str, *, parameters: ModelParameters = NO_PARAMETERS, as_model: str = ""
) -> tuple[AnswerComplete, Json]:
    """Have the model call a tool, send the result, and return the step and the body that it was sent with."""
    request = replace(simple_request(), tools=(TOOL,), parameters=parameters)
    step = (await hear(answer, model, request)).answer
    reply = (await hear(_says_ok(model), as_model or model, with_result(request, step))).sent
    return step, reply


def with_result(request: ModelRequest, step: AnswerComplete) -> ModelRequest:
    """Return the request with the step and the result of its call."""
    said = PromptMessage(Role.ASSISTANT, step.text, step.tool_calls, reasoning=step.reasoning)
    results = [PromptMessage(Role.TOOL, "seen", tool_call_id=call.id, name=call.name) for call in step.tool_calls]
    messages = (*request.prompt.messages, said, *results)
    return replace(request, prompt=replace(request.prompt, messages=messages))


def _says_ok(model: str) -> Answer:
    if model.startswith("anthropic:"):
        return ANTHROPIC_SAYS_OK
    return (
        Answer([gemini([{"text": "ok"}])], content_type=EVENT_STREAM)
        if model.startswith("google_genai:")
        else OPENAI_SAYS_OK
    )


def members_returned(sent: Json) -> Json:
    """Return what a step has on the OpenAI wire beside what every step has."""
    (step,) = [message for message in sent["messages"] if message["role"] == "assistant"]
    known = {"role", "content", "tool_calls"}
    beside = {name: value for name, value in step.items() if name not in known}
    extras = {
        number: call["extra_content"] for number, call in enumerate(step["tool_calls"]) if "extra_content" in call
    }
    return beside | ({"extras": extras} if extras else {})


@pytest.mark.parametrize(
    ("deltas", "parameters", "expected"),
    [
        pytest.param([{"reasoning_content": "Hm, "}, {"reasoning_content": "so."}], NO_PARAMETERS, {}, id="vLLM"),
        pytest.param(
            [{"reasoning_content": "Hm, "}, {"reasoning_content": "so."}],
            ON,
            {"reasoning_content": "Hm, so."},
            id="asked for",
        ),
        pytest.param([{"content": "<think>Hm.</think>"}], ON, {"reasoning_content": ""}, id="in the text"),
        pytest.param([], ON, {"reasoning_content": ""}, id="asked for and none"),
        pytest.param(
            [
                {"reasoning": "Hm, ", "reasoning_details": [{"type": "reasoning.text", "text": "Hm, ", "index": 0}]},
                {"reasoning": "so.", "reasoning_details": [{"type": "reasoning.text", "text": "so.", "index": 0}]},
                {"reasoning_details": [{"type": "reasoning.text", "signature": "s1", "index": 0, "text": None}]},
                {
                    "reasoning_details": [
                        {"type": "reasoning.encrypted", "data": "b64", "index": 1, "odd": [[[[["x"]]]]]}
                    ]
                },
            ],
            NO_PARAMETERS,
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "Hm, so.", "index": 0, "signature": "s1"},
                    {"type": "reasoning.encrypted", "data": "b64", "index": 1, "odd": [[[[None]]]]},
                ]
            },
            id="OpenRouter",
        ),
    ],
)
async def test_the_openai_wire_sends_back_what_the_server_wants(
    deltas: list[Json], parameters: ModelParameters, expected: Json
) -> None:
    _, sent = await sent_after(openai_call(*deltas), "some-model", parameters=parameters)

    assert members_returned(sent) == expected
    assert "return_reasoning" not in sent


async def test_geminis_signature_on_the_openai_wire_goes_back_with_its_call() -> None:
    extra = {"google": {"thought_signature": "c2ln"}}

    _, sent = await sent_after(openai_call(call={"extra_content": extra}), "gemini-3-pro")

    assert members_returned(sent) == {"extras": {0: extra}}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://api.deepseek.com/v1", True),
        ("https://API.DeepSeek.com", True),
        ("https://api.moonshot.ai/v1", True),
        ("https://deepseek.com.example.org/v1", False),
        ("http://127.0.0.1:8080/deepseek.com", False),
        ("", False),
    ],
)
async def test_servers_that_require_reasoning_are_known_by_their_host(address: str, *, expected: bool) -> None:
    model = make_openai("m", address or "http://x", idle_seconds=1, connect_seconds=1, api_key="k")
    step = PromptMessage(Role.ASSISTANT, "", (await _called()).tool_calls)
    payload = model._get_request_payload(  # noqa: SLF001  # what is sent, without sending it there
        [HumanMessage("hi"), *to_langchain(Prompt("", (step,)))]
    )

    assert wants_content(address) is expected
    assert [message.get("reasoning_content") for message in payload["messages"]] == [None, "" if expected else None]


async def _called() -> AnswerComplete:
    return (await hear(openai_call(), request=replace(simple_request(), tools=(TOOL,)))).answer


async def test_anthropic_gets_its_blocks_back_unchanged_and_in_their_order() -> None:
    first, back = signed("One 😀", "c2lnMQ==")
    second, back_again = signed("", "c2lnMg==")
    redacted = {"type": "redacted_thinking", "data": "b64"}

    step, sent = await sent_after(
        anthropic_call(first, (redacted, None), text_block("Let me look. "), second, text_block("Now.")),
        "anthropic:claude-test",
    )

    assert sent["messages"][1]["content"] == [
        back,
        redacted,
        {"type": "text", "text": "Let me look. "},
        back_again,
        {"type": "text", "text": "Now."},
        {"type": "tool_use", "id": step.tool_calls[0].id, "name": "look", "input": {}},
    ]
    assert step.text == "Let me look. Now."


async def test_gemini_gets_the_signature_of_its_call_back() -> None:
    call: Json = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2lnbmVk"}
    answer = Answer(
        [gemini([{"text": "Hm.", "thought": True}], is_last=False), gemini([{"text": "Let me look."}, call])],
        content_type=EVENT_STREAM,
    )

    step, sent = await sent_after(answer, "google_genai:gemini-3-pro-preview")

    (said,) = [content["parts"] for content in sent["contents"] if content["role"] == "model"]
    assert step.reasoning is not None
    assert step.reasoning.text == "Hm."
    assert [part.get("text") for part in said] == ["Let me look.", None]
    assert said[1]["functionCall"]["name"] == "look"
    assert said[1]["thoughtSignature"] == "c2lnbmVk"


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("anthropic:claude-test", anthropic_call(({"type": "redacted_thinking", "data": "x" * 1001}, None))),
        ("some-model", openai_call({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x" * 1001}]})),
    ],
)
async def test_signatures_without_end_are_stopped(model: str, answer: Answer) -> None:
    error = await refusal_of(answer, model, request=replace(simple_request(), tools=(TOOL,), max_answer_bytes=1000))

    assert isinstance(error, AnswerTooLong)
    assert "what belongs to its reasoning exceeded 1,000 characters" in error.detail
