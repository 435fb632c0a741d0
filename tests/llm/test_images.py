"""Images in messages: kept on their way to each provider, in its own shape, and counted for no less than it counts."""

import pytest

from fakes.anthropic_double.units import units_of
from fakes.model_calls import ANTHROPIC_SAYS_OK, OPENAI_SAYS_OK, hear
from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.json_types import Json
from throughline.context.measure import count_message
from throughline.domain.message import ImageBlock, Role, TextBlock
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage

BY_VALUE = "data:image/png;base64,iVBORw0KGgo="
BY_ADDRESS = "https://example.org/a.png"
LOOK = PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock(BY_VALUE), ImageBlock(BY_ADDRESS, detail="high")))
REQUEST = ModelRequest(Prompt("", (LOOK, PromptMessage(Role.ASSISTANT, "I see."), LOOK)), (), 100)


def contents(sent: dict[str, object]) -> list[Json]:
    """The blocks of the first and the last message that was sent."""
    messages = sent["messages"]
    assert isinstance(messages, list)
    return [*messages[0]["content"], *messages[-1]["content"]]


async def test_openai_is_sent_images_as_addresses_with_their_detail() -> None:
    heard = await hear(OPENAI_SAYS_OK, request=REQUEST)

    images = [block["image_url"] for block in contents(heard.sent) if block["type"] == "image_url"]
    assert images == [{"url": BY_VALUE, "detail": "auto"}, {"url": BY_ADDRESS, "detail": "high"}] * 2


async def test_anthropic_is_sent_images_by_value_or_by_address_marked_or_not() -> None:
    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", REQUEST)

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
