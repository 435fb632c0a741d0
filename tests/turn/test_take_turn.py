"""One turn from claim to end, over the real database."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from fakes.conversations import claim_next
from fakes.scripted_model import Break, Call, Fail, Hang, Say, ScriptedModel
from fakes.side_jobs import side_jobs
from fakes.stage import LEARNED_KEY, Stage, open_stage, with_context
from fakes.waiting import until
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.domain.errors import (
    AnswerIncomplete,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    PromptCannotFit,
)
from throughline.domain.events import EventType, MessageDelta
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Usage
from throughline.domain.run import Claimer, RunStatus
from throughline.turn.prompting.check_agents import check_agent
from throughline.turn.take_turn import take_turn
from throughline.turn.worker.worker import Worker, WorkerConfig
from throughline.wire.events import event_json

AT_ONCE = WorkerConfig("test", grace_seconds=0)


def sum_call(call_id: str = "c1", expression: str = "2+3") -> ToolCall:
    return ToolCall(id=call_id, name="calculator", arguments=f'{{"expression": "{expression}"}}')


async def test_a_turn_stores_the_user_message_and_the_answer_and_ends_the_run(stage: Stage) -> None:
    stage.model.script(Say("Hello Anna"))

    run = await stage.turn("Hi")

    assert run.status is RunStatus.SUCCEEDED
    assert [(m.position, m.role, m.content) for m in await stage.messages()] == [
        (1, Role.USER, "Hi"),
        (2, Role.ASSISTANT, "Hello Anna"),
    ]
    assert run.message_id == (await stage.messages())[1].id


async def test_readers_get_the_text_in_order_and_exactly_one_last_event(stage: Stage) -> None:
    stage.model.script(Say("one two three"))

    run = await stage.turn("count")

    events = await stage.events(run)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type is EventType.RUN_STARTED
    deltas = "".join(event.event.text for event in events if isinstance(event.event, MessageDelta))
    assert deltas == "one two three"
    assert [event.type for event in events[-2:]] == [EventType.MESSAGE_COMPLETED, EventType.RUN_COMPLETED]
    assert {"run", "message", "context"} <= set(event_json(events[-1].event))


async def test_tool_calls_are_answered_and_stored_before_the_model_is_asked_again(stage: Stage) -> None:
    stage.model.script(Call((sum_call(), sum_call("c2", "4*5"))), Say("5 and 20"))

    run = await stage.turn("What is 2+3, and 4*5?")

    assert run.status is RunStatus.SUCCEEDED
    roles = [message.role for message in await stage.messages()]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.ASSISTANT]
    second = stage.model.requests[1].prompt.messages
    assert [message.tool_call_id for message in second if message.role is Role.TOOL] == ["c1", "c2"]
    assert "5" in text_of(second[-2].content)


async def test_after_the_last_tool_round_the_model_is_called_without_tools(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((sum_call("a"),)), Call((sum_call("b"),)), Call((sum_call("c"),)), Say("enough"))

    run = await stage.turn("loop")

    assert run.status is RunStatus.SUCCEEDED
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, True, False]


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (ToolCall("c1", "no_such_tool", "{}"), "calculator"),
        (ToolCall("c1", "calculator", "{not json"), "JSON"),
        (ToolCall("c1", "calculator", '{"wrong": 1}'), "expression"),
        (ToolCall("c1", "calculator", '{"expression": "1/0"}'), "zero"),
    ],
    ids=["unknown tool", "bad json", "bad arguments", "raising"],
)
async def test_a_bad_call_becomes_an_error_result_the_model_can_read(stage: Stage, call: ToolCall, hint: str) -> None:
    stage.model.script(Call((call,)), Say("sorry"))

    run = await stage.turn("go")

    assert run.status is RunStatus.SUCCEEDED
    result = (await stage.messages())[2]
    assert result.metadata["is_error"] is True
    assert hint in text_of(result.content)


async def test_a_passing_provider_error_is_tried_again_after_the_pause_it_asks_for(stage: Stage) -> None:
    stage.model.script(Fail(ModelRateLimited("slow down", delay_seconds=7)), Say("now"))

    run = await stage.turn("Hi")

    assert run.status is RunStatus.SUCCEEDED
    assert stage.clock.slept == [7]


async def test_text_of_a_failed_try_is_taken_back(stage: Stage) -> None:
    stage.model.script(Fail(AnswerIncomplete("cut"), shown="half an ans"), Say("a whole answer"))

    run = await stage.turn("Hi")

    events = await stage.events(run)
    last_reset = max(event.seq for event in events if event.type is EventType.RESET)
    deltas = [
        str(event_json(e.event)["text"]) for e in events if e.type is EventType.MESSAGE_DELTA and e.seq > last_reset
    ]
    assert "".join(deltas) == "a whole answer"


async def test_quota_errors_are_not_tried_again_and_the_session_stays_usable(stage: Stage) -> None:
    stage.model.script(Fail(ModelQuotaExhausted("no credit")), Say("back"))

    failed = await stage.turn("Hi")
    worked = await stage.turn("Still there?")

    assert failed.status is RunStatus.FAILED
    assert failed.error is not None
    assert failed.error.type == "model_quota_exhausted"
    assert worked.status is RunStatus.SUCCEEDED
    assert [text_of(m.content) for m in await stage.messages()] == ["Hi", "Still there?", "back"]


async def test_a_provider_that_keeps_failing_ends_the_run_with_its_error(stage: Stage) -> None:
    stage.model.script(*[Fail(AnswerIncomplete("cut"))] * 4)

    run = await stage.turn("Hi")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == "answer_incomplete"


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for(stage: Stage) -> None:
    stage.model.script(Fail(ModelRateLimited("later", delay_seconds=3600)))

    run = await stage.turn("Hi")

    assert run.status is RunStatus.FAILED
    assert stage.clock.slept == []


async def test_a_defect_ends_the_turn_without_telling_our_inside(stage: Stage) -> None:
    stage.model.script(Break(KeyError("user secret")))

    run = await stage.turn("Hi")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert "secret" not in run.error.detail
    assert run.error.type == "internal_error"


async def test_cancelling_keeps_what_was_shown_marked_as_interrupted(stage: Stage) -> None:
    stage.model.script(Hang(shown="The first half"))
    run = await stage.submit("tell me")
    turn_start = stage.turn_start(await stage.claim())
    turn = asyncio.create_task(take_turn(turn_start))
    while not any(e.type is EventType.MESSAGE_DELTA for e in await stage.events(run)):
        await asyncio.sleep(0.01)

    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    turn_start.heartbeat.renew_now()
    await turn

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.status is RunStatus.CANCELLED
    last = (await stage.messages())[-1]
    assert (last.content, last.metadata["interrupted"]) == ("The first half", True)
    assert (await stage.events(run))[-1].type is EventType.RUN_CANCELLED


async def test_a_turn_stopped_by_shutdown_is_given_back_and_resumed_without_doubling(stage: Stage) -> None:
    stage.model.script(Call((sum_call(),)), Hang("half"), Say("5"))
    run = await stage.submit("2+3?")
    async with Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), AT_ONCE).working():
        await until(lambda: len(stage.model.requests) == 2)

    await take_turn(stage.turn_start(await stage.claim()))

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.status is RunStatus.SUCCEEDED
    roles = [message.role for message in await stage.messages()]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert stage.model.unused == 0


async def test_a_paused_process_that_wakes_up_late_changes_nothing(stage: Stage) -> None:
    stage.model.script(Hang("zombie"), Say("the real answer"))
    run = await stage.submit("Hi")
    late = await stage.claim()
    zombie = asyncio.create_task(take_turn(stage.turn_start(late)))
    while not stage.model.requests:
        await asyncio.sleep(0.01)
    await stage.database.runs.give_back(late.lease)

    await take_turn(stage.turn_start(await stage.claim()))
    zombie.cancel()
    await asyncio.gather(zombie, return_exceptions=True)

    assert [text_of(m.content) for m in await stage.messages()] == ["Hi", "the real answer"]
    assert (await stage.database.runs.get_run(stage.owner_id, run.id)).status is RunStatus.SUCCEEDED


async def test_a_long_session_is_summarised_and_the_messages_stay(database: Database) -> None:
    agent = with_context(window=2048, min_recent_messages=2)
    model = ScriptedModel(context_limit=2048)
    model.by_request = lambda request: (
        Say("Intent: numbers. State: going on.") if not request.tools else Say("answer " * 60)
    )
    stage = await open_stage(database, agent=agent, model=model)

    for number in range(12):
        run = await stage.turn(f"question {number} " + "word " * 60)
        assert run.status is RunStatus.SUCCEEDED

    session = await stage.reload()
    assert session.summary_through_position > 0
    assert "Intent: numbers." in session.conversation_summary
    assert len(await stage.messages()) == 24
    assert "[Context Summary" in model.requests[-1].prompt.system


async def test_a_failing_summariser_does_not_fail_the_turn_and_an_extract_stands_for_it(database: Database) -> None:
    agent = with_context(window=2048, min_recent_messages=2)
    model = ScriptedModel(context_limit=2048)
    model.by_request = lambda request: (
        Fail(ModelQuotaExhausted("no credit")) if not request.tools else Say("answer " * 60)
    )
    stage = await open_stage(database, agent=agent, model=model)

    statuses = [(await stage.turn(f"question {n} " + "word " * 60)).status for n in range(12)]

    assert set(statuses) == {RunStatus.SUCCEEDED}
    assert "question 3" in (await stage.reload()).conversation_summary
    assert len(await stage.messages()) == 24


async def test_the_third_death_ends_a_run_with_a_clear_error(stage: Stage) -> None:
    run = await stage.submit("poison")
    for _ in range(3):
        await claim_next(stage.database.runs, Claimer(worker="dying", lease_seconds=0))

    await take_turn(stage.turn_start(await stage.claim()))

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.error is not None
    assert ended.error.type == "run_abandoned"
    assert [(m.position, m.role, m.content) for m in await stage.messages()] == [(1, Role.USER, "poison")]


async def test_an_agent_whose_prompt_leaves_no_room_is_refused_at_the_start(database: Database) -> None:
    stage = await open_stage(database)
    crowded = replace(with_context(window=1024), system_prompt="rule " * 900)

    with pytest.raises(PromptCannotFit, match="shorten the system prompt"):
        await check_agent(stage.dependencies, crowded)


def _sent(stage: Stage) -> list[int]:
    """Return the estimates of the prompts sent, in order."""
    return [int(str(report["tokens"])) for report in stage.metrics.of("prompt_sent")]


async def test_a_dense_first_count_makes_the_same_turns_next_prompt_weigh_more(database: Database) -> None:
    """Text that costs more than we counted must not fill the window unseen before the turn ends."""
    stage = await open_stage(database)
    told = 4 * stage.dependencies.make_counter("chars").count("dense " * 500)
    stage.model.script(Call((sum_call(),), usage=Usage(input_tokens=told)), Say("5"))

    await stage.turn("dense " * 500)

    first, second = _sent(stage)
    assert second > 2 * first


async def test_a_lower_count_of_the_first_call_waits_for_the_next_turn(database: Database) -> None:
    stage = await open_stage(database)
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(ratio=1.5, samples=1))
    stage.model.script(Call((sum_call(),), usage=Usage(input_tokens=10)), Say("5"), Say("again"))

    await stage.turn("sparse " * 500)
    await stage.turn("and now?")

    first, second, next_turn = _sent(stage)
    assert first <= second
    assert next_turn < second


async def test_what_is_learned_of_a_provider_never_stops_a_session_that_worked(database: Database) -> None:
    agent = replace(with_context(window=4096), system_prompt="rule " * 300)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=4096))
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(ratio=2.6, samples=5))
    stage.model.script(Say("still here"))

    assert (await stage.turn("hello")).status is RunStatus.SUCCEEDED


async def test_one_line_says_how_a_turn_ended_what_it_took_and_how_long_it_waited(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("good day", usage=Usage(120, 7)), Fail(ModelInvalidRequest("no")))

    with capture_logs() as logs:
        run = await stage.turn("hi")
        await stage.turn("and now")

    good, bad = [entry for entry in logs if entry["event"] == "turn finished"]
    assert good["queued_seconds"] >= 0
    assert (good["run_id"], good["agent"], good["status"]) == (str(run.id), "assistant", "succeeded")
    assert (good["error"], good["input_tokens"], good["output_tokens"]) == (None, 120, 7)
    assert 0 < good["prompt_tokens"] == good["unreduced_tokens"] < good["window_tokens"] == 8192
    assert good["stage"] == "none"
    assert (bad["status"], bad["error"], bad["input_tokens"]) == ("failed", "model_invalid_request", None)
