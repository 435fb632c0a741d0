"""Images in messages: kept on their way to each provider, in its own shape, and counted for no less than it counts."""

import pytest

from app.context.measure import count_message
from app.domain.message import ImageBlock, Role, TextBlock
from app.domain.prompt import ModelRequest, Prompt, PromptMessage
from fakes.anthropic_double.units import units_of
from fakes.model_calls import hear
from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.json_types import Json
from fakes.raw_http_server import anthropic_stream, openai_stream

BY_VALUE = "data:image/png;base64,iVBORw0KGgo="
BY_ADDRESS = "https://example.org/a.png"
LOOK = PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock(BY_VALUE), ImageBlock(BY_ADDRESS, detail="high")))
REQUEST = ModelRequest(Prompt("", (LOOK, PromptMessage(Role.ASSISTANT, "I see."), LOOK)), (), 100)
ANSWER = openai_stream({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]})
ANTHROPICS = anthropic_stream(
    {
        "type": "message_start",
        "message": {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude-test",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 5, "output_tokens": 1}},
    {"type": "message_stop"},
)


def contents(sent: dict[str, object]) -> list[Json]:
    """The blocks of the first and the last message that was sent."""
    messages = sent["messages"]
    assert isinstance(messages, list)
    return [*messages[0]["content"], *messages[-1]["content"]]


async def test_openai_is_sent_images_as_addresses_with_their_detail() -> None:
    heard = await hear(ANSWER, request=REQUEST)

    images = [block["image_url"] for block in contents(heard.sent) if block["type"] == "image_url"]
    assert images == [{"url": BY_VALUE, "detail": "auto"}, {"url": BY_ADDRESS, "detail": "high"}] * 2


async def test_anthropic_is_sent_images_by_value_or_by_address_marked_or_not() -> None:
    heard = await hear(ANTHROPICS, "anthropic:claude-test", REQUEST)

    images = [block["source"] for block in contents(heard.sent) if block["type"] == "image"]
    assert (
        images
        == [
            {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
            {"type": "url", "url": BY_ADDRESS},
        ]
        * 2
    )
    assert sum("cache_control" in block for block in contents(heard.sent)) == 2


@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_an_image_is_counted_for_no_less_than_by_the_providers(way: str) -> None:
    image = PromptMessage(Role.USER, (ImageBlock(BY_VALUE),))
    ours = count_message(image, COUNTINGS[way].count)
    openai_block = {"type": "image_url", "image_url": {"url": BY_VALUE, "detail": "auto"}}
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    asked = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}

    openais = COUNTINGS[way].in_messages([{"role": "user", "content": [openai_block]}])
    anthropics = sum(unit.tokens for unit in units_of(asked, COUNTINGS[way]))

    assert max(openais, anthropics) <= ours < 3 * min(openais, anthropics)
