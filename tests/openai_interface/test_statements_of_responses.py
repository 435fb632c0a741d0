"""What OpenAI's interface asks of the database beside the turn: where it continues, and nothing at its end."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.database_wire import DatabaseWire, database_wire
from fakes.one_tool import OneTool
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.append import PORTION
from throughline.domain.message import ToolCall

OF_ITSELF = {"session": "select s.id,", "run": "select r.id,", "messages": "select m.id,"}
"""How the statements of the interface itself begin. Those of the turn and of its readers begin otherwise."""


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[DatabaseWire]:
    async with database_wire(database_url) as between:
        yield between


@pytest.fixture
async def wired(wire: DatabaseWire) -> AsyncIterator[Database]:
    database = await Database.open(DatabaseConfig(url=wire.url, pool_size=2))
    yield database
    await database.close()


def read_by(wire: DatabaseWire) -> dict[str, int]:
    """Return how often the interface itself has read what."""
    texts = [" ".join(statement.split()) for statement in wire.statements]
    return {name: sum(text.startswith(part) for text in texts) for name, part in OF_ITSELF.items()}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_response_in_a_conversation_reads_nothing_else(
    wired: Database, wire: DatabaseWire, *, is_streamed: bool
) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        conversation = (await stage.client.conversations.create()).id
        await ask(stage, "a", conversation, is_streamed=False)
        wire.clear()

        text = await ask(stage, "b", conversation, is_streamed=is_streamed)

        assert "two" in text
        assert read_by(wire) == {"session": 0, "run": 0, "messages": 0}


async def test_a_response_that_follows_another_reads_only_that_run(wired: Database, wire: DatabaseWire) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        first = await stage.client.responses.create(model="assistant", input="a")
        wire.clear()

        second = await stage.client.responses.create(model="assistant", input="b", previous_response_id=first.id)

        assert second.output_text == "two"
        assert read_by(wire) == {"session": 0, "run": 1, "messages": 0}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_completion_reads_only_its_session(wired: Database, wire: DatabaseWire, *, is_streamed: bool) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        await complete(stage, "a", is_streamed=False)
        wire.clear()

        text = await complete(stage, "b", is_streamed=is_streamed)

        assert "two" in text
        assert read_by(wire) == {"session": 1, "run": 0, "messages": 0}


async def test_a_response_that_called_a_tool_reads_its_messages(wired: Database, wire: DatabaseWire) -> None:
    tools = OneTool("lookup", "found", repeatable=True)
    async with open_openai_stage(wired, agent=replace(OPEN_AGENT, tools=("lookup",)), tools=tools) as stage:
        stage.model.script(Call((ToolCall("c1", "lookup", "{}"),)), Say("done"))
        conversation = (await stage.client.conversations.create()).id
        wire.clear()

        text = await ask(stage, "a", conversation, is_streamed=False)

        assert "done" in text
        assert "mcp_call" in text
        assert read_by(wire) == {"session": 0, "run": 0, "messages": 1}


async def test_a_long_conversation_is_stored_in_few_statements(wired: Database, wire: DatabaseWire) -> None:
    items = [{"role": "user", "content": f"text {number}"} for number in range(PORTION + 1)]
    async with open_openai_stage(wired) as stage:
        wire.clear()

        created = await stage.client.conversations.create(items=items)  # type: ignore[arg-type]  # dicts

        assert sum("insert into messages" in statement for statement in wire.statements) == 2
        assert len(wire.statements) < PORTION  # also those of the claims that go on meanwhile
        listed = [item async for item in stage.client.conversations.items.list(created.id, order="asc", limit=100)]
        texts = [item.content[0].text for item in listed if item.type == "message"]  # type: ignore[union-attr]  # texts
        assert texts == [item["content"] for item in items]


async def ask(stage: OpenAIStage, text: str, conversation: str, *, is_streamed: bool) -> str:
    """Return the answer to the request as it was sent."""
    body = {"model": "assistant", "input": text, "conversation": conversation, "stream": is_streamed}
    response = await stage.http.post("/v1/responses", json=body)
    return response.raise_for_status().text


async def complete(stage: OpenAIStage, text: str, *, is_streamed: bool) -> str:
    """Return the answer to a request for a chat completion in one session as it was sent."""
    body = {"model": "assistant", "messages": [{"role": "user", "content": text}], "stream": is_streamed}
    response = await stage.http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "talk"})
    return response.raise_for_status().text
