"""The double behind LangChain's Anthropic client, called through our own chat model: streams, tools, every failure."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.provider_double import Failure, ScriptedCall, ScriptStep, Verdict
from fakes.provider_double.json_types import Json
from fakes.waiting import HANG_SECONDS
from throughline.domain.errors import (
    AnswerIncomplete,
    ContextOverflow,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    ThroughlineError,
)
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, PromptMessage, TextPiece, ToolSpec
from throughline.llm.registry import ModelRegistry, ModelsConfig

TOOL = ToolSpec("look_up", "Looks up.", {"type": "object", "properties": {"q": {"type": "string"}}})
PNG = "data:image/png;base64,iVBORw0KGgo="
BIG = "Everything about the harbour, its cranes, its tides and its people. " * 150


def user(text: str) -> PromptMessage:
    return PromptMessage(Role.USER, text)


def answered(text: str, *calls: ToolCall) -> PromptMessage:
    return PromptMessage(Role.ASSISTANT, text, tool_calls=calls)


def result(call_id: str, text: str = "found") -> PromptMessage:
    return PromptMessage(Role.TOOL, text, tool_call_id=call_id, name="look_up")


def request_of(*messages: PromptMessage, system: str = "Be brief.", tools: Sequence[ToolSpec] = ()) -> ModelRequest:
    return ModelRequest(Prompt(system, messages), tuple(tools), 100)


HELLO = request_of(user("hello"))


class Asker:
    """Asks the double through the model that an agent file would name."""

    def __init__(self, registry: ModelRegistry, double: AnthropicDouble) -> None:
        self._registry, self._double = registry, double

    async def ask(self, request: ModelRequest, model: str = "double-16k-cl100k") -> AnswerComplete:
        chat_model = self._registry.get(f"anthropic:{model}", self._double.url)
        events = [event async for event in chat_model.stream(request)]
        *deltas, last = events
        assert isinstance(last, AnswerComplete)
        assert "".join(event.text for event in deltas if isinstance(event, TextPiece)) == last.text
        return last

    async def error(self, request: ModelRequest, model: str = "double-16k-cl100k") -> ThroughlineError:
        with pytest.raises(ThroughlineError) as caught:
            await self.ask(request, model)
        return caught.value


@pytest.fixture
async def asker(anthropic_double: AnthropicDouble) -> AsyncIterator[Asker]:
    registry = ModelRegistry(ModelsConfig(idle_timeout_seconds=HANG_SECONDS))
    yield Asker(registry, anthropic_double)
    await registry.close()


def sent(double: AnthropicDouble, number: int = -1) -> tuple[Json, ...]:
    return double.requests[number].prompt


async def test_an_answer_is_streamed_with_the_providers_own_count(
    anthropic_double: AnthropicDouble, asker: Asker
) -> None:
    anthropic_double.script(ScriptStep(text="Grüße, 世界!"))

    answer = await asker.ask(HELLO)

    assert (answer.text, answer.finish_reason) == ("Grüße, 世界!", "end_turn")
    assert answer.usage.input_tokens == anthropic_double.requests[0].prompt_tokens


@pytest.mark.parametrize("way", ["cl100k", "o200k", "bytes2"])
async def test_a_tool_loop_of_parallel_calls_is_valid_in_every_round(
    anthropic_double: AnthropicDouble, asker: Asker, way: str
) -> None:
    calls = tuple(ScriptedCall(f"toolu_{number}", "look_up", f'{{"q": "{number}"}}') for number in range(3))
    anthropic_double.script(ScriptStep(text="Let me see.", calls=calls), ScriptStep(text="Done."))
    first = request_of(user("go"), tools=[TOOL])

    asked = await asker.ask(first, f"double-16k-{way}")
    results = [result(call.id, f"found {call.id}") for call in asked.tool_calls]
    second = request_of(user("go"), answered(asked.text, *asked.tool_calls), *results, tools=[TOOL])
    last = await asker.ask(second, f"double-16k-{way}")

    assert [(call.id, call.arguments) for call in asked.tool_calls] == [
        ("toolu_0", '{"q": "0"}'),
        ("toolu_1", '{"q": "1"}'),
        ("toolu_2", '{"q": "2"}'),
    ]
    assert asked.finish_reason == "tool_use"
    assert last.text == "Done."
    assert last.usage.input_tokens == anthropic_double.requests[1].prompt_tokens
    assert [block["type"] for block in sent(anthropic_double)[3]["content"]] == ["tool_result"] * 3


async def test_tools_may_be_forbidden_beside_earlier_calls(anthropic_double: AnthropicDouble, asker: Asker) -> None:
    request = request_of(user("go"), answered("", ToolCall("a", "look_up", "{}")), result("a"), tools=[TOOL])

    answer = await asker.ask(replace(request, may_call_tools=False))

    assert answer.text == "Answer 3 to: found"
    assert anthropic_double.requests[0].tools != ()


async def test_messages_stored_from_other_providers_are_made_acceptable(
    anthropic_double: AnthropicDouble, asker: Asker
) -> None:
    strange = ToolCall("functions.look up:0", "web.search now", '{"q": oops')
    messages = (user("go"), user("on"), answered("", strange), replace(result("", ""), tool_call_id=strange.id))

    await asker.ask(request_of(*messages, tools=[TOOL]))

    assert [record.verdict for record in anthropic_double.requests] == [Verdict.ANSWERED]
    call = sent(anthropic_double)[2]["content"][0]
    assert (call["name"], call["input"]) == ("web_search_now", {"_raw": '{"q": oops'})


async def test_images_by_address_and_by_value_are_sent_in_anthropics_shape(
    anthropic_double: AnthropicDouble, asker: Asker
) -> None:
    pictures = (TextBlock("see"), ImageBlock("https://example.org/a.png"), ImageBlock(PNG, detail="low"))
    tool_image = PromptMessage(Role.TOOL, (TextBlock("shot"), ImageBlock(PNG)), tool_call_id="a", name="look_up")
    messages = (PromptMessage(Role.USER, pictures), answered("", ToolCall("a", "look_up", "{}")), tool_image)

    await asker.ask(request_of(*messages, tools=[TOOL]))

    by_value = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    _, shown, _, returned = sent(anthropic_double)
    assert [block.get("source") for block in shown["content"]] == [
        None,
        {"type": "url", "url": "https://example.org/a.png"},
        by_value,
    ]
    assert returned["content"][0]["content"][1] == {"type": "image", "source": by_value}
    assert [block["type"] for block in shown["content"] if "cache_control" in block] == ["image"]


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Failure.HANG, Failure.HANG_IN_ANSWER])
async def test_a_model_that_falls_silent_is_given_up(anthropic_double: AnthropicDouble, failure: Failure) -> None:
    anthropic_double.script(ScriptStep(text="never all of this text", failure=failure))
    registry = ModelRegistry(ModelsConfig(idle_timeout_seconds=3.0))

    error = await Asker(registry, anthropic_double).error(HELLO)
    await registry.close()

    assert type(error) is ModelTimeout


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure.RATE_LIMITED, ModelRateLimited),
        (Failure.QUOTA, ModelQuotaExhausted),
        (Failure.SERVER_ERROR, ModelUnavailable),
        (Failure.OVERLOADED, ModelUnavailable),
        (Failure.CONTEXT_LENGTH, ContextOverflow),
        (Failure.RESET, ModelUnavailable),
        (Failure.CLEAN_CUT, AnswerIncomplete),
        (Failure.ERROR_IN_STREAM, ModelUnavailable),
        (Failure.EMPTY, AnswerIncomplete),
        (Failure.HTML, ModelUnavailable),
    ],
)
async def test_each_failure_becomes_its_own_error(
    anthropic_double: AnthropicDouble, asker: Asker, failure: Failure, expected: type[ThroughlineError]
) -> None:
    anthropic_double.script(ScriptStep(text="never all of this text", failure=failure, retry_after="7"))

    error = await asker.error(HELLO)

    assert type(error) is expected
    if isinstance(error, ModelRateLimited):
        assert error.delay_seconds == 7


async def test_arguments_that_are_no_json_reach_the_tool_node(anthropic_double: AnthropicDouble, asker: Asker) -> None:
    call = ScriptedCall("a", "look_up", '{"q": "x"}')
    anthropic_double.script(ScriptStep(calls=(call,), failure=Failure.BAD_TOOL_JSON))

    answer = await asker.ask(request_of(user("go"), tools=[TOOL]))

    assert answer.tool_calls == (ToolCall("a", "look_up", '{"q": "x"'),)


async def test_a_refusal_is_told_as_one_with_and_without_text(anthropic_double: AnthropicDouble, asker: Asker) -> None:
    anthropic_double.script(ScriptStep(finish_reason="refusal"), ScriptStep(text="I can", finish_reason="refusal"))

    errors = [await asker.error(HELLO), await asker.error(HELLO)]

    assert [type(error) for error in errors] == [ModelRefused] * 2


async def test_a_window_full_before_the_answer_began_is_an_overflow_and_later_a_cut_answer(
    anthropic_double: AnthropicDouble, asker: Asker
) -> None:
    full = "model_context_window_exceeded"
    anthropic_double.script(ScriptStep(finish_reason=full), ScriptStep(text="Once upon", finish_reason=full))

    error, answer = await asker.error(request_of(user(BIG))), await asker.ask(HELLO)

    prompt_tokens = anthropic_double.requests[0].prompt_tokens
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window_tokens) == (prompt_tokens, prompt_tokens)
    assert (answer.text, answer.finish_reason) == ("Once upon", full)


async def test_an_overflow_is_told_with_the_providers_numbers(anthropic_double: AnthropicDouble, asker: Asker) -> None:
    over = await asker.error(request_of(user(BIG)), "double-600-cl100k")
    joint = await asker.error(replace(HELLO, max_output_tokens=590), "double-600-cl100k")

    asked = [record.prompt_tokens for record in anthropic_double.requests]
    assert isinstance(over, ContextOverflow)
    assert (over.window_tokens, over.prompt_tokens) == (600, asked[0])
    assert isinstance(joint, ContextOverflow)
    assert joint.window_tokens == 600


async def test_what_anthropic_calls_invalid_is_not_tried_again(anthropic_double: AnthropicDouble, asker: Asker) -> None:
    error = await asker.error(request_of(answered("hello"), user("hello")))

    assert type(error) is ModelInvalidRequest
    assert [record.verdict for record in anthropic_double.requests] == [Verdict.INVALID]


Grow = Callable[[int], tuple[PromptMessage, ...]]


def talk(turns: int) -> tuple[PromptMessage, ...]:
    """A conversation of so many answered turns and one new message."""
    past = [message for turn in range(turns) for message in (user(f"{turn} {BIG}"), answered(f"Answer {turn}."))]
    return (*past, user(f"{turns} {BIG}"))


def tool_rounds(rounds: int) -> tuple[PromptMessage, ...]:
    """One turn with so many rounds of 30 calls each: more blocks than the cache looks back."""
    messages = [user(BIG)]
    for number in range(rounds):
        ids = [f"call_{number}_{index}" for index in range(30)]
        messages.append(answered("", *(ToolCall(call_id, "look_up", "{}") for call_id in ids)))
        messages += [result(call_id, f"found {call_id}") for call_id in ids]
    return tuple(messages)


@pytest.mark.parametrize("grow", [talk, tool_rounds])
async def test_each_call_reads_the_whole_prompt_of_the_call_before_from_the_cache(
    anthropic_double: AnthropicDouble, asker: Asker, grow: Grow
) -> None:
    answers = [
        await asker.ask(request_of(*grow(size), system=BIG, tools=[TOOL]), "double-128k-cl100k") for size in range(4)
    ]

    records = anthropic_double.requests
    reply_tokens = 3
    assert records[0].cache_read_tokens == 0
    for before, after in pairwise(records):
        assert after.cache_read_tokens == before.prompt_tokens - reply_tokens
    assert [record.markers for record in records] == [2, 3, 4, 4]
    assert [answer.usage.input_tokens for answer in answers] == [record.prompt_tokens for record in records]


async def test_another_view_of_old_messages_still_reads_tools_and_system_prompt(
    anthropic_double: AnthropicDouble, asker: Asker
) -> None:
    await asker.ask(request_of(*talk(2), system=BIG), "double-128k-cl100k")

    await asker.ask(request_of(*talk(2)[2:], system=BIG), "double-128k-cl100k")

    read = anthropic_double.requests[1].cache_read_tokens
    assert 1024 < read < anthropic_double.requests[1].prompt_tokens / 2
