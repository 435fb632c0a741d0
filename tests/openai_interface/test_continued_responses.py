"""Continuation of responses: at the same time, once more, after a cancelled turn, and of what is not stored."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import openai
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, calls_of, create, prompts
from throughline.db.database import Database


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


async def test_continuations_at_the_same_time_do_not_see_each_other(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), *(Say("next") for _ in range(8)))
    first = await create(stage, model="assistant", input="a")

    await asyncio.gather(
        *(create(stage, model="assistant", input=f"b{n}", previous_response_id=first.id) for n in range(8))
    )

    assert sorted(map(str, prompts(stage)[1:])) == [str(["a", "one", f"b{n}"]) for n in range(8)]


async def test_a_repeated_key_finds_a_continuation_that_is_over(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    first = await create(stage, model="assistant", input="a")
    body = {"model": "assistant", "input": "b", "previous_response_id": first.id}
    header = {"Idempotency-Key": "key"}
    second = await create(stage, **body, extra_headers=header)

    assert (await create(stage, **body, extra_headers=header)).id == second.id
    with pytest.raises(openai.ConflictError, match="used before with another request"):
        await create(stage, model="assistant", input="c", extra_headers=header)


async def test_outputs_for_which_nothing_waits_are_a_conflict(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    output = {"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}
    await create(stage, model="assistant", input=[output], previous_response_id=asked.id)

    other = {**output, "output": "sun"}
    with pytest.raises(openai.ConflictError, match="No turn waits for these outputs"):
        await create(stage, model="assistant", input=[other], previous_response_id=asked.id)


@pytest.mark.parametrize("in_conversation", [False, True])
async def test_outputs_that_are_sent_again_lead_to_the_same_response(
    stage: OpenAIStage, *, in_conversation: bool
) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    named = {"conversation": (await stage.client.conversations.create()).id} if in_conversation else {}
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER], **named)
    output = {"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}
    body = {"model": "assistant", "input": [output], **(named or {"previous_response_id": asked.id})}
    answered = await create(stage, **body)

    again = await create(stage, **body)
    streamed = await stage.client.responses.create(stream=True, **body)  # type: ignore[call-overload]  # one of many shapes
    events = [event async for event in streamed]

    assert (again.id, again.output_text) == (answered.id, "It rains.")
    assert events[-1].response == answered


async def test_outputs_of_an_earlier_wait_lead_to_the_response_after_it(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    output = {"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}
    second = await create(stage, model="assistant", input=[output], previous_response_id=asked.id)

    again = await create(stage, model="assistant", input=[output], previous_response_id=asked.id)

    assert again == second
    assert [call.call_id for call in calls_of(again)] == ["call_2"]


async def test_two_outputs_of_one_call_in_a_request_are_refused_as_such(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    output = {"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}

    with pytest.raises(openai.BadRequestError, match="'call_1' two different things"):
        await create(
            stage, model="assistant", input=[output, {**output, "output": "sun"}], previous_response_id=asked.id
        )
    answered = await create(stage, model="assistant", input=[output, output], previous_response_id=asked.id)
    assert answered.output_text == "It rains."


async def test_outputs_of_each_wait_of_a_conversation_lead_to_their_own_response(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)), Say("ok"))
    conversation = (await stage.client.conversations.create()).id
    named = {"model": "assistant", "conversation": conversation}
    await create(stage, input="Rain?", tools=[WEATHER], **named)
    second = await create(stage, input=[output_of("call_1")], **named)

    during = await create(stage, input=[output_of("call_1")], **named)
    third = await create(stage, input=[output_of("call_2")], **named)

    assert during == second
    assert await create(stage, input=[output_of("call_1")], **named) == second
    assert await create(stage, input=[output_of("call_2")], **named) == third


async def test_outputs_for_a_later_wait_are_refused_behind_an_earlier_response(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    await create(stage, model="assistant", input=[output_of("call_1")], previous_response_id=asked.id)

    with pytest.raises(openai.ConflictError, match="No turn waits for these outputs"):
        await create(stage, model="assistant", input=[output_of("call_2")], previous_response_id=asked.id)


async def test_outputs_are_sent_again_after_the_events_are_gone(stage: OpenAIStage, database_url: str) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)), Say("ok"))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    body = {"model": "assistant", "input": [output_of("call_1")], "previous_response_id": asked.id}
    second = await create(stage, **body)
    await create(stage, model="assistant", input=[output_of("call_2")], previous_response_id=second.id)
    await run_sql(database_url, "delete from run_events")

    streamed = await stage.client.responses.create(stream=True, **body)  # type: ignore[call-overload]  # one of many shapes
    events = [event async for event in streamed]

    assert await create(stage, **body) == second
    assert events[-1].response == second


async def test_history_is_refused_with_the_output_that_a_conversation_waits_for(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    conversation = (await stage.client.conversations.create()).id
    await create(stage, model="assistant", input="Rain?", tools=[WEATHER], conversation=conversation)

    brought = [{"role": role, "content": "hi"} for role in ("user", "assistant", "user")]
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_1"):
        await create(stage, model="assistant", input=brought, conversation=conversation)


async def test_what_is_not_stored_stays_out_of_a_stored_session(stage: OpenAIStage, database_url: str) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"))
    first = await create(stage, model="assistant", input="a")
    await create(stage, model="assistant", input="secret", previous_response_id=first.id, store=False)

    await create(stage, model="assistant", input="c", previous_response_id=first.id)

    assert prompts(stage) == [["a"], ["a", "one", "secret"], ["a", "one", "c"]]
    kept = "select m.content from messages m join sessions s on s.id = m.session_id where s.expires_at is null"
    assert not [row for row in await run_sql(database_url, kept) if "secret" in str(row)]


async def test_a_response_that_is_cancelled_before_its_first_message_can_be_read(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    output = {"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}
    async with stage.claims:
        begun = await create(stage, model="assistant", input=[output], previous_response_id=asked.id, background=True)

        await stage.client.responses.cancel(begun.id)

        assert (await stage.client.responses.retrieve(begun.id)).status == "cancelled"


def output_of(call_id: str) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call_id, "output": "rain"}
