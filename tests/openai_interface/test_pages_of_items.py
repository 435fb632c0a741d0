"""Pages of items: the same items whatever the size of the page, made of no more messages than the page needs."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fakes.one_tool import OneTool
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery, MessageRepository
from throughline.domain.basic_types import Page, SessionId, UserId
from throughline.domain.message import Message, ToolCall

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
AGENT = replace(OPEN_AGENT, tools=("lookup",))
TOOLS = OneTool("lookup", "found", repeatable=True)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database, agent=AGENT, tools=TOOLS) as stage:
        yield stage


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the messages that pages were made of, in the order in which they were read."""
    positions: list[int] = []
    list_messages = MessageRepository.list_messages

    async def noted(
        self: MessageRepository, owner_id: UserId, session_id: SessionId, query: MessageQuery
    ) -> Page[Message]:
        page = await list_messages(self, owner_id, session_id, query)
        positions.extend(message.position for message in page.items)
        return page

    monkeypatch.setattr(MessageRepository, "list_messages", noted)
    return positions


async def long_conversation(stage: OpenAIStage, texts: int = 120) -> str:
    items = [{"role": "user", "content": f"text {number}"} for number in range(texts)]
    return (await stage.client.conversations.create(items=items)).id  # type: ignore[arg-type]  # dicts


async def conversation_with_calls(stage: OpenAIStage) -> str:
    """Return a conversation with brought calls, two turns whose calls have the same ids, and one that waits."""
    brought = [{"type": "function_call", "call_id": f"b{number}", "name": "weather"} for number in range(3)]
    results = [{"type": "function_call_output", "call_id": f"b{number}", "output": "rain"} for number in (2, 0)]
    late = {"type": "function_call_output", "call_id": "b1", "output": "late"}
    items = [*brought, *results, {"role": "user", "content": "And now?"}, late, {**late, "call_id": "nobody's"}]
    conversation = (await stage.client.conversations.create(items=items)).id  # type: ignore[arg-type]  # dicts
    two_calls = (ToolCall("call_0", "lookup", '{"a": 1}'), ToolCall("call_1", "lookup", "{}"))
    stage.model.script(Call(two_calls), Say("One."), Call(two_calls, text="Let me see."), Say("Two."))
    for asked in ("a", "b"):
        await stage.client.responses.create(model="assistant", input=asked, conversation=conversation)
    stage.model.script(Call((ToolCall("call_0", "lookup", "{}"), ToolCall("call_9", "weather", "{}"))), Say("Three."))
    waiting = {"model": "assistant", "conversation": conversation, "tools": [WEATHER]}
    await stage.client.responses.create(**waiting, input="c")  # type: ignore[call-overload]  # dicts
    output = {"type": "function_call_output", "call_id": "call_9", "output": "sun"}
    await stage.client.responses.create(**waiting, input=[output])  # type: ignore[call-overload]  # dicts
    return conversation


async def listed(stage: OpenAIStage, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401  # as in an address
    response = await stage.http.get(path, params=query)
    found: dict[str, Any] = response.raise_for_status().json()
    return found


async def items_one_by_one(stage: OpenAIStage, path: str, order: str, limit: int) -> list[dict[str, Any]]:
    """Return all items of the list, read in pages of `limit`."""
    page = await listed(stage, path, order=order, limit=limit)
    items = list(page["data"])
    while page["has_more"]:
        page = await listed(stage, path, order=order, limit=limit, after=page["last_id"])
        items += page["data"]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    return items


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_of_any_size_hold_the_same_items(stage: OpenAIStage, order: str, limit: int) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage)}/items"
    whole = await listed(stage, path, order=order, limit=100)

    paged = await items_one_by_one(stage, path, order, limit)

    assert whole["has_more"] is False
    assert paged == whole["data"]
    for item in whole["data"]:
        assert await listed(stage, f"{path}/{item['id']}") == item


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_go_on_after_an_approval_whose_id_is_that_of_its_call(database: Database, order: str) -> None:
    agent = replace(AGENT, needs_approval=frozenset({"lookup"}))
    async with open_openai_stage(database, agent=agent, tools=TOOLS) as stage:
        stage.model.script(Call((ToolCall("call_1", "lookup", "{}"),)), Say("Done."))
        conversation = (await stage.client.conversations.create()).id
        approval = {"type": "mcp_approval_response", "approval_request_id": "call_1", "approve": True}
        for asked in ("look", [approval]):
            await stage.client.responses.create(model="assistant", input=asked, conversation=conversation)  # type: ignore[arg-type]  # dicts
        path = f"/v1/conversations/{conversation}/items"

        items = await items_one_by_one(stage, path, order, 1)

    kinds = [item["type"] for item in items]
    assert kinds[:: 1 if order == "asc" else -1] == ["message", "mcp_approval_request", "mcp_call", "message"]
    assert "call_1" in {item["id"] for item in items}


async def test_each_call_of_the_service_shows_its_own_result(stage: OpenAIStage) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage)}/items"

    items = (await listed(stage, path, order="asc", limit=100))["data"]

    assert [item["type"].replace("function_call", "call") for item in items] == [
        *("call", "call", "call", "call_output", "call_output", "message", "call_output", "call_output"),
        *("message", "mcp_call", "mcp_call", "message"),
        *("message", "message", "mcp_call", "mcp_call", "message"),
        *("message", "mcp_call", "call", "call_output", "message"),
    ]
    assert {item["output"] for item in items if item["type"] == "mcp_call"} == {"found"}


async def test_a_page_ends_before_the_item_that_it_names(stage: OpenAIStage) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage)}/items"
    ids = [item["id"] for item in (await listed(stage, path, order="asc", limit=100))["data"]]

    between = await listed(stage, path, order="asc", limit=100, after=ids[0], before=ids[3])
    crossed = await listed(stage, path, order="desc", limit=100, after=ids[1], before=ids[2])

    assert ([item["id"] for item in between["data"]], between["has_more"]) == (ids[1:3], False)
    assert crossed == {"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": False}


@pytest.mark.parametrize("name", ["msg_1", "msg_" + "0" * 32, "fc_x", "a\x00b", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("field", ["after", "before"])
async def test_an_item_that_the_list_does_not_have_is_refused(stage: OpenAIStage, name: str, field: str) -> None:
    path = f"/v1/conversations/{await long_conversation(stage, 2)}/items"

    response = await stage.http.get(path, params={field: name})

    assert response.status_code == 400
    assert "The list has no item" in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == field


async def test_an_item_of_another_conversation_is_refused(stage: OpenAIStage) -> None:
    other = await listed(stage, f"/v1/conversations/{await long_conversation(stage, 1)}/items")
    path = f"/v1/conversations/{await long_conversation(stage, 2)}/items"

    response = await stage.http.get(path, params={"after": other["first_id"]})

    assert response.status_code == 400


async def test_a_page_reads_only_its_own_messages(stage: OpenAIStage, read: list[int]) -> None:
    path = f"/v1/conversations/{await long_conversation(stage)}/items"

    newest = await listed(stage, path, limit=1)
    await listed(stage, path, limit=2, after=newest["last_id"])
    await listed(stage, path, limit=1, order="asc")
    await listed(stage, f"{path}/{newest['last_id']}")

    assert read == [120, 119, 118, 120, 119, 118, 117, 1, 2, 3]


async def test_a_page_of_what_a_response_was_asked_reads_only_that(stage: OpenAIStage, read: list[int]) -> None:
    stage.model.script(Say("hello"))
    conversation = await long_conversation(stage)
    response = await stage.client.responses.create(model="assistant", input="hi", conversation=conversation)

    newest = await listed(stage, f"/v1/responses/{response.id}/input_items", limit=1)

    assert newest["data"][0]["content"][0]["text"] == "hi"
    assert newest["has_more"] is True
    assert read == [121, 120, 119]
