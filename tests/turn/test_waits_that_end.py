"""How waits of turns end: resumed, expired, cancelled or interrupted, and what readers see of them."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.one_tool import OneTool
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.stage import AGENT, CLAIMER, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from fakes.waiting_turns import (
    APPROVED,
    ASKS_WEATHER,
    CAREFUL,
    careful_stage,
    kinds,
    play,
    results,
    resume,
    send,
)
from throughline.db.database import Database
from throughline.domain.errors import RunNotWaiting
from throughline.domain.events import AnswerReset, EventType, RunEvent, RunWaiting
from throughline.domain.message import Role, Source
from throughline.domain.prompt import Usage
from throughline.domain.run import ClaimedRun, OnBusy, Run, RunInput, RunStatus, Submission
from throughline.domain.tool import Resolution, WaitKind
from throughline.turn.follow_run import Following, Idle
from throughline.turn.take_turn import take_turn


async def test_an_expired_wait_goes_on_with_an_error_result(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=True)
    stage, run = await careful_stage(database, tool, agent=replace(CAREFUL, wait_seconds=60))
    stage.model.script(Say("Nobody said yes."))
    assert await database.runs.expire_waits(stage.clock.now() + timedelta(seconds=59)) == 0

    assert await database.runs.expire_waits(stage.clock.now() + timedelta(seconds=60)) == 1
    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    ((_, told),) = results(await stage.messages())
    assert str(told).startswith("Nothing came from outside in time")
    assert tool.keys == []
    with pytest.raises(RunNotWaiting):
        await resume(stage, run, APPROVED)


async def begin_and_die(stage: Stage, tool: OneTool, claimed: ClaimedRun) -> None:
    """Play the turn until its tool hangs, then cancel it, as a stopping process does."""
    begun = len(tool.keys)
    turn = asyncio.create_task(take_turn(stage.turn_start(claimed)))
    async with asyncio.timeout(HANG_SECONDS):
        while len(tool.keys) == begun:
            await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)


async def test_an_approved_call_is_not_run_twice_if_its_process_ends(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=False, hangs_at_first=True)
    stage, run = await careful_stage(database, tool)
    stage.model.script(Say("I do not know whether it worked."))
    await resume(stage, run, APPROVED)
    claimed = await stage.claim()
    await begin_and_die(stage, tool, claimed)
    await database.runs.give_back(claimed.lease)

    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    assert len(tool.keys) == 1
    ((_, told),) = results(await stage.messages())
    assert "whether it took effect is unknown" in str(told)


async def test_later_messages_wait_behind_a_waiting_run(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."), Say("You are welcome."))
    run = await send(stage)
    later = await stage.submit("thanks")

    assert await database.runs.claim_next(CLAIMER) is None
    await resume(stage, run, Resolution("call_1", "rain"))
    await play(stage, run)
    await play(stage, later)

    said = [message.content for message in await stage.messages() if message.role is not Role.TOOL]
    assert said == ["hi", "", "It rains.", "thanks", "You are welcome."]


async def test_an_interrupting_message_cancels_a_waiting_run(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("Never mind the weather."))
    run = await send(stage)
    given = Submission(
        stage.owner_id,
        stage.session.id,
        RunInput("forget it"),
        Source.API,
        fingerprint="f",
        idempotency_key="k",
        on_busy=OnBusy.INTERRUPT,
    )

    later = (await database.runs.submit(given, None)).run

    cancelled = await database.runs.get_run(stage.owner_id, run.id)
    assert (cancelled.status, cancelled.waiting_for) == (RunStatus.CANCELLED, None)
    assert (await play(stage, later)).status is RunStatus.SUCCEEDED
    assert [event.type for event in await stage.events(run)][-2:] == [EventType.RUN_WAITING, EventType.RUN_CANCELLED]


async def test_a_waiting_run_is_cancelled_at_once(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("Hello."))
    run = await send(stage)

    assert (await database.runs.request_cancel(stage.owner_id, run.id)).status is RunStatus.CANCELLED

    assert (await stage.turn("hello")).status is RunStatus.SUCCEEDED
    with pytest.raises(RunNotWaiting, match="is cancelled"):
        await resume(stage, run, Resolution("call_1", "rain"))


async def test_the_usage_of_all_parts_of_a_turn_is_added(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(
        Call((ASKS_WEATHER,), usage=Usage(input_tokens=10, output_tokens=1)),
        Say("ok", usage=Usage(input_tokens=20, output_tokens=2, cached_tokens=5)),
    )
    run = await send(stage)
    await resume(stage, run, Resolution("call_1", "rain"))

    usage = (await play(stage, run)).usage

    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (30, 3, 5)
    session = await stage.database.sessions.get(stage.owner_id, stage.session.id)
    assert session.message_count == 4


async def test_a_turn_may_wait_more_often_than_it_may_be_tried(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_tool_rounds=10))
    calls = [replace(ASKS_WEATHER, id=f"call_{number}") for number in range(6)]
    stage.model.script(*[Call((call,)) for call in calls], Say("enough"))
    run = await send(stage)
    for call in calls:
        await resume(stage, run, Resolution(call.id, "rain"))
        run = await play(stage, run)

    assert (run.status, run.wait_count) == (RunStatus.SUCCEEDED, 6)
    assert not [event for event in await stage.events(run) if isinstance(event.event, AnswerReset)]


async def test_a_client_s_tool_cannot_make_a_turn_endless(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_client_rounds=2))
    calls = [replace(ASKS_WEATHER, id=f"call_{number}") for number in range(3)]
    stage.model.script(*[Call((call,)) for call in calls])
    run = await send(stage)
    for call in calls[:2]:
        await resume(stage, run, Resolution(call.id, "rain"))
        run = await play(stage, run)

    assert (run.status, run.wait_count) == (RunStatus.SUCCEEDED, 2)
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, False]


async def read_until_over(stage: Stage, run: Run, after: int = 0) -> list[RunEvent]:
    following = Following(stage.database.followed_runs, stage.clock.monotonic)
    seen: list[RunEvent] = []
    async with asyncio.timeout(HANG_SECONDS):
        async for item in following.events(run, after=after):
            seen += [] if isinstance(item, Idle) else item
    return seen


async def test_readers_end_with_the_wait_and_can_go_on_after_it(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("ok"))
    run = await send(stage)

    seen = await read_until_over(stage, run)

    waiting = seen[-1].event
    assert isinstance(waiting, RunWaiting)
    assert kinds(waiting.run) == {"call_1": WaitKind.TOOL_RESULT}
    assert waiting.run.wait is not None
    assert [awaited.call for awaited in waiting.run.wait.calls] == [ASKS_WEATHER]
    following = asyncio.create_task(read_until_over(stage, run, after=seen[-1].seq))
    await resume(stage, run, Resolution("call_1", "rain"))
    await play(stage, run)
    later = await following
    assert later[0].type is EventType.RUN_STARTED
    assert later[-1].type is EventType.RUN_COMPLETED
    whole = await read_until_over(stage, await database.runs.get_run(stage.owner_id, run.id))
    assert [event.type for event in whole] == [event.type for event in (*seen, *later)]


async def test_a_wait_is_shown_again_after_its_events_were_lost(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    run = await send(stage)
    await run_sql(database_url, "delete from run_events")

    seen = await read_until_over(stage, run)

    assert [event.type for event in seen] == [
        EventType.RESET,
        EventType.MESSAGE_COMPLETED,
        EventType.TOOL_CALL,
        EventType.RUN_WAITING,
    ]
