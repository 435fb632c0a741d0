"""What a turn asks of the database: few statements, fewer commits, however the machine is loaded.

Left out is what depends on time: notifications, which are gathered for all turns, and events stored under way."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from benchmarks.planted_conversation import Fact, Planted, plant, read_scripts
from fakes.compactions import fill_summarised
from fakes.conversations import open_conversation
from fakes.database_wire import DatabaseWire
from fakes.raw_sql import BACKENDS, hold_rows, run_sql
from fakes.scripted_model import Call, Say, ScriptedModel
from fakes.stage import CLAIMER, LEARNED_KEY, Stage, make_tool_box, open_stage, with_context
from fakes.waiting import HANG_SECONDS, until_found
from throughline.agents.definition import RecallReach
from throughline.context.quoted_history import indented
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.quotations import LOOK_AGAIN
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.events import EventType
from throughline.domain.message import Message, ToolCall, text_of
from throughline.domain.prompt import ModelRequest, Usage
from throughline.domain.recall import HistoryQuery, SearchResult
from throughline.domain.run import Outcome, RunError, RunInput, RunStatus, Submission
from throughline.tools.recall import make_recall_tools
from throughline.turn.take_turn import take_turn
from throughline.wire.events import event_json

BY_TIME = ("pg_notify", "from asked a join runs r", "token_calibration")


@pytest.fixture
async def wired(wire: DatabaseWire) -> AsyncIterator[Database]:
    database = await Database.open(DatabaseConfig(url=wire.url, pool_size=1))
    yield database
    await database.close()


async def ask(stage: Stage, text: str, wire: DatabaseWire) -> list[str]:
    """Submit a message as an interface does that has a slot, and take its turn; return what that asked the database."""
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


@pytest.mark.calm("it counts statements")
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
    assert max(len(turn) for turn in compacting) <= 25


TURNS = 2_000
PLANNING = next(script for script in read_scripts() if script.name == "planning")


def count(text: str) -> int:
    return len(text) // 4


def asked_for(fact: Fact) -> str:
    """What somebody would look for who remembers two words of three of what was said, the longest ones."""
    words = sorted(fact.sentence.split(), key=len, reverse=True)
    return " ".join(words[: -(-len(words) * 2 // 3)])


def shown(request: ModelRequest) -> str:
    return "\n".join([request.prompt.system, *(text_of(message.content) for message in request.prompt.messages)])


async def fill(database_url: str, session_id: SessionId, planted: Planted) -> None:
    rows = [(message.position, message.role.value, text_of(message.content)) for message in planted.messages]
    await fill_summarised(database_url, session_id, rows)


def few_of_each_kind(facts: Sequence[Fact]) -> list[Fact]:
    kinds = {heading: [fact for fact in facts if fact.heading == heading] for heading in sorted(headings(facts))}
    return [fact for of_kind in kinds.values() for fact in of_kind[:: max(len(of_kind) // 3, 1)]]


def headings(facts: Iterable[Fact]) -> set[str]:
    return {fact.heading for fact in facts}


async def recall(stage: Stage, fact: Fact) -> bool:
    """Ask for the fact in a turn; return whether the prompt held it once the model had searched."""
    call = ToolCall(id=f"c{fact.position}", name="search_history", arguments=json.dumps({"query": asked_for(fact)}))
    stage.model.script(Call((call,)), Say("That is it."))
    await stage.turn("Do you remember?")
    return fact.sentence in shown(stage.model.requests[-1])


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [few_of_each_kind, pytest.param(list, id="all", marks=pytest.mark.proof)])
async def test_every_planted_fact_is_brought_back_into_the_prompt(
    database: Database, database_url: str, chosen: Callable[[Sequence[Fact]], list[Fact]]
) -> None:
    planted = plant(TURNS, 7, PLANNING, count)
    tools = make_tool_box((), HANG_SECONDS, 100_000, further=make_recall_tools(database.history, count))
    agent = replace(with_context(auto_summarize=False), tools=("search_history",))
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=32_000), tools=tools)
    await fill(database_url, stage.session.id, planted)

    found = {fact: await recall(stage, fact) for fact in chosen(planted.facts)}

    assert headings(found) == headings(planted.facts)
    assert [fact.sentence for fact, is_there in found.items() if not is_there] == []
    assert [fact.sentence for fact in planted.facts if fact.sentence in shown(stage.model.requests[0])] == []


async def test_the_prompt_tells_how_to_look_up_what_the_summary_leaves_out(
    database: Database, database_url: str
) -> None:
    tools = make_tool_box((), HANG_SECONDS, 100_000, further=make_recall_tools(database.history, count))
    agent = replace(with_context(), tools=("read_history",))
    stage = await open_stage(database, agent=agent, model=ScriptedModel(Say("Hello.")), tools=tools)
    await fill(database_url, stage.session.id, plant(400, 7, PLANNING, count))

    await stage.turn("Hello")

    assert "read_history(12, 40) shows the original messages of [#12-#40]" in stage.model.requests[0].prompt.system


async def test_following_the_offsets_in_a_small_window_shows_all_of_a_long_message(database: Database) -> None:
    text = "\n".join(f"line {number} of the log is about valve {number * 37}" for number in range(120))
    tools = make_tool_box((), HANG_SECONDS, 100_000, further=make_recall_tools(database.history, count))
    agent = replace(with_context(window=2_048, auto_summarize=False), tools=("read_output",), max_tool_rounds=60)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(), tools=tools)
    stage.model.script(Say("Thank you."))
    await stage.turn(text)

    seen, offset = "", 0
    while offset < len(text):
        arguments = json.dumps({"position": 1, "offset": offset})
        stage.model.script(Call((ToolCall(id=f"c{offset}", name="read_output", arguments=arguments),)), Say("Go on."))
        await stage.turn("What is next?")
        last = text_of(stage.model.requests[-1].prompt.messages[-1].content)
        found = re.search(r"Characters ([\d,]+) to ([\d,]+) of", last)
        assert found is not None, last
        start, offset = (int(number.replace(",", "")) for number in found.groups())
        assert indented(text[start:offset]) in last
        seen += text[start:offset]

    assert seen == text


async def test_parts_that_are_read_in_one_turn_of_a_small_window_are_each_shown_whole(database: Database) -> None:
    text = "\n".join(f"line {number} of the log is about valve {number * 37}" for number in range(120))
    tools = make_tool_box((), HANG_SECONDS, 100_000, further=make_recall_tools(database.history, count))
    agent = replace(with_context(window=2_048, auto_summarize=False), tools=("read_output",), max_tool_rounds=60)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(), tools=tools)
    stage.model.script(Say("Thank you."))
    await stage.turn(text)
    calls = [
        ToolCall(id=f"c{offset}", name="read_output", arguments=json.dumps({"position": 1, "offset": offset}))
        for offset in range(0, 2_400, 120)
    ]
    stage.model.script(*(Call((call,)) for call in calls), Say("That is all."))

    await stage.turn("Read it all.")

    newest = [text_of(request.prompt.messages[-1].content) for request in stage.model.requests[2:]]
    assert len(newest) == len(calls)
    assert [shown for shown in newest if "left out" in shown] == []


@dataclass(frozen=True)
class ErasedWhileRead:
    """The stored history; a session is erased as soon as a turn has read from it."""

    database: Database

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> SearchResult:
        return await self.database.history.search(owner_id, session_id, query)

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        messages = await self.database.history.read(owner_id, session_id, first, last)
        await self.database.sessions.delete(owner_id, session_id)
        return messages


async def test_readers_and_the_model_see_nothing_of_a_session_erased_while_it_was_read(database: Database) -> None:
    tools = make_tool_box((), HANG_SECONDS, 100_000, further=make_recall_tools(ErasedWhileRead(database), count))
    agent = replace(with_context(auto_summarize=False), tools=("read_history",), recall=RecallReach.USER)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(), tools=tools)
    other = await open_conversation(database)
    await other.say("The code is tangelo42.")
    arguments = json.dumps({"from_position": 1, "to_position": 1, "session": str(other.session.id)})
    stage.model.script(Call((ToolCall(id="c1", name="read_history", arguments=arguments),)), Say("I cannot tell."))

    run = await stage.turn("What was the code?")

    assert run.status is RunStatus.SUCCEEDED
    assert "tangelo42" not in shown(stage.model.requests[-1])
    results = [event_json(event.event) for event in await stage.events(run) if event.type is EventType.TOOL_RESULT]
    assert [(data["content"], data["is_error"]) for data in results] == [(LOOK_AGAIN, True)]
