"""Summaries written ahead: when, how far, extended, used without a model call, and dropped when they come too late."""

import asyncio
from dataclasses import replace

import pytest

from fakes.compactions import as_adoption, compact_now, fill, loaded, positions_read, prepare_one
from fakes.conversations import adoption_of, segment_of
from fakes.own_hooks import OwnHooks, Remembers
from fakes.scripted_model import Fail, Say
from fakes.stage import Stage, open_stage, with_context
from throughline.context.plan_context import plan_context
from throughline.context.policy import Adopt, SummaryPolicy, SummaryShape
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.summary import CompactionOutcome, CompactionResult, SummaryState
from throughline.ports.hooks import Decision
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compact import compact
from throughline.turn.summary.prepare import prepare_next
from throughline.turn.summary.write_summary import Compaction

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]


async def open_with(database: Database, **policy: object) -> Stage:
    wanted = {"window": 8192, "min_recent_messages": 2, "max_messages_before_summary": 10, **policy}
    stage = await open_stage(database, agent=with_context(**wanted))
    stage.model.by_request = lambda _: Say("## Intent\nThe user counts [#1-#2].")
    return stage


async def adopt_what_is_prepared(stage: Stage) -> CompactionResult:
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = as_adoption(plan_context(make_context_input(agent, conversation, None)))
    return (await compact(stage.dependencies, Compaction(agent=agent, conversation=conversation), plan))[1]


async def prepared_through(stage: Stage) -> int | None:
    parts = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
    return None if parts is None else parts.version.through_position


async def test_nothing_is_prepared_before_a_trigger_fires(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 4)

    assert not await prepare_one(stage)
    assert stage.model.requests == []


@pytest.mark.parametrize(
    "policy",
    [
        {"max_messages_before_summary": 10},
        {"max_messages_before_summary": 1000, "max_tokens_before_summary": 400},
        {"max_messages_before_summary": 1000, "window": 2048, "response_reserve": 256},
    ],
    ids=["messages", "tokens", "soft mark"],
)
async def test_all_but_the_newest_messages_are_prepared_and_the_session_stays_as_it_is(
    database: Database, policy: dict[str, object]
) -> None:
    stage = await open_with(database, **policy)
    await fill(stage, 10, words=60)
    before = await stage.reload()

    assert await prepare_one(stage)

    assert await stage.reload() == before
    assert await prepared_through(stage) == 18
    assert positions_read(stage.model.requests) == list(range(1, 19))


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_next_one_extends_what_is_prepared_and_reads_nothing_twice(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_with(database, summary=SummaryPolicy(shape=shape))
    for _ in range(3):
        await fill(stage, 6)
        assert await prepare_one(stage)

    assert await prepared_through(stage) == 34
    assert positions_read(stage.model.requests) == list(range(1, 35))
    assert not await prepare_one(stage)


async def test_what_is_prepared_is_adopted_without_a_model_call(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await prepare_one(stage)
    asked = len(stage.model.requests)

    done = await adopt_what_is_prepared(stage)

    session = await stage.reload()
    assert (done.outcome, done.session) == ("adopted", session)
    assert (session.summary_through_position, session.summary_version) == (10, 1)
    assert [message.position for message in (await loaded(stage)).history] == [11, 12]
    assert len(stage.model.requests) == asked
    assert done.tokens_after < done.tokens_before


async def test_a_prepared_summary_that_somebody_overtook_is_let_go(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await prepare_one(stage)
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = as_adoption(plan_context(make_context_input(agent, conversation, None)))
    await compact_now(stage, "first")

    _, done = await compact(stage.dependencies, Compaction(agent=agent, conversation=conversation), plan)

    assert (done.outcome, done.is_stale) == ("skipped", True)
    assert (await stage.reload()).summary_version == 1


async def test_a_wish_goes_on_from_what_is_prepared_and_one_with_instructions_does_not(database: Database) -> None:
    for instructions, read in (("", [11, 12, 13, 14]), ("from scratch", list(range(1, 15)))):
        stage = await open_with(database)
        await fill(stage, 6)
        await prepare_one(stage)
        await fill(stage, 2)
        stage.model.requests.clear()

        done = await compact_now(stage, instructions)

        assert done.session.summary_through_position == 14
        assert positions_read(stage.model.requests) == read


async def test_one_that_comes_too_late_is_dropped_quietly_and_its_price_counted(database: Database) -> None:
    gate = asyncio.Event()
    stage = await open_with(database)
    steps = [Say("slow words", gate=gate), Say("quick words")]
    stage.model.by_request = lambda _: steps.pop(0)
    await fill(stage, 6)
    slow = asyncio.create_task(prepare_one(stage))
    while not stage.model.requests:
        await asyncio.sleep(0.01)
    await compact_now(stage, "quickly")
    gate.set()

    assert not await slow

    assert await prepared_through(stage) is None
    assert [row["reason"] for row in stage.metrics.of("summary_unused")] == ["stale"]
    assert "quick words" in (await stage.reload()).conversation_summary


async def test_a_summariser_that_is_down_is_not_called_any_more_after_three_summaries(database: Database) -> None:
    """Each of the three is tried twice."""
    stage = await open_with(database)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    await fill(stage, 6)

    for _ in range(5):
        assert not await prepare_one(stage)

    assert len(stage.model.requests) == 6
    assert await prepared_through(stage) is None


async def test_the_hook_is_asked_before_one_is_written_and_may_cancel_it(database: Database) -> None:
    stage = await open_with(database, pre_compact="hooks:own")
    hook = Remembers(Decision(cancel=True))
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    await fill(stage, 6)

    assert not await prepare_one(stage)

    assert [(told.trigger, told.message_count, told.must_compact) for told in hook.told] == [("auto", 10, False)]
    assert stage.model.requests == []


async def test_the_hook_may_cancel_the_adoption_of_what_is_prepared(database: Database) -> None:
    stage = await open_with(database, pre_compact="hooks:own")
    await fill(stage, 6)
    assert await prepare_one(stage)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": Remembers(Decision(cancel=True))}))

    done = await adopt_what_is_prepared(stage)

    assert (done.outcome, (await stage.reload()).summary_version) == ("cancelled", 0)
    assert await prepared_through(stage) == 10


async def test_a_session_that_is_gone_is_no_trouble(database: Database) -> None:
    stage = await open_with(database)
    session = await stage.reload()
    await database.sessions.delete(stage.owner_id, session.id)

    assert (await prepare_next(stage.dependencies, session)).outcome is CompactionOutcome.SKIPPED


async def test_one_that_makes_no_prompt_smaller_waits_for_growth_and_asks_no_hook(database: Database) -> None:
    hook = Remembers()
    stage = await open_with(database, max_messages_before_summary=6, adopt=Adopt.IMMEDIATELY, pre_compact="hooks:own")
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    await fill(stage, 6, words=5)
    through, text = (await stage.messages())[7], "many words " * 400
    segment = await stage.database.summaries.save_segment(stage.session.id, segment_of(through, text))
    tokens = stage.dependencies.make_counter("chars").count(text)
    await stage.database.summaries.prepare_summary(replace(adoption_of(0, through, segment), token_count=tokens))

    for _ in range(3):
        await stage.turn("and now?")

    assert [row["outcome"] for row in stage.metrics.of("compaction_finished")] == ["skipped"]
    assert hook.told == []
    assert (await stage.reload()).summary_version == 0
