"""OpenAI's client against the real service and the strict provider: answers, streams, tools and a session."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import run_service

pytestmark = pytest.mark.slow

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


async def test_a_chat_with_tools_is_streamed_and_becomes_a_session(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    asked = ScriptStep("I look.", calls=(ScriptedCall("call_1", "weather", '{"town": "Graz"}'),))
    provider_double.script(ScriptStep("Hello."), asked, ScriptStep("It rains."))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    named: dict[str, Any] = {"model": "assistant", "messages": messages, "extra_headers": {"X-Chat-Id": "c"}}
    async with (
        run_service(folder, on_double) as service,
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", _strict_response_validation=True) as client,
    ):
        first = await client.chat.completions.create(**named)
        messages += [first.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "Rain?"}]
        async with client.chat.completions.stream(**named, tools=[WEATHER]) as stream:
            called = (await stream.get_final_completion()).choices[0]
        messages += [called.message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
        last = await client.chat.completions.create(**named, tools=[WEATHER])
        (session,) = (await service.client.get("/v1/sessions")).json()["data"]

    assert (first.choices[0].message.content, called.finish_reason) == ("Hello.", "tool_calls")
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("It rains.", "stop")
    assert (session["message_count"], session["external_id"]) == (6, "c")
    assert provider_double.requests[-1].prompt[0]["content"].endswith("Be brief.")
