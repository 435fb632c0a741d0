"""What a turn asks of the database: few statements, fewer commits, however the machine is loaded.

Left out is what depends on time: notifications, which are gathered for all turns, and events stored under way.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.database_wire import DatabaseWire, database_wire
from fakes.raw_sql import BACKENDS, hold_rows, run_sql
from fakes.scripted_model import Call, Say, ScriptedModel
from fakes.stage import CLAIMER, LEARNED_KEY, Stage, open_stage, with_context
from fakes.waiting import until_found
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Outcome, RunError, RunInput, RunStatus, Submission
from throughline.turn.take_turn import take_turn

BY_TIME = ("pg_notify", "hurried cross join", "token_calibration")


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[DatabaseWire]:
    async with database_wire(database_url) as between:
        yield between


@pytest.fixture
async def wired(wire: DatabaseWire) -> AsyncIterator[Database]:
    database = await Database.open(DatabaseConfig(url=wire.url, pool_size=1))
    yield database
    await database.close()


async def ask(stage: Stage, text: str, wire: DatabaseWire) -> list[str]:
    """Submit a message as a door does that has a slot, and take its turn; return what that asked the database."""
    submission = Submission(stage.owner_id, stage.session.id, RunInput(text), stage.session.source, fingerprint=text)
    wire.clear()
    submitted = await stage.database.runs.submit(submission, CLAIMER)
    assert submitted.claimed is not None
    await take_turn(stage.turn_start(submitted.claimed))
    asked = [statement for statement in wire.statements if not any(word in statement for word in BY_TIME)]
    assert (await stage.database.runs.get_run(stage.owner_id, submitted.run.id)).status is RunStatus.SUCCEEDED
    return asked


async def asked_by_a_turn(stage: Stage, wire: DatabaseWire) -> list[str]:
    """Return the statements of a session's second turn."""
    stage.model.script(Say("warm"), *stage_steps(stage))
    await ask(stage, "warm up", wire)
    return await ask(stage, "hello", wire)


def stage_steps(stage: Stage) -> tuple[Say | Call, ...]:
    """Return what the model says in the measured turn: a call for each tool the agent has, then the answer."""
    agent = stage.dependencies.agents.get(stage.session.agent)
    calls = tuple(
        Call((ToolCall(f"c{place}", tool, '{"expression": "1+1"}'),)) for place, tool in enumerate(agent.tools)
    )
    return (*calls, Say("here", usage=Usage(100, 5)))


async def test_a_plain_turn_takes_four_statements_and_three_commits(wired: Database, wire: DatabaseWire) -> None:
    stage = await open_stage(wired, agent=replace(with_context(), tools=()))

    statements = await asked_by_a_turn(stage, wire)

    assert len(statements) == 4, statements
    assert "begin" not in statements
    assert sum("insert into" in statement for statement in statements) == 3


async def test_a_tool_round_takes_two_more(wired: Database, wire: DatabaseWire) -> None:
    stage = await open_stage(wired)

    statements = await asked_by_a_turn(stage, wire)

    assert len(statements) == 6, statements
    assert "begin" not in statements


async def test_an_end_wakes_the_claim_loop_only_where_somebody_waits(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("one"), Say("two"))
    await stage.submit("first")
    first = await stage.claim()
    await stage.submit("second")
    await database.notifier.work.wait(0)

    await take_turn(stage.turn_start(first))
    assert await database.notifier.work.wait(0)

    await take_turn(stage.turn_start(await stage.claim()))
    assert not await database.notifier.work.wait(0)


async def test_an_end_during_which_somebody_was_woken_wakes_again(database: Database, database_url: str) -> None:
    """Who was woken before the end was stored has seen the run running, and found nothing to take."""
    stage = await open_stage(database)
    stage.model.script(Say("one"))
    await stage.submit("first")
    first = await stage.claim()
    await database.notifier.work.wait(0)
    async with hold_rows(database_url, "select id from sessions for update"):
        ending = asyncio.create_task(
            database.runs.finish(first.lease, Outcome(RunStatus.FAILED, error=RunError("x", "y")), (), 1)
        )
        await until_found(lambda: somebody_waits_for_a_lock(database_url))
        database.notifier.announce_work()
        await database.notifier.work.wait(0)

    await ending

    assert await database.notifier.work.wait(0)


async def somebody_waits_for_a_lock(url: str) -> bool:
    waiting = f"select count(*) from {BACKENDS} where wait_event_type = 'Lock'"
    return (await run_sql(url, waiting))[0][0] == 1


async def test_what_is_learned_of_a_models_counting_is_written_behind_the_turn(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("here", usage=Usage(1_000, 5)))

    await stage.turn("hello")

    await until_found(lambda: database.calibrations.load(LEARNED_KEY))
    learned = await database.calibrations.load(LEARNED_KEY)
    assert learned is not None
    assert learned.samples == 1


async def test_a_compaction_takes_twenty_one_more_and_later_turns_none(wired: Database, wire: DatabaseWire) -> None:
    agent = with_context(window=2048, min_recent_messages=2)
    model = ScriptedModel(context_limit=2048)
    model.by_request = lambda request: (
        Say("Intent: numbers. State: going on.") if not request.tools else Say("answer " * 60)
    )
    stage = await open_stage(wired, agent=agent, model=model)

    turns = [await ask(stage, f"question {number} " + "word " * 60, wire) for number in range(12)]

    compacting = [turn for turn in turns if any("insert into summary_versions" in statement for statement in turn)]
    assert {len(turn) for turn in turns if turn not in compacting} == {4}
    assert compacting
    assert max(map(len, compacting)) <= 25
