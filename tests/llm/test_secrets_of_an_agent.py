"""Secrets that an operator wrote into an agent file come back in no message of a provider."""

from base64 import b64encode
from dataclasses import replace

import pytest

from fakes.model_calls import CONFIG, simple_request
from fakes.raw_http_server import error_answer, serve_raw
from throughline.domain.errors import ThroughlineError
from throughline.domain.prompt import ModelParameters
from throughline.llm.registry import ModelRegistry

BASIC = b64encode(b"usr:pa55w0rd").decode()


async def test_secrets_of_the_agent_file_are_taken_out_of_what_the_provider_said() -> None:
    said = f"refused pa55w0rd, Basic {BASIC}, http://usr:pa55w0rd@host/v1, tsec-hunter2 pw and hunter three apples"
    given = ModelParameters(headers={"X-Team": "tsec-hunter2 pw"}, body={"team": {"names": ["hunter three apples"]}})
    registry = ModelRegistry(CONFIG)
    async with serve_raw(error_answer(400, {"error": {"message": said}})) as server:
        model = registry.get("gpt-4o", server.url.replace("http://", "http://usr:pa55w0rd@") + "/v1")
        with pytest.raises(ThroughlineError) as caught:
            _ = [event async for event in model.stream(replace(simple_request(), parameters=given))]
        await registry.close()

    message = caught.value.provider_message
    assert message.startswith("refused")
    assert not any(secret in message for secret in ("pa55w0rd", BASIC, "tsec-hunter2", "hunter three"))
