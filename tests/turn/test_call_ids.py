"""Ids of tool calls: no two calls of a run share one, and a resumed run tells its calls apart even where two do."""

import pytest

from fakes.one_tool import OneTool
from fakes.raw_sql import end_leases
from fakes.scripted_model import Call, Say
from fakes.stage import open_stage
from throughline.db.database import Database
from throughline.domain.message import NewMessage, Role, Source, ToolCall, text_of
from throughline.domain.run import RunStatus
from throughline.turn.take_turn import take_turn

CHARGE = ToolCall("call_0", "charge", "{}")


async def test_a_model_that_counts_calls_from_0_in_each_answer_gives_no_two_calls_one_key(
    database: Database,
) -> None:
    till = OneTool("charge", "charged", repeatable=True)
    stage = await open_stage(database, tools=till)
    stage.model.script(Call((CHARGE,)), Call((CHARGE, CHARGE)), Say("done"))

    run = await stage.turn("go")

    messages = await stage.messages()
    asked = [call.id for message in messages for call in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role is Role.TOOL]
    assert run.status is RunStatus.SUCCEEDED
    assert asked[0] == "call_0"
    assert len(set(till.keys)) == len(set(asked)) == 3
    assert sorted(asked) == sorted(str(call_id) for call_id in answered)


@pytest.mark.parametrize(
    ("repeatable", "calls", "told"), [(True, 1, "charged"), (False, 0, "This call was interrupted")]
)
async def test_a_resumed_call_with_the_id_of_an_answered_one_is_still_an_interrupted_one(
    database: Database, database_url: str, *, repeatable: bool, calls: int, told: str
) -> None:
    till = OneTool("charge", "charged", repeatable)
    stage = await open_stage(database, tools=till)
    stage.model.script(Say("done"))
    await stage.submit("go")
    lease = (await stage.claim()).lease
    for step, message in (
        ("user", NewMessage(Role.USER, "go", Source.API)),
        ("assistant:0", NewMessage(Role.ASSISTANT, "", Source.API, (CHARGE,))),
        ("tool:0:0", NewMessage(Role.TOOL, "charged", Source.API, tool_call_id=CHARGE.id, name="charge")),
        ("assistant:1", NewMessage(Role.ASSISTANT, "", Source.API, (CHARGE,))),
    ):
        await database.messages.append_message(lease, step, message)
    await end_leases(database_url)

    await take_turn(stage.turn_start(await stage.claim()))

    messages = await stage.messages()
    assert len(messages) == 6
    assert len(till.keys) == calls
    assert text_of(messages[4].content).startswith(told)
