"""How waits of turns end: resumed, expired, cancelled or interrupted, and what readers see of them."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.conversations import claim_next
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.scripted_turns import (
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
from fakes.stage import AGENT, CLAIMER, OneTool, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting
from throughline.domain.events import AnswerReset, EventType, RunEvent, RunWaiting
from throughline.domain.message import Role, Source, ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import ClaimedRun, OnBusy, Run, RunInput, RunStatus, Submission
from throughline.domain.tool import ApprovalDecision, Question, Resolution, WaitKind, read_question
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

    assert await claim_next(database.runs, CLAIMER) is None
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


async def test_calls_of_a_client_s_tool_that_cannot_be_sent_to_it_end_in_an_answer(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_tool_rounds=20))
    stage.model.script(*[Call((replace(ASKS_WEATHER, id=f"call_{number}", arguments="{"),)) for number in range(20)])
    stage.model.script(Say("I cannot ask for the weather."))

    run = await send(stage)

    assert (run.status, run.error) == (RunStatus.SUCCEEDED, None)
    assert [request.may_call_tools for request in stage.model.requests] == [*[True] * 20, False]


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


async def test_a_run_waits_for_the_result_of_a_client_tool(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains in Graz."))

    run = await send(stage)

    assert (run.status, kinds(run)) == (RunStatus.WAITING, {"call_1": WaitKind.TOOL_RESULT})
    assert "weather" in [tool.name for tool in stage.model.requests[0].tools]
    assert [message.role for message in await stage.messages()] == [Role.USER, Role.ASSISTANT]
    assert await claim_next(database.runs, CLAIMER) is None

    assert (await resume(stage, run, Resolution("call_1", "rain"))).status is RunStatus.QUEUED
    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    assert ended.waiting_for is None
    assert results(await stage.messages()) == [("call_1", "rain")]
    assert (await stage.messages())[-1].content == "It rains in Graz."


async def test_tools_of_the_service_run_before_the_wait(database: Database) -> None:
    stage = await open_stage(database)
    sums = ToolCall("call_0", "calculator", '{"expression": "1+1"}')
    stage.model.script(Call((ASKS_WEATHER, sums)), Say("done"))

    run = await send(stage)

    assert kinds(run) == {"call_1": WaitKind.TOOL_RESULT}
    assert results(await stage.messages()) == [("call_0", "2")]
    await resume(stage, run, Resolution("call_1", "rain"))
    await play(stage, run)
    prompt = stage.model.requests[1].prompt.messages
    assert [message.tool_call_id for message in prompt if message.role is Role.TOOL] == ["call_1", "call_0"]


@pytest.mark.parametrize(
    ("given", "calls", "result", "metadata"),
    [
        (APPROVED, 1, "deleted", {"outside": "approval", "given_by": "anna", "decision": "approve"}),
        (
            Resolution("call_2", "Keep it.", decision=ApprovalDecision.REJECT),
            0,
            "A person rejected this call, so it was not run. Reason: Keep it.",
            {"outside": "approval", "decision": "reject", "reason": "Keep it.", "is_error": True},
        ),
        (
            Resolution("call_2", decision=ApprovalDecision.EDIT, arguments='{"file": "b.txt"}'),
            1,
            'A person changed the arguments to {"file": "b.txt"} before the call was run.\n\ndeleted',
            {"outside": "approval", "decision": "edit", "arguments": {"file": "b.txt"}},
        ),
    ],
)
async def test_a_call_that_needs_approval_does_what_the_person_decides(
    database: Database, given: Resolution, calls: int, result: str, metadata: dict[str, object]
) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    stage, run = await careful_stage(database, tool)
    stage.model.script(Say("ok"))
    assert kinds(run) == {"call_2": WaitKind.APPROVAL}
    assert tool.keys == []

    await resume(stage, run, given)
    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    assert len(tool.keys) == calls
    (message,) = [message for message in await stage.messages() if message.role is Role.TOOL]
    assert (message.content, message.metadata) == (result, metadata)


async def test_a_question_waits_for_an_answer(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, tools=("ask_user",)))
    question = ToolCall("call_3", "ask_user", '{"question": "Which colour?"}')
    stage.model.script(Call((question,)), Say("Blue it is."))

    run = await send(stage, tools=())
    assert kinds(run) == {"call_3": WaitKind.ANSWER}
    await resume(stage, run, Resolution("call_3", "blue"))

    assert (await play(stage, run)).status is RunStatus.SUCCEEDED
    assert results(await stage.messages()) == [("call_3", "blue")]


@pytest.mark.parametrize("call", [ToolCall("call_1", "weather", "no JSON"), ToolCall("call_1", "meteo", "{}")])
async def test_a_call_that_cannot_be_right_waits_for_nobody(database: Database, call: ToolCall) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((call,)), Say("sorry"))

    run = await send(stage)

    assert run.status is RunStatus.SUCCEEDED
    ((_, told),) = results(await stage.messages())
    assert "not valid" in str(told) or "no tool named" in str(told)


async def test_a_run_waits_until_all_calls_were_given_something(database: Database) -> None:
    stage = await open_stage(database)
    other = replace(ASKS_WEATHER, id="call_9")
    stage.model.script(Call((ASKS_WEATHER, other)), Say("ok"))
    run = await send(stage)

    first = await resume(stage, run, Resolution("call_9", "sun"))

    assert (first.status, set(kinds(first))) == (RunStatus.WAITING, {"call_1"})
    assert (await resume(stage, run, Resolution("call_1", "rain"))).status is RunStatus.QUEUED
    await play(stage, run)
    assert sorted(results(await stage.messages())) == [("call_1", "rain"), ("call_9", "sun")]


async def test_a_repeated_resume_changes_nothing_and_another_is_refused(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("ok"))
    run = await send(stage)
    given = Resolution("call_1", "rain")

    await resume(stage, run, given)

    assert (await resume(stage, run, given)).status is RunStatus.QUEUED
    with pytest.raises(RunNotWaiting, match="is queued"):
        await resume(stage, run, Resolution("call_1", "sun"))
    await play(stage, run)
    assert (await resume(stage, run, given)).status is RunStatus.SUCCEEDED
    for other in (Resolution("call_1", "sun"), replace(given, author="another"), Resolution("call_2", "rain")):
        with pytest.raises(RunNotWaiting, match="is succeeded"):
            await resume(stage, run, other)
    assert results(await stage.messages()) == [("call_1", "rain")]


@pytest.mark.parametrize(
    ("decided", "other"),
    [
        (APPROVED, replace(APPROVED, decision=ApprovalDecision.REJECT)),
        (replace(APPROVED, decision=ApprovalDecision.REJECT, text="Not now."), APPROVED),
        (
            replace(APPROVED, decision=ApprovalDecision.EDIT, arguments='{"file": "b.txt"}'),
            replace(APPROVED, decision=ApprovalDecision.EDIT, arguments='{"file": "c.txt"}'),
        ),
    ],
)
async def test_a_decision_sent_again_after_the_end_is_the_same_one(
    database: Database, decided: Resolution, other: Resolution
) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    stage, run = await careful_stage(database, tool)
    stage.model.script(Say("ok"))
    await resume(stage, run, decided)
    await play(stage, run)

    assert (await resume(stage, run, decided)).status is RunStatus.SUCCEEDED
    with pytest.raises(RunNotWaiting, match="is succeeded"):
        await resume(stage, run, other)


async def test_what_an_earlier_wait_was_given_can_be_sent_again_in_a_later_one(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)))
    run = await send(stage)
    given = Resolution("call_1", "rain")
    await resume(stage, run, given)
    await play(stage, run)

    assert kinds(await resume(stage, run, given)) == {"call_2": WaitKind.TOOL_RESULT}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Resolution("call_7", "rain"), "does not wait for a call 'call_7'; it waits for: call_1"),
        (Resolution("call_1", decision=ApprovalDecision.APPROVE), "waits for: tool_result. Send `output`"),
    ],
)
async def test_what_a_run_does_not_wait_for_is_refused(database: Database, given: Resolution, told: str) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    run = await send(stage)

    with pytest.raises(InvalidInput, match=told):
        await resume(stage, run, given)

    assert kinds(await database.runs.get_run(stage.owner_id, run.id)) == {"call_1": WaitKind.TOOL_RESULT}


async def test_another_user_cannot_resume_a_run(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    run = await send(stage)
    other = await database.users.get_or_create("berta")

    with pytest.raises(NotFound):
        await database.runs.resume(other, run.id, [Resolution("call_1", "rain")])


async def test_one_of_many_simultaneous_decisions_counts(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    stage, run = await careful_stage(database, tool)
    stage.model.script(Say("ok"))
    decisions = [replace(APPROVED, author=f"person {number}") for number in range(20)]

    outcomes = await asyncio.gather(*[resume(stage, run, one) for one in decisions], return_exceptions=True)
    await play(stage, run)

    assert sum(isinstance(outcome, Run) for outcome in outcomes) == 1
    assert all(isinstance(outcome, Run | RunNotWaiting) for outcome in outcomes)
    assert len(tool.keys) == 1


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        ('{"question": "Which?", "options": ["a", 1, " ", "b"]}', Question("Which?", ("a", "b"))),
        ('{"question": "Which?", "options": "a"}', Question("Which?")),
        ('{"q": "Which?"}', Question('{"q": "Which?"}')),
        ("[]", Question("[]")),
        ("no JSON", Question("no JSON")),
    ],
)
def test_a_question_is_read_from_whatever_a_model_wrote(arguments: str, question: Question) -> None:
    assert read_question(arguments) == question
