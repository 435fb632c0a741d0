"""What a turn learns of how a provider counts, and from which calls it learns nothing."""

from app.db.database import Database
from app.domain.message import ToolCall
from app.domain.prompt import Usage
from app.domain.run import RunStatus
from fakes.scripted_model import Call, Say
from fakes.stage import Stage, open_stage


def adding(call_id: str) -> Call:
    return Call((ToolCall(call_id, "calculator", '{"expression": "1+1"}'),))


async def ratio(stage: Stage) -> float | None:
    known = await stage.parts.calibrations.load(stage.model.calibration_key)
    return None if known is None else known.ratio


async def test_a_call_with_tools_teaches_how_the_provider_counts(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("hello", usage=Usage(1000, 1)))

    await stage.turn("hi")

    assert await ratio(stage) not in {None, 1.0}


async def test_the_call_after_the_last_tool_round_teaches_nothing(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(adding("a"), adding("b"), adding("c"), Say("enough", usage=Usage(60, 1)))

    run = await stage.turn("loop")

    assert run.status is RunStatus.SUCCEEDED
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, True, False]
    assert await ratio(stage) is None
