"""The check of an agent's model: what one call shows, and what is left when the provider refuses it."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from fakes.manual_clock import ManualClock
from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from fakes.stage import AGENT, with_context
from throughline.domain.errors import ModelAuthenticationFailed, ModelInvalidRequest, ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.model_window import ModelCheck, ModelWindow, ToolUse, WindowOrigin
from throughline.domain.prompt import ModelEvent, ModelParameters, ModelRequest, Usage
from throughline.llm.counters import make_counter
from throughline.turn.prompting.agent_windows import TOOL, check_model

COUNTER = make_counter("tiktoken")
CALLED = Call((ToolCall("c1", TOOL.name, '{"tonnes": 1607}'),), "1,607 tonnes came in.", Usage(215, 40, 128))


class SlowModel(ScriptedModel):
    """A scripted model each of whose events takes half a second of its clock."""

    def __init__(self, *steps: Say | Call | Fail) -> None:
        super().__init__(*steps)
        self.clock = ManualClock()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        async for event in super().stream(request):
            self.clock.advance(0.5)
            yield event


async def checked(model: SlowModel) -> ModelCheck:
    return await check_model(model, COUNTER, AGENT, model.clock)


async def test_a_call_shows_counting_streaming_tools_usage_and_cache() -> None:
    model = SlowModel(CALLED)

    found = await checked(model)

    assert found.failure == ""
    assert found.call is not None
    assert 100 < found.call.counted_tokens < 300
    assert found.call.usage == Usage(215, 40, 128)
    assert (found.call.first_text_seconds, found.call.pieces) == (0.5, 1)
    assert (found.call.tools, found.call.finish_reason) == (ToolUse.CALLED, "tool_calls")
    assert (model.times_asked, len(model.requests)) == (1, 1)


async def test_the_text_is_measured_from_its_first_piece_to_its_last() -> None:
    found = await checked(SlowModel(Say("one two three four five")))

    assert found.call is not None
    assert (found.call.first_text_seconds, found.call.text_seconds) == (0.5, 2.0)
    assert (found.call.text_tokens, found.call.pieces, found.call.tools) == (5, 5, ToolUse.NOT_CALLED)


async def test_the_request_is_the_agents_with_a_small_answer() -> None:
    model = SlowModel(CALLED)
    agent = replace(with_context(response_reserve=300), parameters=ModelParameters(temperature=0.2))

    await check_model(model, COUNTER, agent, model.clock)

    assert model.requests[0].parameters == ModelParameters(temperature=0.2)
    assert model.requests[0].max_output_tokens == 300
    assert model.requests[0].tools == (TOOL,)


async def test_the_window_of_the_file_is_shown_beside_the_models() -> None:
    model = SlowModel(CALLED)

    found = await check_model(model, COUNTER, with_context(window=32_000), model.clock)

    assert found.checked.window == ModelWindow(32_000, WindowOrigin.AGENT_FILE)
    assert found.checked.model_window == ModelWindow(8192, WindowOrigin.TABLE)


async def test_an_address_is_shown() -> None:
    model = SlowModel(CALLED)
    model.address = "http://127.0.0.1:8080/v1"

    assert (await checked(model)).checked.address == "http://127.0.0.1:8080/v1"
    assert (await checked(SlowModel(CALLED))).checked.address == ""


async def test_a_refused_tool_is_told_and_the_rest_is_measured_without_it() -> None:
    model = SlowModel(Fail(ModelInvalidRequest("m: tools need --enable-auto-tool-choice")), Say("1,607 tonnes."))

    found = await checked(model)

    assert found.call is not None
    assert (found.call.tools, found.call.refusal) == (ToolUse.REFUSED, "m: tools need --enable-auto-tool-choice")
    assert found.lacks_tools
    assert [len(request.tools) for request in model.requests] == [1, 0]


async def test_a_refused_tool_is_no_lack_of_an_agent_without_tools() -> None:
    model = SlowModel(Fail(ModelInvalidRequest("no tools")), Say("1,607 tonnes."))

    found = await check_model(model, COUNTER, replace(AGENT, tools=()), model.clock)

    assert not found.lacks_tools


@pytest.mark.parametrize(
    ("steps", "failure"),
    [
        ([Fail(ModelAuthenticationFailed("the key is not accepted"))], "the key is not accepted"),
        ([Fail(ModelUnavailable("the connection failed"))], "the connection failed"),
        ([Fail(ModelInvalidRequest("no such model")), Fail(ModelInvalidRequest("no such model"))], "no such model"),
    ],
)
async def test_a_call_that_fails_leaves_its_cause_and_the_window(steps: list[Fail], failure: str) -> None:
    found = await checked(SlowModel(*steps))

    assert (found.call, found.failure) == (None, failure)
    assert found.checked.window.tokens == 8192
