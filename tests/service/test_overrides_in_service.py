"""Overrides through the real service and the strict provider: what the provider is sent, and what readers see."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble
from fakes.provider_double.script import ScriptStep
from fakes.service_process import run_service

pytestmark = pytest.mark.slow
MODEL, OTHER = "double-128k-cl100k", "double-16k-cl100k"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA}}


def environment(folder: Path, on_double: Mapping[str, str], double: ProviderDouble) -> Mapping[str, str]:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "own.yaml").write_text(
        "name: own\nsystem_prompt: Count.\noverrides: [model, temperature, instructions, response_format]\n"
        f"override_models: [{{model: 'openai:{OTHER}', base_url: '{double.url}'}}]\n"
    )
    return {**on_double, "AGENTS_DIR": str(agents)}


async def test_the_provider_is_sent_what_the_request_overrides(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep('{"n": 1}'), ScriptStep("as always"))
    async with run_service(folder, environment(folder, on_double, provider_double)) as service:
        session = await service.new_session("own")
        path = f"/v1/sessions/{session}/messages"
        overrides = {
            "model": f"openai:{OTHER}",
            "temperature": 0.5,
            "instructions": "Be brief.",
            "response_format": FORMAT,
        }
        answered = await service.client.post(path, json={"content": "hi", "overrides": overrides})
        plain = await service.client.post(path, json={"content": "and now?"})

    assert answered.json()["message"]["content"] == '{"n": 1}'
    assert plain.json()["message"]["content"] == "as always"
    changed, usual = provider_double.requests
    assert (changed.model, changed.prompt[0]["content"]) == (OTHER, "Count.\n\nBe brief.")
    assert changed.settings == {"temperature": 0.5, "response_format": FORMAT}
    assert (usual.model, usual.prompt[0]["content"], usual.settings) == (MODEL, "Count.", {})


async def test_readers_see_a_rejected_answer_reset_and_a_failed_run_keeps_its_last(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("one"), ScriptStep('{"n": 1}'), ScriptStep("two"), ScriptStep("still two"))
    body = {"content": "hi", "overrides": {"response_format": FORMAT}}
    async with run_service(folder, environment(folder, on_double, provider_double)) as service:
        path = f"/v1/sessions/{await service.new_session('own')}/messages"
        streamed = await service.client.post(path, json=body, headers={"Accept": "text/event-stream"})
        failed = await service.client.post(path, json=body)

    names = [line.removeprefix("event: ") for line in streamed.text.splitlines() if line.startswith("event: ")]
    assert names.index("message.delta") < names.index("reset") < len(names) - names[::-1].index("message.delta")
    assert names[-1] == "run.completed"
    problem = failed.json()
    assert (failed.status_code, problem["type"]) == (502, "/problems/answer_not_in_format")
    assert (problem["message"]["content"], problem["message"]["metadata"]) == ("still two", {"rejected": True})
    assert problem["run"]["message_id"] == problem["message"]["id"]
