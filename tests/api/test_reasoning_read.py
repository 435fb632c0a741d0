"""Reasoning over REST: with the history where it is asked for, in the event stream, and in exports."""

import json

import httpx
import pytest

from api.test_event_stream import STREAM, parse
from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.event_log import MESSAGE_ID
from fakes.scripted_turns import Script
from throughline.db.database import Database
from throughline.domain.events import MessageDelta, ReasoningDelta
from throughline.domain.keys import Scope
from throughline.domain.reasoning import Reasoning

THOUGHT = "They greet me.\u2028I greet back."
TOLD = (ReasoningDelta(MESSAGE_ID, THOUGHT), MessageDelta(MESSAGE_ID, "Hello."))


def scripts(stage: ApiStage, *, is_shown: bool) -> ApiStage:
    stage.turns.scripts = [Script(TOLD, "Hello.", Reasoning(THOUGHT, is_shown=is_shown))]
    return stage


async def reasoning_of(client: httpx.AsyncClient, session: str, query: str) -> list[object]:
    response = await client.get(f"{session}/messages{query}")
    assert response.status_code == 200, response.text
    return [message["reasoning"] for message in response.json()["data"]]


async def test_the_history_has_it_only_where_it_is_asked_for(database: Database) -> None:
    async with scripts(set_stage(database), is_shown=True).client() as client:
        session = await open_session(client)
        answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

        assert await reasoning_of(client, session, "") == [None, None]
        assert await reasoning_of(client, session, "?include=reasoning") == [None, THOUGHT]
        assert await reasoning_of(client, session, "?include=reasoning&order=desc&limit=1") == [THOUGHT]
        assert (await client.get(f"{session}/messages?include=all")).status_code == 422
        assert "reasoning" not in answered["message"]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [((Scope.READ, Scope.WRITE), None), ((Scope.READ, Scope.WRITE, Scope.OPERATE), THOUGHT)],
)
async def test_hidden_reasoning_is_for_operators(
    database: Database, scopes: tuple[Scope, ...], expected: str | None
) -> None:
    stage = scripts(set_stage(database, KEYED), is_shown=False)
    async with stage.client(key=await stage.key("ada", *scopes)) as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})

        assert await reasoning_of(client, session, "?include=reasoning") == [None, expected]
        assert THOUGHT not in (await client.get(f"{session}/export")).text


async def test_the_stream_has_it_before_the_text(database: Database) -> None:
    stage = scripts(set_stage(database, LOCAL), is_shown=True)
    async with stage.served() as client:
        session = await open_session(client)
        response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=STREAM)
        await stage.turns.settle()

    seen = parse(response.text)
    assert [event.type for event in seen] == [
        "run.started",
        "reasoning.delta",
        "message.delta",
        "message.completed",
        "run.completed",
    ]
    assert seen[1].data == {"message_id": str(MESSAGE_ID), "text": THOUGHT}


async def test_an_export_has_it_and_an_import_takes_it_over(database: Database) -> None:
    async with scripts(set_stage(database), is_shown=True).client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})
        exported = (await client.get(f"{session}/export")).content
        headers = {"Content-Type": "application/x-ndjson"}
        imported = await client.post("/v1/sessions/import", content=exported, headers=headers)

        lines = [json.loads(line) for line in exported.split(b"\n")[1:] if line]
        assert [line.get("reasoning", "none") for line in lines] == ["none", THOUGHT]
        assert await reasoning_of(client, imported.headers["Location"], "?include=reasoning") == [None, THOUGHT]
