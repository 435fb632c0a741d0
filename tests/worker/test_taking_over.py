"""A run whose worker died over a tool call: whether the call is made again is for the tool to say."""

import asyncio

import pytest

from fakes.one_tool import OneTool
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.stage import open_stage
from throughline.db.database import Database
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.run import RunStatus
from throughline.turn.take_turn import take_turn


@pytest.mark.parametrize(
    ("repeatable", "calls", "told"),
    [(True, 2, "posted"), (False, 1, "This call was interrupted")],
    ids=["may be repeated", "must not be repeated"],
)
async def test_a_call_that_was_cut_is_made_again_only_where_the_tool_allows_it(
    database: Database, database_url: str, *, repeatable: bool, calls: int, told: str
) -> None:
    tools = OneTool("post", "posted", repeatable, hangs_at_first=True)
    stage = await open_stage(database, tools=tools)
    stage.model.script(Call((ToolCall("c1", "post", "{}"),)), Say("done"))
    run = await stage.submit("write to her")
    dying = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    while not tools.keys:
        await asyncio.sleep(0.01)
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")

    await take_turn(stage.turn_start(await stage.claim()))
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    messages = await stage.messages()
    assert (ended.status, ended.attempt) == (RunStatus.SUCCEEDED, 2)
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert text_of(messages[2].content).startswith(told)
    assert tools.keys == [f"{run.id}:c1"] * calls
