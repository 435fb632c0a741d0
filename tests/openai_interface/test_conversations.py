"""Conversations and their items, and the list of models, through OpenAI's own client."""

from collections.abc import AsyncIterator

import openai
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say
from throughline.db.database import Database
from throughline.domain.keys import Scope


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


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
