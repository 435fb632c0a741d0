"""Compaction around the turn: on demand, from far behind, against a rival, and after the provider's refusal."""

from dataclasses import replace

import pytest

from fakes.scripted_model import Fail, Hang, Say, ScriptedModel, Step
from fakes.stage import Stage, open_stage, with_context
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.plan_context import plan_context
from throughline.context.policy import SummaryPolicy, SummaryShape
from throughline.db.database import Database
from throughline.domain.errors import ContextOverflow, ModelUnavailable
from throughline.domain.events import CompactionFinished
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import RunStatus
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compact import compact
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.summary.write_summary import Compaction

SUMMARY = "## Intent\nThe user counts [#1-#2]."


def answers(request: ModelRequest) -> Step:
    """A turn offers tools, a summariser's request none."""
    return Say("noted") if request.tools else Say(SUMMARY)


async def talk(stage: Stage, turns: int, words: int = 30) -> None:
    for number in range(turns):
        assert (await stage.turn(f"number {number} " + "word " * words)).status is RunStatus.SUCCEEDED


@pytest.fixture
async def stage(database: Database) -> Stage:
    stage = await open_stage(database, agent=with_context(window=4096, min_recent_messages=2))
    stage.model.by_request = answers
    return stage


async def test_a_summary_on_demand_keeps_the_newest_messages_and_carries_the_users_words(stage: Stage) -> None:
    await talk(stage, 4)

    result = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("mind the numbers"))

    assert (result.outcome, result.session.summary_through_position) == ("adopted", 6)
    assert "mind the numbers" in str(stage.model.requests[-1].prompt.messages[0].content)
    assert len(await stage.messages()) == 8


async def test_a_second_summary_reads_the_first_and_only_what_came_after_it(database: Database) -> None:
    rolling = SummaryPolicy(shape=SummaryShape.ROLLING)
    stage = await open_stage(database, agent=with_context(window=4096, min_recent_messages=2, summary=rolling))
    stage.model.by_request = answers
    await talk(stage, 4)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    await talk(stage, 3)

    result = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    asked = str(stage.model.requests[-1].prompt.messages[0].content)
    assert result.session.summary_through_position == 12
    assert SUMMARY in asked
    assert "[#7 user" in asked
    assert "[#6 " not in asked


async def test_there_is_nothing_to_summarise_in_a_new_session(stage: Stage) -> None:
    result = await summarize_now(stage.dependencies, stage.session, SummaryRequest())

    assert result.outcome == "skipped"
    assert result.session.summary_version == 0


async def test_a_summary_that_lost_the_race_is_dropped_and_changes_nothing(stage: Stage) -> None:
    await talk(stage, 4)
    before = await stage.reload()
    await summarize_now(stage.dependencies, before, SummaryRequest())
    rival = await stage.reload()
    late = await open_late(stage, before.summary_version)

    assert late == "skipped"
    assert await stage.reload() == rival


async def open_late(stage: Stage, seen_version: int) -> str:
    """Adopt on top of a version that is no longer the newest, as a slow rival would."""
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    history = await stage.messages()
    old = replace(conversation.session, summary_version=seen_version, summary_through_position=0)
    stale = replace(conversation, session=old, history=history)
    plan = plan_context(make_context_input(agent, stale, None), forced=CompactionTrigger.MANUAL)
    return (await compact(stage.dependencies, Compaction(agent, stale), plan))[1].outcome


async def test_a_slow_summariser_costs_its_time_limit_and_no_more(database: Database) -> None:
    agent = with_context(window=2048, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=0.05))
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=2048))
    stage.model.by_request = lambda request: Say("noted " * 40) if request.tools else Hang()

    await talk(stage, 12, words=60)

    assert (await stage.reload()).summary_through_position == 0


async def test_a_refused_prompt_teaches_the_window_and_a_smaller_one_is_sent_once(stage: Stage) -> None:
    await talk(stage, 10, words=100)
    overflow = ContextOverflow("too long", window_tokens=1500, prompt_tokens=2400)
    steps: list[Step] = [Fail(overflow), Say("it fits now")]
    stage.model.by_request = lambda request: steps.pop(0) if request.tools else Say(SUMMARY)

    run = await stage.turn("and now?")

    first, second = [request for request in stage.model.requests if request.tools][-2:]
    assert run.status is RunStatus.SUCCEEDED
    assert size(second) < size(first)
    assert steps == []


async def test_an_absurd_refusal_does_not_disable_the_model_for_the_turns_that_follow(stage: Stage) -> None:
    stage.model.by_request = lambda _: Fail(ContextOverflow("too long", window_tokens=300, prompt_tokens=900))
    refused = await stage.turn("hello")
    stage.model.by_request = answers
    further = await stage.turn("still there? " + "word " * 300)
    report = await report_context(stage.dependencies, await stage.reload())

    assert refused.status is RunStatus.FAILED
    assert further.status is RunStatus.SUCCEEDED
    assert report.context_window == 4096


async def test_a_prompt_that_is_refused_twice_fails_the_turn_and_leaves_the_session_usable(stage: Stage) -> None:
    await talk(stage, 3)
    stage.model.by_request = lambda _: Fail(ContextOverflow("too long"))
    failed = await stage.turn("hello")
    stage.model.by_request = answers
    further = await stage.turn("still there?")

    assert failed.error is not None
    assert failed.error.type == "context_overflow"
    assert further.status is RunStatus.SUCCEEDED


async def test_readers_are_told_of_a_compaction_and_what_it_came_to(stage: Stage) -> None:
    await talk(stage, 9, words=120)
    told = []
    for number in range(6):
        run = await stage.turn(f"more {number} " + "word " * 120)
        told += [event.event for event in await stage.events(run) if isinstance(event.event, CompactionFinished)]

    assert told
    assert told[0].outcome == "adopted"
    assert told[-1].through_position == (await stage.reload()).summary_through_position


async def test_the_report_of_a_turn_equals_the_report_asked_for_afterwards(stage: Stage) -> None:
    await talk(stage, 3)
    run = await stage.turn("how full is it?")

    asked = await report_context(stage.dependencies, await stage.reload())

    assert run.context is not None
    assert run.context["total_tokens"] == asked.total_tokens
    assert run.context["messages_since_summary"] == asked.messages_since_summary == 8


async def test_a_summariser_that_is_away_leaves_the_answer_alone(database: Database) -> None:
    stage = await open_stage(
        database, agent=with_context(window=2048, min_recent_messages=2), model=ScriptedModel(context_limit=2048)
    )
    stage.model.by_request = lambda request: Say("noted " * 40) if request.tools else Fail(ModelUnavailable("away"))

    await talk(stage, 12, words=60)

    assert {row["outcome"] for row in stage.metrics.of("compaction_finished")} == {"failed"}


@pytest.mark.parametrize("words", [1200, 20_000])
async def test_a_session_of_huge_messages_is_compacted_although_few_of_them_can_be_loaded(
    database: Database, words: int
) -> None:
    stage = await open_stage(
        database, agent=with_context(window=4096, min_recent_messages=8), model=ScriptedModel(context_limit=4096)
    )
    stage.model.by_request = answers

    await talk(stage, 12, words=words)
    report = await report_context(stage.dependencies, await stage.reload())

    assert report.summary_count > 0
    assert report.messages_since_summary <= 8 + 4
    assert {row["outcome"] for row in stage.metrics.of("compaction_finished")} == {"adopted"}


async def test_a_summary_on_demand_catches_up_with_huge_messages_that_were_not_loaded(database: Database) -> None:
    agent = with_context(window=4096, min_recent_messages=8, auto_summarize=False)
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=4096))
    stage.model.by_request = answers
    await talk(stage, 15, words=1200)

    result = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    assert result.outcome == "adopted"
    assert 20 <= result.session.summary_through_position <= 28


def size(request: ModelRequest) -> int:
    return sum(len(str(message.content)) for message in request.prompt.messages)
