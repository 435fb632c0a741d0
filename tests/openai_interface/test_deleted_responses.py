"""Deletion of responses: each is deleted alone, together with the messages of its part of the run."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import openai
import pytest
from openai.types.responses import Response

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, create
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.message import REDACTED_TEXT

RAIN = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


async def ask_weather(stage: OpenAIStage, text: str = "Rain?") -> Response:
    return await create(stage, model="assistant", input=text, tools=[WEATHER], metadata={"part": "0"})


async def give_weather(stage: OpenAIStage, asked: Response) -> Response:
    given = {"model": "assistant", "input": [RAIN], "tools": [WEATHER], "metadata": {"part": "1"}}
    return await create(stage, previous_response_id=asked.id, **given)


async def two_parts(stage: OpenAIStage) -> tuple[Response, Response]:
    """Return both responses of a run that waited once."""
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    asked = await ask_weather(stage)
    return asked, await give_weather(stage, asked)


async def is_gone(stage: OpenAIStage, response: Response) -> bool:
    answer = await stage.http.get(f"/v1/responses/{response.id}")
    return answer.status_code == 404


async def contents(url: str) -> list[object]:
    return [text for (text,) in await run_sql(url, "select content from messages order by position")]


async def test_a_response_whose_turn_goes_on_is_not_deleted(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Slow.", gate=gate))
    begun = await create(stage, model="assistant", input="hi", background=True)

    with pytest.raises(openai.ConflictError, match=f"The response {begun.id} is not over"):
        await stage.client.responses.delete(begun.id)

    assert (await stage.client.responses.retrieve(begun.id)).id == begun.id
    gate.set()


async def test_deleting_a_later_part_leaves_the_first(stage: OpenAIStage, database_url: str) -> None:
    asked, answered = await two_parts(stage)

    await stage.client.responses.delete(answered.id)

    assert await is_gone(stage, answered)
    assert await stage.client.responses.retrieve(asked.id) == asked
    assert await contents(database_url) == ["Rain?", "", REDACTED_TEXT, REDACTED_TEXT]
    assert await run_sql(database_url, "select input::text like '%part\": \"1%' from runs") == [(False,)]


async def test_deleting_the_first_part_leaves_the_later_one(stage: OpenAIStage, database_url: str) -> None:
    asked, answered = await two_parts(stage)

    await stage.client.responses.delete(asked.id)

    assert await is_gone(stage, asked)
    assert await stage.client.responses.retrieve(answered.id) == answered
    assert await contents(database_url) == [REDACTED_TEXT, REDACTED_TEXT, "rain", "It rains."]
    assert await run_sql(database_url, "select from runs where input::text ~ 'Rain[?]|part\": \"0'") == []


async def test_deleting_every_part_erases_the_session(stage: OpenAIStage, database_url: str) -> None:
    asked, answered = await two_parts(stage)

    await stage.client.responses.delete(answered.id)
    await stage.client.responses.delete(asked.id)

    assert await is_gone(stage, asked)
    assert await run_sql(database_url, "select from runs") == []


async def test_brought_steps_stay_those_of_the_first_part(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    call = {"type": "function_call", "call_id": "call_0", "name": "weather", "arguments": "{}"}
    brought = [{"role": "user", "content": "Rain?"}, call, {**RAIN, "call_id": "call_0"}]
    asked = await create(stage, model="assistant", input=brought, tools=[WEATHER])
    answered = await give_weather(stage, asked)

    await stage.client.responses.delete(asked.id)

    assert await is_gone(stage, asked)
    assert await stage.client.responses.retrieve(answered.id) == answered


async def test_deleting_a_response_that_waits_ends_its_turn(stage: OpenAIStage, database_url: str) -> None:
    stage.model.script(Say("hello"), Call((ASKS_WEATHER,)))
    first = await create(stage, model="assistant", input="hi")
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER], previous_response_id=first.id)

    await stage.client.responses.delete(asked.id)

    assert await is_gone(stage, asked)
    assert await run_sql(database_url, "select status from runs order by seq") == [("succeeded",), ("cancelled",)]
    assert await run_sql(database_url, "select from runs where input::text ~ 'Rain|weather'") == []
    assert (await stage.client.responses.retrieve(first.id)).output_text == "hello"


async def test_a_part_is_not_deleted_while_a_later_one_waits(stage: OpenAIStage) -> None:
    again = ASKS_WEATHER.__class__("call_2", "weather", "{}")
    stage.model.script(Call((ASKS_WEATHER,)), Call((again,)))
    asked = await ask_weather(stage)
    waiting = await give_weather(stage, asked)

    with pytest.raises(openai.ConflictError, match=f"{waiting.id} waits for the outputs of its calls"):
        await stage.client.responses.delete(asked.id)

    await stage.client.responses.delete(waiting.id)
    assert await stage.client.responses.retrieve(asked.id) == asked


async def test_a_part_that_was_cancelled_before_its_first_message_is_deleted(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    asked = await ask_weather(stage)
    async with stage.claims:
        given = {"model": "assistant", "input": [RAIN], "previous_response_id": asked.id}
        begun = await create(stage, **given, background=True)
        await stage.client.responses.cancel(begun.id)

    await stage.client.responses.delete(begun.id)

    assert await is_gone(stage, begun)
    assert (await stage.client.responses.retrieve(asked.id)).output == asked.output


async def test_deletions_at_the_same_time_delete_once_and_are_not_found_else(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))
    response = await create(stage, model="assistant", input="hi")

    answers = await asyncio.gather(*(stage.http.delete(f"/v1/responses/{response.id}") for _ in range(4)))

    told = {(answer.status_code, answer.json().get("error", {}).get("message")) for answer in answers}
    assert (200, None) in told
    assert told <= {(200, None), (404, f"There is no response '{response.id}'.")}


async def test_a_stranger_cannot_delete_any_part(stage: OpenAIStage) -> None:
    asked, answered = await two_parts(stage)
    stranger = stage.client.with_options(api_key=await stage.api.key("berta", Scope.READ, Scope.WRITE))

    for response in (asked, answered):
        with pytest.raises(openai.NotFoundError):
            await stranger.responses.delete(response.id)

    assert await stage.client.responses.retrieve(answered.id) == answered


async def test_parts_that_are_deleted_at_the_same_time_leave_no_text(stage: OpenAIStage, database_url: str) -> None:
    stage.model.script(*(step for _ in range(6) for step in (Call((ASKS_WEATHER,)), Say("It rains."))), Say("more"))
    for _ in range(6):
        asked = await ask_weather(stage, "A secret?")
        given = await give_weather(stage, asked)
        session = await run_sql(database_url, "select session_id from runs order by seq desc limit 1")
        await asyncio.gather(*(stage.client.responses.delete(one.id) for one in (asked, given)))

        assert await run_sql(database_url, f"select id from runs where session_id = '{session[0][0]}'") == []


async def test_a_refused_deletion_leaves_the_wait(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    conversation = (await stage.client.conversations.create()).id
    named = {"model": "assistant", "conversation": conversation}
    asked = await create(stage, input="Rain?", tools=[WEATHER], **named)
    session = conversation.removeprefix("conv_")
    queued = await stage.http.post(
        f"/v1/sessions/{UUID(session)}/messages", json={"content": "Later."}, headers={"Prefer": "respond-async"}
    )
    assert queued.status_code == 202

    with pytest.raises(openai.ConflictError):
        await stage.client.responses.delete(asked.id)

    run = await stage.http.get(f"/v1/runs/{UUID(asked.id.removeprefix('resp_'))}")
    assert run.json()["status"] == "waiting"
