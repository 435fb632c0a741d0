"""Compaction around the turn: on demand, from far behind, against a rival, and after the provider's refusal."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from fakes.compactions import SUMMARY, asked, compact_now, fill, positions_read, prepare_one
from fakes.own_hooks import OwnHooks
from fakes.scripted_model import Fail, Hang, Say, ScriptedModel, Step
from fakes.side_jobs import do_summary_job
from fakes.stage import Stage, import_into, open_stage, with_context
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.plan_context import plan_context
from throughline.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from throughline.db.database import Database
from throughline.domain.errors import ContextOverflow, ModelUnavailable
from throughline.domain.events import CompactionFinished
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import RunStatus
from throughline.domain.summary import SummaryState
from throughline.ports.hooks import Decision, Hook, PreCompact
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary import prepare
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.prepare import ROUND_SECONDS
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.worker.jobs import NotDone

COMPACTED_SUMMARY = "## Intent\nThe user counts [#1-#2]."


def answers(request: ModelRequest) -> Step:
    """A turn offers tools, a summariser's request none."""
    return Say("noted") if request.tools else Say(COMPACTED_SUMMARY)


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
    assert COMPACTED_SUMMARY in asked
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
    return (await compact(stage.dependencies, Compaction(agent, stale, plan)))[2].outcome


async def test_a_slow_summariser_costs_its_time_limit_and_no_more(database: Database) -> None:
    agent = with_context(window=2048, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=0.05))
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=2048))
    stage.model.by_request = lambda request: Say("noted " * 40) if request.tools else Hang()

    await talk(stage, 12, words=60)

    version = await database.summaries.latest(stage.session.id)
    assert version is not None
    assert version.model == "offline"
    assert (await stage.reload()).summary_failure.startswith("The time for it, 0.05 seconds, was up.")


async def test_a_time_limit_that_is_up_before_a_summary_begins_fails_no_turn(database: Database) -> None:
    agent = with_context(window=2048, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=0.0001))
    stage = await open_stage(database, agent=agent, model=ScriptedModel(context_limit=2048))
    stage.model.by_request = answers
    await talk(stage, 4)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    stage.model.by_request = lambda request: Say("noted " * 40) if request.tools else Hang()
    runs = [await stage.turn(f"number {number} " + "word " * 60) for number in range(12)]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}


async def test_a_refused_prompt_teaches_the_window_and_a_smaller_one_is_sent_once(stage: Stage) -> None:
    await talk(stage, 10, words=100)
    overflow = ContextOverflow("too long", window_tokens=1500, prompt_tokens=2400)
    steps: list[Step] = [Fail(overflow), Say("it fits now")]
    stage.model.by_request = lambda request: steps.pop(0) if request.tools else Say(COMPACTED_SUMMARY)

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


async def test_where_a_summariser_is_away_an_extract_stands_for_its_messages(
    database: Database,
) -> None:
    stage = await open_stage(
        database, agent=with_context(window=2048, min_recent_messages=2), model=ScriptedModel(context_limit=2048)
    )
    stage.model.by_request = lambda request: Say("noted " * 40) if request.tools else Fail(ModelUnavailable("away"))

    await talk(stage, 30, words=60)

    session = await stage.reload()
    shown = next(one.prompt for one in reversed(stage.model.requests) if one.tools)
    assert "number 5 " in session.conversation_summary
    first = min(int(number) for number in re.findall(r"number (\d+) word", f"{shown.messages}"))
    assert session.summary_through_position >= 2 * first - 1  # the answer before it is shown, too
    assert session.summary_failure.endswith("the next summary on demand reads these again.")


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
    outcomes = [row["outcome"] for row in stage.metrics.of("compaction_finished")]
    assert set(outcomes) <= {"adopted", "skipped"}  # skipped: what it stands for is not shown, and it would be larger
    assert outcomes[-1] == "adopted"


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


SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]
COMPACTIONS = 17
MERGED = "What was said before, in short [#1-#4]."


async def open_with(database: Database, hook: Hook, shape: SummaryShape) -> Stage:
    policy = SummaryPolicy(shape=shape, max_tokens=600, kind=SummaryKind.LLM)
    agent = with_context(window=8192, min_recent_messages=2, summary=policy, pre_compact="hooks:own")
    stage = await open_stage(database, agent=agent)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    return stage


def writes(words: int) -> Hook:
    numbers = count(1)

    def hook(_event: PreCompact) -> Decision:
        return Decision(summary=f"Part {next(numbers)} of the story. " + "A fact of it. " * words)

    return hook


async def compact_often(stage: Stage) -> str:
    for _ in range(COMPACTIONS):
        await fill(stage, 2, words=300)
        assert (await compact_now(stage)).outcome == "adopted"
    session = await stage.reload()
    assert session.summary_through_position > 4 * (COMPACTIONS - 1)
    assert session.summary_tokens <= 600
    return session.conversation_summary


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("words", [5, 40])
async def test_its_texts_are_merged_once_they_do_not_fit_together(
    database: Database, shape: SummaryShape, words: int
) -> None:
    stage = await open_with(database, writes(words), shape)
    stage.model.by_request = lambda _: Say(MERGED)

    text = await compact_often(stage)

    version = await stage.database.summaries.latest(stage.session.id)
    assert version is not None
    assert MERGED in text
    assert len(version.segment_ids) < COMPACTIONS
    assert f"Part {COMPACTIONS} of the story." in text
    assert "[…]" not in text
    assert "left out here" not in text


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_a_merge_is_given_holds_its_older_texts(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, writes(120), shape)
    requests: list[ModelRequest] = []

    def remember(request: ModelRequest) -> Step:
        requests.append(request)
        return Say(MERGED)

    stage.model.by_request = remember
    for _ in range(2):
        await fill(stage, 2, words=300)
        await compact_now(stage)

    (merge,) = requests
    assert "Part 1 of the story." in asked(merge)
    assert "Part 2 of the story." in asked(merge)


@pytest.mark.parametrize("shape", SHAPES)
async def test_where_no_model_can_merge_them_the_newest_stay_readable(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, writes(120), shape)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))

    text = await compact_often(stage)

    assert "[The oldest parts of the summary are left out here.]" in text
    assert f"Part {COMPACTIONS} of the story." in text
    assert f"Part {COMPACTIONS - 1} of the story." in text


MESSAGES = 2000


async def open_long(database: Database, *, messages: int = MESSAGES, **summary: object) -> Stage:
    policy = SummaryPolicy(**summary)  # type: ignore[arg-type]  # fields by name
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10, summary=policy)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await import_into(stage, messages)
    return stage


def read_by(requests: Sequence[ModelRequest]) -> list[int]:
    """How many messages each call was shown; merges are shown none."""
    return [len(positions_read([request])) for request in requests]


async def test_a_segment_takes_what_the_summariser_can_read_however_many_messages_that_are(database: Database) -> None:
    stage = await open_long(database)

    assert await prepare_one(stage)

    shown = [number for number in read_by(stage.model.requests) if number]
    assert len(shown) <= 8
    assert min(shown[:-2]) > 280  # the last two meet where the turn's own rows begin
    assert sum(shown) == MESSAGES - 2


async def test_no_segment_is_longer_than_the_policy_says_and_none_but_the_last_shorter(database: Database) -> None:
    stage = await open_long(database, messages=900, chunk_messages=60)

    assert await prepare_one(stage)

    shown = [number for number in read_by(stage.model.requests) if number]
    assert max(shown) <= 60
    assert len(shown) <= 900 // 50


async def test_a_history_that_nobody_waits_for_is_merged_as_it_is_read(database: Database) -> None:
    stage = await open_long(database, messages=900, chunk_messages=60, max_tokens=900)
    stage.model.by_request = lambda _: Say("".join(f"They counted {number}. " for number in range(10, 23)))

    assert await prepare_one(stage)

    kinds = ["read" if number else "merge" for number in read_by(stage.model.requests)]
    assert kinds.index("merge") < 15


async def test_a_job_has_at_least_as_long_as_a_turn_would_have(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PREPARE_SECONDS", 0.05)
    stage = await open_long(database, messages=20, timeout_seconds=60)

    def slowly(_request: ModelRequest) -> Step:
        time.sleep(0.2)
        return Say(SUMMARY)

    stage.model.by_request = slowly

    assert await prepare_one(stage)


async def test_a_round_that_took_long_keeps_what_it_has_and_leaves_the_rest_to_the_next(database: Database) -> None:
    stage = await open_long(database)

    def slowly(_request: ModelRequest) -> Step:
        stage.clock.advance(ROUND_SECONDS)
        return Say(SUMMARY)

    stage.model.by_request = slowly
    reached = []
    for _ in range(3):
        assert await do_summary_job(stage) == NotDone()
        prepared = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
        assert prepared is not None
        reached.append(prepared[0].through_position)

    assert len(stage.model.requests) == 3
    assert reached == sorted(set(reached))
    assert sorted(positions_read(stage.model.requests)) == list(range(1, reached[-1] + 1))
