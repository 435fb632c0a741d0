"""The model calls of a turn and its summaries are stored with what they used and cost, whatever becomes of the turn."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from fakes.anthropic_double import AnthropicDouble
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import end_leases, run_sql
from fakes.scripted_model import Call, Fail, Hang, Say, ScriptedModel
from fakes.shown_parts import check_ids
from fakes.stage import AGENT, OneTool, Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS, until_found
from throughline.db.database import Database
from throughline.domain.errors import AnswerIncomplete, DatabaseUnavailable, ModelInvalidRequest
from throughline.domain.events import AnswerReset, Event, MessageCompleted, ToolCallDelta, ToolCalled
from throughline.domain.message import NewMessage, Role, Source, ToolCall, text_of
from throughline.domain.prompt import ModelRequest, Usage
from throughline.domain.run import Run, RunStatus
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn

SUM = Call((ToolCall("c1", "calculator", '{"expression": "2+3"}'),), usage=Usage(100, 10, cost_usd=Decimal("0.01")))
ANSWER = Say("5", usage=Usage(120, 2, cached_tokens=90, reasoning_tokens=1, cost_usd=Decimal("0.002")))


async def calls(url: str) -> Sequence[tuple[object, ...]]:
    return await run_sql(
        url,
        "select purpose, model, input_tokens, output_tokens, cost_usd, run_id is not null from model_calls order by id",
    )


async def test_each_call_is_stored_and_the_run_keeps_the_sum(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    stage.model.script(SUM, ANSWER)

    with capture_logs() as logs:
        run = await stage.turn("2+3?")

    assert await calls(database_url) == [
        ("answer", "scripted", 100, 10, Decimal("0.01"), True),
        ("answer", "scripted", 120, 2, Decimal("0.002"), True),
    ]
    assert run.usage == Usage(220, 12, cached_tokens=90, reasoning_tokens=1, cost_usd=Decimal("0.012"))
    assert [report["cost_usd"] for report in stage.metrics.of("model_paid")] == [0.01, 0.002]
    assert [entry["cost_usd"] for entry in logs if entry["event"] == "turn finished"] == [0.012]


async def test_a_cost_that_is_not_known_is_not_called_nothing(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    stage.model.script(SUM, Say("5", usage=Usage(120, 2)))

    run = await stage.turn("2+3?")

    assert [row[4] for row in await calls(database_url)] == [Decimal("0.01"), None]
    assert run.usage == Usage(220, 12)


async def test_the_calls_before_a_failure_are_kept(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    stage.model.script(SUM, Fail(ModelInvalidRequest("no")))

    run = await stage.turn("2+3?")

    assert run.status is RunStatus.FAILED
    assert [row[2] for row in await calls(database_url)] == [100]


def _compacting(request: ModelRequest) -> Say:
    if request.tools:
        return Say("answer " * 60, usage=Usage(1_000, 60))
    return Say("Intent: numbers. State: going on.", usage=Usage(900, 20, cost_usd=Decimal("0.5")))


async def test_summaries_are_stored_with_the_turn_that_waited_for_them(database: Database, database_url: str) -> None:
    agent = with_context(window=2048, min_recent_messages=2)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=2048))
    stage.model.by_request = _compacting

    for number in range(6):
        await stage.turn(f"question {number} " + "word " * 60)

    summaries = [row for row in await calls(database_url) if row[0] == "summary"]
    assert summaries
    assert set(summaries) == {("summary", "scripted", 900, 20, Decimal("0.5"), True)}
    assert (await stage.reload()).summary_version > 0


async def test_a_summary_whose_cost_cannot_be_stored_is_used_nevertheless(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(database.usage, "store_calls", away)
    agent = with_context(window=2048, min_recent_messages=2)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=2048))
    stage.model.by_request = _compacting

    with capture_logs() as logs:
        for number in range(6):
            await stage.turn(f"question {number} " + "word " * 60)

    assert (await stage.reload()).summary_version > 0
    assert "model calls not stored" in [entry["event"] for entry in logs]


async def test_a_failed_turn_says_what_its_calls_used(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(SUM, Fail(ModelInvalidRequest("no")))

    run = await stage.turn("2+3?")

    assert run.usage == SUM.usage


async def test_a_failed_call_whose_usage_was_reported_is_stored(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    empty = AnswerIncomplete("empty")
    empty.usage = Usage(500, 9, cost_usd=Decimal("0.25"))
    stage.model.script(Fail(empty), ANSWER)

    run = await stage.turn("2+3?")

    assert [row[2:5] for row in await calls(database_url)] == [(500, 9, Decimal("0.25")), (120, 2, Decimal("0.002"))]
    assert run.usage.cost_usd == Decimal("0.252")


async def test_tokens_beyond_a_column_do_not_cost_the_answer(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    huge = Usage(2**31 - 5, 1)
    stage.model.script(Call((ToolCall("c1", "calculator", '{"expression": "2+3"}'),), usage=huge), Say("5", usage=huge))

    run = await stage.turn("2+3?")

    assert (run.status, run.usage.input_tokens) == (RunStatus.SUCCEEDED, 2**31 - 1)
    assert [row[2] for row in await calls(database_url)] == [2**31 - 5] * 2


async def test_a_failure_that_cannot_be_stored_is_stored_in_plain_words(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Fail(ModelInvalidRequest("what was refused: \0")))

    run = await stage.turn("2+3?")

    assert run.error is not None
    assert (run.status, run.error.type) == (RunStatus.FAILED, "model_invalid_request")
    assert "could not be stored" in run.error.detail


CALLS = (ScriptedCall("call_0", "look", '{"at": "the first"}'), ScriptedCall("call_1", "look", '{"at": "é😀"}'))
DELTAS_SUM = ToolCall("c1", "calculator", '{"expression": "2+3"}')


@pytest.fixture
async def models() -> AsyncIterator[ModelRegistry]:
    registry = ModelRegistry(ModelsConfig(idle_timeout_seconds=HANG_SECONDS))
    yield registry
    await registry.close()


async def open_on(database: Database, models: ModelRegistry, model: str, url: str) -> Stage:
    agent = replace(AGENT, model=model, base_url=url, tools=("look",))
    stage = await open_stage(database, agent=agent, tools=OneTool("look", "seen", repeatable=True))
    stage.dependencies = replace(stage.dependencies, models=models)
    return stage


async def told(stage: Stage, run: Run) -> list[Event]:
    return [event.event for event in await stage.events(run)]


def shown_calls(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call whose pieces were shown, in order."""
    calls: dict[str, tuple[str, str, str]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            before = calls.get(event.call_id, ("", "", ""))[2]
            calls[event.call_id] = (event.call_id, event.name, before + event.arguments_delta)
    return list(calls.values())


def made_calls(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    calls = (event.call for event in events if isinstance(event, ToolCalled))
    return [(call.id, call.name, call.arguments) for call in calls]


async def test_arguments_are_shown_before_their_calls(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    provider_double.script(
        ScriptStep(text="Let me look.", calls=CALLS), ScriptStep(calls=CALLS), ScriptStep(text="So.")
    )

    run = await stage.turn("look")

    events = await told(stage, run)
    assert run.status is RunStatus.SUCCEEDED
    assert len(made_calls(events)) == 4
    assert shown_calls(events) == made_calls(events)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallDelta) < kinds.index(MessageCompleted) < kinds.index(ToolCalled)
    check_ids(events)


async def test_anthropics_arguments_are_shown_too(
    database: Database, anthropic_double: AnthropicDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "anthropic:double-16k-cl100k", anthropic_double.url)
    anthropic_double.script(ScriptStep(calls=CALLS), ScriptStep(text="So."))

    run = await stage.turn("look")

    events = await told(stage, run)
    assert len(made_calls(events)) == 2
    assert shown_calls(events) == made_calls(events)
    check_ids(events)


async def test_arguments_of_an_answer_that_breaks_off_are_taken_back(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    cut = ScriptStep(calls=CALLS, failure=Failure.CLEAN_CUT)
    provider_double.script(cut, ScriptStep(calls=CALLS), ScriptStep(text="So."))

    run = await stage.turn("look")

    events = await told(stage, run)
    reset = next(index for index, event in enumerate(events) if isinstance(event, AnswerReset))
    assert shown_calls(events[:reset])
    assert shown_calls(events[reset:]) == made_calls(events)
    check_ids(events)


async def test_arguments_of_a_dead_attempt_are_taken_back(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    provider_double.script(
        ScriptStep(calls=CALLS, failure=Failure.HANG_IN_ANSWER), ScriptStep(calls=CALLS), ScriptStep(text="So.")
    )
    run = await stage.submit("look")
    first = await stage.claim()
    dying = asyncio.create_task(take_turn(stage.turn_start(first)))

    async def shown() -> bool:
        return bool(shown_calls(await told(stage, run)))

    await until_found(shown)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await database.runs.give_back(first.lease)

    await take_turn(stage.turn_start(await stage.claim()))

    events = await told(stage, run)
    last_reset = max(index for index, event in enumerate(events) if isinstance(event, AnswerReset))
    assert shown_calls(events[last_reset:]) == made_calls(events)
    check_ids(events)


async def test_arguments_without_end_are_stopped_while_they_come(database: Database) -> None:
    stage = await open_stage(database, config=TurnConfig(max_answer_bytes=1_000, token_counter="chars"))
    stage.model.script(Hang(calls=(replace(DELTAS_SUM, arguments="漢" * 400),)))

    run = await stage.turn("go")

    assert run.error is not None
    assert "it was longer than the 1000 bytes" in run.error.detail
    shown = shown_calls(await told(stage, run))
    assert all(len(arguments.encode()) <= 1_000 for _, _, arguments in shown)


async def test_arguments_of_calls_that_are_forbidden_are_not_shown(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_tool_rounds=0))
    stage.model.script(Call((DELTAS_SUM,), text="I want more.", is_streamed=True))

    run = await stage.turn("go")

    assert [text_of(message.content) for message in await stage.messages()] == ["go", "I want more."]
    assert shown_calls(await told(stage, run)) == []
    check_ids(await told(stage, run))


async def test_a_call_that_comes_whole_is_shown_once_it_is_made(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((DELTAS_SUM,)), Say("5"))

    run = await stage.turn("go")

    events = await told(stage, run)
    assert (shown_calls(events), made_calls(events)) == ([], [("c1", "calculator", DELTAS_SUM.arguments)])


async def test_a_turn_that_is_cancelled_while_a_call_is_written_has_no_answer(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Hang(calls=(DELTAS_SUM,)))
    run = await stage.submit("go")
    start = stage.turn_start(await stage.claim())
    turn = asyncio.create_task(take_turn(start))

    async def shown() -> bool:
        return bool(shown_calls(await told(stage, run)))

    await until_found(shown)
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    start.heartbeat.renew_now()
    await turn

    assert [text_of(message.content) for message in await stage.messages()] == ["go"]
    check_ids(await told(stage, run))


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
