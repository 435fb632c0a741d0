"""Continuation of responses: at the same time, once more, after a cancelled turn, and of what is not stored."""

import asyncio
from dataclasses import replace

import openai
import pytest

from fakes.asking_server import BUY, BUYS, shop
from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, calls_of, create, prompts
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.openai.input_items import SUMMARY_HEAD, make_compaction_item


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


async def test_the_agents_are_the_models(stage: OpenAIStage) -> None:
    models = await stage.client.models.list()

    assert [(model.id, model.owned_by) for model in models.data] == [("assistant", "throughline")]
    assert (await stage.client.models.retrieve("assistant")).id == "assistant"
    with pytest.raises(openai.NotFoundError, match="The models are the agents: assistant"):
        await stage.client.models.retrieve("gpt-4o")


async def test_a_conversation_keeps_its_items_and_the_turns_of_its_responses(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello Alice."))
    items = [{"type": "message", "role": "user", "content": "My name is Alice."}]
    conversation = await stage.client.conversations.create(items=items, metadata={"a": "b"})  # type: ignore[arg-type]  # dicts

    response = await stage.client.responses.create(model="assistant", conversation=conversation.id, input="Hello!")

    assert response.conversation is not None
    assert response.conversation.id == conversation.id
    listed = await stage.client.conversations.items.list(conversation.id, order="asc", limit=2)
    assert (len(listed.data), listed.has_more) == (2, True)
    everything = [item async for item in stage.client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [item.content[0].text for item in everything if item.type == "message"] == [  # type: ignore[union-attr]  # texts
        "My name is Alice.",
        "Hello!",
        "Hello Alice.",
    ]
    assert everything[0] == await stage.client.conversations.items.retrieve(
        str(everything[0].id), conversation_id=conversation.id
    )


async def test_items_are_added_and_deleted(stage: OpenAIStage) -> None:
    conversation = await stage.client.conversations.create()
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]

    added = await stage.client.conversations.items.create(conversation.id, items=items)  # type: ignore[arg-type]  # dicts
    await stage.client.conversations.items.delete(str(added.data[0].id), conversation_id=conversation.id)

    listed = await stage.client.conversations.items.list(conversation.id)
    texts = [item.content[0].text for item in listed.data if item.type == "message"]  # type: ignore[union-attr]  # texts
    assert texts == ["two", "[This message was redacted.]"]


async def test_a_conversation_is_changed_and_deleted(stage: OpenAIStage) -> None:
    conversation = await stage.client.conversations.create(metadata={"a": "b"})

    changed = await stage.client.conversations.update(conversation.id, metadata={"c": "d"})
    await stage.client.conversations.delete(conversation.id)

    assert changed.metadata == {"c": "d"}
    with pytest.raises(openai.NotFoundError):
        await stage.client.conversations.retrieve(conversation.id)


async def test_system_messages_are_refused_as_items(stage: OpenAIStage) -> None:
    with pytest.raises(openai.BadRequestError, match="keeps no system or developer messages"):
        await stage.client.conversations.create(items=[{"type": "message", "role": "system", "content": "Be brief."}])


async def test_another_user_finds_neither_conversations_nor_responses(stage: OpenAIStage) -> None:
    stage.model.script(Say("Secret."))
    conversation = await stage.client.conversations.create()
    response = await stage.client.responses.create(model="assistant", input="hi", conversation=conversation.id)
    key = await stage.api.key("berta", Scope.READ, Scope.WRITE)
    stranger = stage.client.with_options(api_key=key)

    for ask in (
        stranger.conversations.retrieve(conversation.id),
        stranger.conversations.items.list(conversation.id),
        stranger.responses.retrieve(response.id),
        stranger.responses.cancel(response.id),
        stranger.responses.delete(response.id),
        stranger.responses.create(model="assistant", input="hi", conversation=conversation.id),
        stranger.responses.create(model="assistant", input="hi", previous_response_id=response.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await ask


async def test_an_unknown_key_is_refused_in_the_clients_own_words(stage: OpenAIStage) -> None:
    with pytest.raises(openai.AuthenticationError, match="unknown or revoked"):
        await stage.client.with_options(api_key="tl_12345678_wrong").models.list()


LONG = "The oven of the bakery in Graz must be cleaned every Friday before noon, and Anna has the key. " * 8


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


async def test_questions_of_a_tools_server_are_calls_that_the_client_answers(database: Database) -> None:
    async with open_openai_stage(database, agent=BUYS, tool_servers=shop(questions=2)) as stage:
        stage.model.script(Call((BUY,)), Say("They are yours."))
        first = await create(stage, model="assistant", input="Shoes!")
        output = {"type": "function_call_output", "output": "42"}
        answer = {**output, "call_id": calls_of(first)[0].call_id}
        second = await create(stage, model="assistant", input=[answer], previous_response_id=first.id)
        answer = {**output, "call_id": calls_of(second)[0].call_id}
        third = await create(stage, model="assistant", input=[answer], previous_response_id=second.id)

        again = await create(stage, model="assistant", input=[answer], previous_response_id=second.id)

    assert [(call.name, call.call_id) for one in (first, second) for call in calls_of(one)] == [
        ("ask_user", "call_1:1"),
        ("ask_user", "call_1:2"),
    ]
    assert (third.output_text, again) == ("They are yours.", third)
    assert [item.type for item in third.output] == ["mcp_call", "message"]
