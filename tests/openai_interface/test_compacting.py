"""Compacting a conversation and counting its tokens, through OpenAI's own client."""

from collections.abc import AsyncIterator

import openai
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say
from throughline.db.database import Database
from throughline.openai.compaction_item import make_compaction_item
from throughline.openai.input_items import SUMMARY_HEAD

LONG = "The oven of the bakery in Graz must be cleaned every Friday before noon, and Anna has the key. " * 8


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


def dialogue(turns: int) -> list[dict[str, object]]:
    said: list[dict[str, object]] = []
    for number in range(turns):
        said += [{"role": "user", "content": f"{number}: {LONG}"}, {"role": "assistant", "content": "Noted."}]
    return said


async def test_messages_that_were_not_summarised_come_back_word_for_word(stage: OpenAIStage) -> None:
    stage.model.script(Say("ok"))
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "my own words"}]}]

    await stage.client.responses.create(
        model="assistant",
        input=[make_compaction_item("They met.", kept), {"role": "user", "content": "And then?"}],  # type: ignore[list-item, arg-type]  # dicts
    )

    said = [message.content for message in stage.model.requests[0].prompt.messages]
    assert said == [f"{SUMMARY_HEAD}\n\nThey met.", "my own words", "And then?"]


@pytest.mark.parametrize("content", ["", "nonsense", "bm9uc2Vuc2U=", "eyJ2ZXJzaW9uIjogMn0="])
async def test_a_compaction_item_of_another_service_is_refused(stage: OpenAIStage, content: str) -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": content}

    with pytest.raises(openai.BadRequestError, match="this service has not made"):
        await stage.client.responses.create(model="assistant", input=[item, {"role": "user", "content": "hi"}])  # type: ignore[list-item]  # dicts


async def test_the_tokens_of_a_request_are_counted(stage: OpenAIStage) -> None:
    stage.model.script(Say("ok"))
    count = stage.client.responses.input_tokens.count
    short = await count(model="assistant", input="hi")
    long = await count(model="assistant", input=dialogue(3), instructions="Be brief.")  # type: ignore[arg-type]  # dicts
    first = await stage.client.responses.create(model="assistant", input="hi")
    after = await count(model="assistant", input="hi", previous_response_id=first.id)

    assert 0 < short.input_tokens < after.input_tokens < long.input_tokens
