"""The model calls of a turn and its summaries are stored with what they used and cost, whatever becomes of the turn."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from fakes.stage import open_stage, with_context
from throughline.db.database import Database
from throughline.domain.errors import AnswerIncomplete, DatabaseUnavailable, ModelInvalidRequest
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ModelRequest, Usage
from throughline.domain.run import RunStatus

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
