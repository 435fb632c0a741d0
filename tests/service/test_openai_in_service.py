"""OpenAI's interface of the real service, with its own worker and the strict provider behind it."""

from collections.abc import Mapping
from pathlib import Path

import openai
import pytest

from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.service_process import run_service
from throughline.openai.input_items import SUMMARY_HEAD

pytestmark = pytest.mark.slow
LONG = "The oven of the bakery in Graz must be cleaned every Friday before noon, and Anna has the key. " * 8


def dialogue(turns: int) -> list[dict[str, object]]:
    said: list[dict[str, object]] = []
    for number in range(turns):
        said += [{"role": "user", "content": f"{number}: {LONG}"}, {"role": "assistant", "content": "Noted."}]
    return said


async def test_a_compacted_conversation_goes_on_with_its_summary(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("Anna."))
    async with run_service(folder, on_double) as service:
        client = openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", _strict_response_validation=True)
        async with client:
            compacted = await client.responses.compact(model="assistant", input=dialogue(20))  # type: ignore[arg-type]  # dicts
            again = [item.model_dump() for item in compacted.output]
            answer = await client.responses.create(
                model="assistant",
                input=[*again, {"role": "user", "content": "Who has the key?"}],  # type: ignore[list-item]  # dicts
            )

    assert [item.type for item in compacted.output] == ["compaction"]
    assert compacted.usage.input_tokens > 0
    prompt = [str(message["content"]) for message in provider_double.requests[-1].prompt]
    assert any(text.startswith(SUMMARY_HEAD) for text in prompt)
    assert len(prompt) < 30
    assert (answer.output_text, prompt[-1]) == ("Anna.", "Who has the key?")
