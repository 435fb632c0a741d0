"""What a turn in somebody else's protocol asks of the database beside the turn itself."""

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from fakes.ag_ui_client import AgUiThread
from fakes.ai_sdk_client import UIChat
from fakes.database_wire import DatabaseWire
from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say
from throughline.ag_ui.front_end import AG_UI
from throughline.ai_sdk.front_end import AI_SDK
from throughline.db.database import Database, DatabaseConfig
from throughline.langgraph_api.front_end import LANGGRAPH_API

Send = Callable[[str], Awaitable[object]]


@pytest.fixture
async def stage(wire: DatabaseWire) -> AsyncIterator[OpenAIStage]:
    database = await Database.open(DatabaseConfig(url=wire.url))
    async with open_openai_stage(database, front_ends=(AG_UI, AI_SDK, LANGGRAPH_API)) as opened:
        yield opened
    await database.close()


def over_ag_ui(stage: OpenAIStage) -> Send:
    return AgUiThread(stage.http, thread_id=str(uuid4())).say


def over_ai_sdk(stage: OpenAIStage) -> Send:
    return UIChat(stage.http, "a chat").say


def over_langgraph(stage: OpenAIStage) -> Send:
    thread = str(uuid4())

    async def send(text: str) -> None:
        given = {"messages": [{"type": "human", "content": text}]}
        body = {"assistant_id": "assistant", "input": given, "if_not_exists": "create"}
        (await stage.http.post(f"/langgraph/threads/{thread}/runs/wait", json=body)).raise_for_status()

    return send


@pytest.mark.parametrize("make_send", [over_ag_ui, over_ai_sdk, over_langgraph])
async def test_a_request_looks_its_session_up_once(
    stage: OpenAIStage, wire: DatabaseWire, make_send: Callable[[OpenAIStage], Send]
) -> None:
    stage.model.script(Say("one"), Say("two"))
    send = make_send(stage)
    for text in ("first", "second"):
        wire.clear()
        await send(text)

        found = [one for one in wire.statements if one.lstrip().startswith("select s.id, s.owner_id")]
        assert len(found) == 1, (text, found)
