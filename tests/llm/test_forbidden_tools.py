"""The call after the last tool round: tools are forbidden in the way that each provider heeds."""

from dataclasses import replace

import pytest

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, hear, simple_request
from fakes.raw_http_server import serve_raw
from throughline.domain.prompt import ModelRequest, ToolSpec
from throughline.llm.registry import ModelRegistry

TOOL = ToolSpec("lookup", "Looks up.", {"type": "object", "properties": {"q": {"type": "string"}}})
OFFERED = replace(simple_request(), tools=(TOOL,))
FORBIDDEN = replace(OFFERED, may_call_tools=False)


async def sent_to_openai_itself(request: ModelRequest) -> dict[str, object]:
    """What OpenAI is sent: no address is given, so that it is the one the SDK knows."""
    registry = ModelRegistry(CONFIG)
    async with serve_raw(OPENAI_SAYS_OK) as server:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OPENAI_API_KEY", "test-key")
            environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            model = registry.get("openai:gpt-4o")
        async for _ in model.stream(request):
            pass
        await registry.close()
        return server.requests[0]


async def test_openai_is_sent_the_same_tools_and_told_not_to_call_them() -> None:
    offered, forbidden = await sent_to_openai_itself(OFFERED), await sent_to_openai_itself(FORBIDDEN)

    assert forbidden == {**offered, "tool_choice": "none"}


async def test_compatible_servers_are_not_sent_tools_they_might_call_all_the_same() -> None:
    offered = await hear(OPENAI_SAYS_OK, request=OFFERED)
    forbidden = await hear(OPENAI_SAYS_OK, request=FORBIDDEN)

    assert forbidden.sent == {name: value for name, value in offered.sent.items() if name != "tools"}
    assert "tools" in offered.sent


async def test_anthropic_is_sent_the_same_tools_and_told_not_to_call_them() -> None:
    offered = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", OFFERED)
    forbidden = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", FORBIDDEN)

    assert forbidden.sent == {**offered.sent, "tool_choice": {"type": "none"}}
