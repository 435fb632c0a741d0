"""What whole turns tell and leave behind has the shapes that are documented."""

from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from fakes.stage import Stage, open_stage, with_context
from throughline.db.database import Database
from throughline.domain.errors import AnswerIncomplete, ModelQuotaExhausted
from throughline.domain.events import EventType
from throughline.domain.message import ToolCall
from throughline.domain.run import Run
from throughline.wire.events import EVENTS, event_json

FINISHED = {EventType.RUN_STARTED, EventType.MESSAGE_DELTA, EventType.MESSAGE_COMPLETED, EventType.RUN_COMPLETED}


async def told_in(stage: Stage, run: Run) -> set[EventType]:
    """Compare the run's events with their shapes, and return the kinds there were."""
    events = [*await stage.events(run), *await stage.database.followed_runs.replay(run)]
    for event in events:
        rendered = event_json(event.event)
        assert EVENTS[event.type].model_validate(rendered).model_dump(mode="json") == rendered
    return {event.type for event in events}


async def test_a_turn_with_a_tool_and_a_failed_try(database: Database) -> None:
    stage = await open_stage(database)
    call = ToolCall("c1", "calculator", '{"expression": "2+3"}')
    stage.model.script(Fail(AnswerIncomplete("cut"), shown="half"), Call((call,), is_streamed=True), Say("5"))

    kinds = await told_in(stage, await stage.turn("What is 2+3?"))

    of_tools = {EventType.TOOL_CALL_DELTA, EventType.TOOL_CALL, EventType.TOOL_RESULT}
    assert kinds == FINISHED | of_tools | {EventType.RESET}


async def test_turns_without_an_answer(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Fail(ModelQuotaExhausted("no credit")))
    failed = await stage.turn("Hi")
    waiting = await stage.submit("Still there?")
    await database.runs.request_cancel(stage.owner_id, waiting.id)
    cancelled = await database.runs.get_run(stage.owner_id, waiting.id)

    assert EventType.RUN_FAILED in await told_in(stage, failed)
    assert EventType.RUN_CANCELLED in await told_in(stage, cancelled)


async def test_turns_that_make_room(database: Database) -> None:
    model = ScriptedModel(context_limit=2048)
    model.by_request = lambda request: Say("answer " * 60) if request.tools else Say("Intent: numbers.")
    stage = await open_stage(database, agent=with_context(window=2048, min_recent_messages=2), model=model)
    kinds: set[EventType] = set()

    for number in range(8):
        kinds |= await told_in(stage, await stage.turn(f"question {number} " + "word " * 60))

    assert kinds > FINISHED | {EventType.COMPACTION_STARTED, EventType.COMPACTION_FINISHED}
