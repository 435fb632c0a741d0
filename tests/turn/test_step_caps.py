"""What one step of a model may cost is bounded, and whoever asked for more is told so."""

from dataclasses import replace

from fakes.scripted_model import Call, Say, ScriptedModel, Step
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_box import make_tool_box
from throughline.db.database import Database
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.run import RunStatus
from throughline.turn.state import TurnConfig

SAY = "fakes.own_tools:say"


async def open_capped_stage(database: Database, config: TurnConfig, *steps: Step) -> Stage:
    tools = make_tool_box(imported=(SAY,), timeout_seconds=30, max_result_bytes=1_000_000)
    agent = replace(AGENT, tools=(SAY,))
    return await open_stage(database, agent=agent, model=ScriptedModel(*steps), tools=tools, config=config)


def calls(number: int, *, words: int) -> Call:
    arguments = f'{{"text": "word ", "times": {words}}}'
    return Call(tuple(ToolCall(f"c{index}", "say", arguments) for index in range(number)))


async def results(stage: Stage) -> list[tuple[str, bool]]:
    """Return the text of each result in the order of the calls, and whether it is an error."""
    stored = [message for message in await stage.messages() if message.role is Role.TOOL]
    ordered = sorted(stored, key=lambda message: int((message.tool_call_id or "c0")[1:]))
    return [(text_of(message.content), message.metadata.get("is_error") is True) for message in ordered]


async def test_the_first_calls_of_a_step_run_and_the_others_get_an_error(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_calls_per_step=3)
    stage = await open_capped_stage(database, config, calls(5, words=1), Say("done"))

    run = await stage.turn("Go")

    assert run.status is RunStatus.SUCCEEDED
    assert [is_error for _, is_error in await results(stage)] == [False, False, False, True, True]
    assert "number 5 of its step, and the first 3 run" in (await results(stage))[4][0]


async def test_the_results_of_a_step_share_their_room(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_parallel_tools=1, max_step_result_bytes=50_000)
    stage = await open_capped_stage(database, config, calls(4, words=4_000), Say("done"))

    run = await stage.turn("Go")

    texts = await results(stage)
    assert run.status is RunStatus.SUCCEEDED
    assert [is_error for _, is_error in texts] == [False, False, True, True]
    assert "it has 20000 bytes, and of the 50000 bytes" in texts[2][0]


async def test_an_answer_that_does_not_end_is_stopped(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_answer_bytes=1_000)
    stage = await open_capped_stage(database, config, Say("漢字 " * 200), Say("short"))

    run = await stage.turn("Go on for ever")
    after = await stage.turn("Briefly")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == "answer_too_long"
    assert "the 1000 bytes an answer may have" in run.error.detail
    assert after.status is RunStatus.SUCCEEDED
    assert [text_of(message.content) for message in await stage.messages()] == ["Go on for ever", "Briefly", "short"]
