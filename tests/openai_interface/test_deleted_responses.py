"""Deletion of responses: each is deleted alone, together with the messages of its part of the run."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import openai
import pytest
from openai.types.responses import Response

from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.stage import OneTool
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, create
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery, MessageRepository
from throughline.domain.basic_types import Page, SessionId, UserId
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import Scope
from throughline.domain.message import REDACTED_TEXT, Message, NewMessage, Source, ToolCall
from throughline.http.openai_messages import MAX_CALLS
from throughline.openai.input_items import CallItem, CallResultItem, CompactionItem, Item, read_items

pytestmark = pytest.mark.calm("a deletion takes more statements than twenty tries always get through")
RAIN = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}


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
    assert await run_sql(database_url, "select max(redaction_count) from sessions") == [(1,)], "both at once"
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


PAGES_WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
AGENT = replace(OPEN_AGENT, tools=("lookup",))
TOOLS = OneTool("lookup", "found", repeatable=True)


@pytest.fixture
async def stage_pages(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database, agent=AGENT, tools=TOOLS) as stage_pages:
        yield stage_pages


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


async def long_conversation(stage_pages: OpenAIStage, texts: int = 120) -> str:
    items = [{"role": "user", "content": f"text {number}"} for number in range(texts)]
    return (await stage_pages.client.conversations.create(items=items)).id  # type: ignore[arg-type]  # dicts


async def conversation_with_calls(stage_pages: OpenAIStage) -> str:
    """Return a conversation with brought calls, two turns whose calls have the same ids, and one that waits."""
    brought = [{"type": "function_call", "call_id": f"b{number}", "name": "weather"} for number in range(3)]
    results = [{"type": "function_call_output", "call_id": f"b{number}", "output": "rain"} for number in (2, 0)]
    late = {"type": "function_call_output", "call_id": "b1", "output": "late"}
    items = [*brought, *results, {"role": "user", "content": "And now?"}, late, {**late, "call_id": "nobody's"}]
    conversation = (await stage_pages.client.conversations.create(items=items)).id  # type: ignore[arg-type]  # dicts
    two_calls = (ToolCall("call_0", "lookup", '{"a": 1}'), ToolCall("call_1", "lookup", "{}"))
    stage_pages.model.script(Call(two_calls), Say("One."), Call(two_calls, text="Let me see."), Say("Two."))
    for asked in ("a", "b"):
        await stage_pages.client.responses.create(model="assistant", input=asked, conversation=conversation)
    stage_pages.model.script(
        Call((ToolCall("call_0", "lookup", "{}"), ToolCall("call_9", "weather", "{}"))), Say("Three.")
    )
    waiting = {"model": "assistant", "conversation": conversation, "tools": [PAGES_WEATHER]}
    await stage_pages.client.responses.create(**waiting, input="c")  # type: ignore[call-overload]  # dicts
    output = {"type": "function_call_output", "call_id": "call_9", "output": "sun"}
    await stage_pages.client.responses.create(**waiting, input=[output])  # type: ignore[call-overload]  # dicts
    return conversation


async def listed(stage_pages: OpenAIStage, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401  # as in an address
    response = await stage_pages.http.get(path, params=query)
    found: dict[str, Any] = response.raise_for_status().json()
    return found


async def items_one_by_one(stage_pages: OpenAIStage, path: str, order: str, limit: int) -> list[dict[str, Any]]:
    """Return all items of the list, read in pages of `limit`."""
    page = await listed(stage_pages, path, order=order, limit=limit)
    items = list(page["data"])
    while page["has_more"]:
        page = await listed(stage_pages, path, order=order, limit=limit, after=page["last_id"])
        items += page["data"]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    return items


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_of_any_size_hold_the_same_items(stage_pages: OpenAIStage, order: str, limit: int) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage_pages)}/items"
    whole = await listed(stage_pages, path, order=order, limit=100)

    paged = await items_one_by_one(stage_pages, path, order, limit)

    assert whole["has_more"] is False
    assert paged == whole["data"]
    for item in whole["data"]:
        assert await listed(stage_pages, f"{path}/{item['id']}") == item


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_go_on_after_an_approval_whose_id_is_that_of_its_call(database: Database, order: str) -> None:
    agent = replace(AGENT, needs_approval=frozenset({"lookup"}))
    async with open_openai_stage(database, agent=agent, tools=TOOLS) as stage_pages:
        stage_pages.model.script(Call((ToolCall("call_1", "lookup", "{}"),)), Say("Done."))
        conversation = (await stage_pages.client.conversations.create()).id
        approval = {"type": "mcp_approval_response", "approval_request_id": "call_1", "approve": True}
        for asked in ("look", [approval]):
            await stage_pages.client.responses.create(model="assistant", input=asked, conversation=conversation)  # type: ignore[arg-type]  # dicts
        path = f"/v1/conversations/{conversation}/items"

        items = await items_one_by_one(stage_pages, path, order, 1)

    kinds = [item["type"] for item in items]
    assert kinds[:: 1 if order == "asc" else -1] == ["message", "mcp_approval_request", "mcp_call", "message"]
    assert "call_1" in {item["id"] for item in items}


async def test_each_call_of_the_service_shows_its_own_result(stage_pages: OpenAIStage) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage_pages)}/items"

    items = (await listed(stage_pages, path, order="asc", limit=100))["data"]

    assert [item["type"].replace("function_call", "call") for item in items] == [
        *("call", "call", "call", "call_output", "call_output", "message", "call_output", "call_output"),
        *("message", "mcp_call", "mcp_call", "message"),
        *("message", "message", "mcp_call", "mcp_call", "message"),
        *("message", "mcp_call", "call", "call_output", "message"),
    ]
    assert {item["output"] for item in items if item["type"] == "mcp_call"} == {"found"}


async def test_a_page_ends_before_the_item_that_it_names(stage_pages: OpenAIStage) -> None:
    path = f"/v1/conversations/{await conversation_with_calls(stage_pages)}/items"
    ids = [item["id"] for item in (await listed(stage_pages, path, order="asc", limit=100))["data"]]

    between = await listed(stage_pages, path, order="asc", limit=100, after=ids[0], before=ids[3])
    crossed = await listed(stage_pages, path, order="desc", limit=100, after=ids[1], before=ids[2])

    assert ([item["id"] for item in between["data"]], between["has_more"]) == (ids[1:3], False)
    assert crossed == {"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": False}


@pytest.mark.parametrize("name", ["msg_1", "msg_" + "0" * 32, "fc_x", "a\x00b", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("field", ["after", "before"])
async def test_an_item_that_the_list_does_not_have_is_refused(stage_pages: OpenAIStage, name: str, field: str) -> None:
    path = f"/v1/conversations/{await long_conversation(stage_pages, 2)}/items"

    response = await stage_pages.http.get(path, params={field: name})

    assert response.status_code == 400
    assert "The list has no item" in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == field


async def test_an_item_of_another_conversation_is_refused(stage_pages: OpenAIStage) -> None:
    other = await listed(stage_pages, f"/v1/conversations/{await long_conversation(stage_pages, 1)}/items")
    path = f"/v1/conversations/{await long_conversation(stage_pages, 2)}/items"

    response = await stage_pages.http.get(path, params={"after": other["first_id"]})

    assert response.status_code == 400


async def test_a_page_reads_only_its_own_messages(stage_pages: OpenAIStage, read: list[int]) -> None:
    path = f"/v1/conversations/{await long_conversation(stage_pages)}/items"

    newest = await listed(stage_pages, path, limit=1)
    await listed(stage_pages, path, limit=2, after=newest["last_id"])
    await listed(stage_pages, path, limit=1, order="asc")
    await listed(stage_pages, f"{path}/{newest['last_id']}")

    assert read == [120, 119, 118, 120, 119, 118, 117, 1, 2, 3]


async def test_a_page_of_what_a_response_was_asked_reads_only_that(stage_pages: OpenAIStage, read: list[int]) -> None:
    stage_pages.model.script(Say("hello"))
    conversation = await long_conversation(stage_pages)
    response = await stage_pages.client.responses.create(model="assistant", input="hi", conversation=conversation)

    newest = await listed(stage_pages, f"/v1/responses/{response.id}/input_items", limit=1)

    assert newest["data"][0]["content"][0]["text"] == "hi"
    assert newest["has_more"] is True
    assert read == [121, 120, 119]


def calls(number: int) -> list[Item]:
    return [CallItem(type="function_call", call_id=f"c{place}", name="f") for place in range(number)]


def read_input(*items: Item) -> tuple[NewMessage, ...]:
    return read_items(items, Source.API)[1]


def compaction(content: object) -> CompactionItem:
    written = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
    return CompactionItem(type="compaction", encrypted_content=written)


def test_calls_that_follow_each_other_are_one_message() -> None:
    result = CallResultItem(type="function_call_output", call_id="c0", output="x")

    messages = read_input(*calls(MAX_CALLS), result, *calls(2))

    assert [len(message.tool_calls) for message in messages] == [MAX_CALLS, 0, 2]
    assert [call.id for call in messages[0].tool_calls[-2:]] == ["c998", "c999"]
    assert messages[1].name == "f"


def test_a_message_takes_no_more_calls_than_one_of_a_chat() -> None:
    with pytest.raises(InvalidInput, match=r"'c1000' .* at most 1,000 calls"):
        read_input(*calls(MAX_CALLS + 1))


def test_a_nul_in_a_compaction_item_is_replaced_like_in_any_text() -> None:
    said = {"type": "message", "role": "user", "content": "a\x00b"}

    summary, message = read_input(compaction({"version": 1, "summary": "They\x00met.", "items": [said]}))

    assert str(summary.content).endswith("They\N{REPLACEMENT CHARACTER}met.")
    assert message.content == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("nested", [["x"] * 3, "x"])
def test_a_compaction_item_nested_too_deeply_is_one_of_another_service(nested: object) -> None:
    for _ in range(70):
        nested = [nested]

    with pytest.raises(InvalidInput, match="this service has not made"):
        read_input(compaction({"version": 1, "summary": "", "items": [{"a": nested}]}))
