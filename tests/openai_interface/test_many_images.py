"""A response after the other with an image in each: prompts fit, all images stay stored, and summaries name them."""

import re
from dataclasses import replace

import pytest

from context.prompt_judge import faults, weigh
from fakes.compactions import asked
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Say, Step
from throughline.db.database import Database
from throughline.domain.message import ImageBlock
from throughline.domain.prompt import ModelRequest, Prompt
from throughline.llm.counters import make_counter

IMAGES = 46
WINDOW = 16_384
IMAGE_BYTES = 20_000
_SHOWN = re.compile(r"^\[#\d+ user[^\]]*\] (.*)\n(\[image\])$", re.MULTILINE)


def answer(request: ModelRequest) -> Step:
    """Answer, or summarise in lines of the record."""
    if not is_summary(request.prompt):
        return Say("A crane.")
    return Say("## State\n" + "\n".join(f"- {text} {image}" for text, image in _SHOWN.findall(asked(request))[:8]))


def is_summary(prompt: Prompt) -> bool:
    return "You write the memory of a conversation" in prompt.system


def images_of(prompt: Prompt) -> int:
    blocks = [block for message in prompt.messages if not isinstance(message.content, str) for block in message.content]
    return sum(isinstance(block, ImageBlock) for block in blocks)


async def show(stage: OpenAIStage, *numbers: int, previous: str | None) -> str:
    """Ask about images of these numbers in one message; return the response's id."""
    images = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{number:04d}{'A' * IMAGE_BYTES}", "detail": "auto"}
        for number in numbers
    ]
    asks = {"type": "input_text", "text": f"What is picture {numbers[0]}?"}
    said = [{"role": "user", "content": [asks, *images]}]
    body = {"model": "assistant", "previous_response_id": previous, "input": said}
    response = (await stage.http.post("/v1/responses", json=body)).json()
    assert response["output"][-1]["content"][0]["text"] == "A crane."
    return str(response["id"])


@pytest.mark.slow
async def test_prompts_fit_however_many_images_were_shown_and_summaries_name_them(
    database: Database, database_url: str
) -> None:
    agent = replace(OPEN_AGENT, context=replace(OPEN_AGENT.context, window=WINDOW, min_recent_messages=2))
    async with open_openai_stage(database, agent=agent) as stage:
        stage.model.by_request = answer
        previous = None
        for number in range(IMAGES):
            previous = await show(stage, number, previous=previous)
        prompts = [request.prompt for request in stage.model.requests]
    stored = await run_sql(
        database_url, "select count(*) from messages where content_blocks::text like '%data:image/png%'"
    )

    count = make_counter("chars").count
    assert [fault for prompt in prompts for fault in faults(prompt)] == []
    assert max(weigh(prompt, 0, count, 1.0) for prompt in prompts) <= WINDOW
    assert sum(is_summary(prompt) for prompt in prompts) < IMAGES / 4
    assert {images_of(prompt) for prompt in prompts if is_summary(prompt)} == {0}
    assert "What is picture 0? [image]" in prompts[-1].system
    assert stored == [(IMAGES,)]


async def test_images_of_one_message_that_do_not_fit_are_left_out_with_a_note(database: Database) -> None:
    agent = replace(OPEN_AGENT, context=replace(OPEN_AGENT.context, window=WINDOW, min_recent_messages=2))
    async with open_openai_stage(database, agent=agent) as stage:
        stage.model.by_request = answer
        previous = await show(stage, *range(IMAGES), previous=None)
        for number in range(3):
            previous = await show(stage, number, previous=previous)
        prompts = [request.prompt for request in stage.model.requests]

    count = make_counter("chars").count
    assert [images_of(prompt) for prompt in prompts] == [4, 5, 6, 7]
    assert [fault for prompt in prompts for fault in faults(prompt)] == []
    assert max(weigh(prompt, 0, count, 1.0) for prompt in prompts) <= WINDOW
    assert "images left out" in str(prompts[0].messages[-1].content)
