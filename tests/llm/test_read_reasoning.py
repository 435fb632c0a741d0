"""What models send as reasoning, on each wire: read apart from the answer, and streamed before it."""

from collections.abc import Mapping, Sequence

import pytest

from fakes.model_calls import CONFIG, Heard, hear, refusal_of, simple_request
from fakes.raw_http_server import EVENT_STREAM, Answer, anthropic_start, anthropic_stream, openai_stream, serve_raw
from throughline.domain.errors import AnswerIncomplete
from throughline.domain.prompt import AnswerComplete, ReasoningDelta, TextDelta
from throughline.llm.registry import ModelRegistry

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
    assert kinds == [ReasoningDelta, ReasoningDelta, ReasoningDelta, TextDelta, AnswerComplete]


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
    thought = tuple(event.text for event in deltas if isinstance(event, ReasoningDelta))
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
