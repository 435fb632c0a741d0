"""Turns that wait for something from outside: results of client tools, approvals, and answers to questions."""

import asyncio
from dataclasses import replace

import pytest

from fakes.one_tool import OneTool
from fakes.scripted_model import Call, Say
from fakes.stage import AGENT, CLAIMER, open_stage
from fakes.waiting_turns import (
    APPROVED,
    ASKS_WEATHER,
    careful_stage,
    kinds,
    play,
    results,
    resume,
    send,
)
from throughline.db.database import Database
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting
from throughline.domain.message import Role, ToolCall
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import Decision, Question, Resolution, WaitKind, read_question


async def test_a_run_waits_for_the_result_of_a_client_tool(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains in Graz."))

    run = await send(stage)

    assert (run.status, kinds(run)) == (RunStatus.WAITING, {"call_1": WaitKind.TOOL_RESULT})
    assert "weather" in [tool.name for tool in stage.model.requests[0].tools]
    assert [message.role for message in await stage.messages()] == [Role.USER, Role.ASSISTANT]
    assert await database.runs.claim_next(CLAIMER) is None

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
            Resolution("call_2", "Keep it.", decision=Decision.REJECT),
            0,
            "A person rejected this call, so it was not run. Reason: Keep it.",
            {"outside": "approval", "decision": "reject", "reason": "Keep it.", "is_error": True},
        ),
        (
            Resolution("call_2", decision=Decision.EDIT, arguments='{"file": "b.txt"}'),
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
        (APPROVED, replace(APPROVED, decision=Decision.REJECT)),
        (replace(APPROVED, decision=Decision.REJECT, text="Not now."), APPROVED),
        (
            replace(APPROVED, decision=Decision.EDIT, arguments='{"file": "b.txt"}'),
            replace(APPROVED, decision=Decision.EDIT, arguments='{"file": "c.txt"}'),
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
        (Resolution("call_1", decision=Decision.APPROVE), "waits for: tool_result. Send `output`"),
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
