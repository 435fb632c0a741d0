"""The operator's `pre_compact` hook: what it is told, what it may do, and that it cannot hurt."""

import asyncio
import threading
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from fakes import own_hooks
from fakes.compactions import SUMMARY, as_adoption, asked, compact_now, fill, prepare_one
from fakes.own_hooks import OwnHooks, Remembers
from fakes.scripted_model import Say
from fakes.silent_metrics import WatchedCounter
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS, until
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.plan_context import plan_context
from throughline.context.policy import SummaryPolicy, SummaryShape
from throughline.db.database import Database
from throughline.domain.summary import CompactionResult
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from throughline.execution.compute_threads import LARGE_CHARACTERS
from throughline.ports.hooks import Decision, Hook, PreCompact
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]


async def open_with(database: Database, hook: Hook, *, turns: int = 4, **summary: object) -> Stage:
    policy = SummaryPolicy(**{"timeout_seconds": HANG_SECONDS, **summary})  # type: ignore[arg-type]  # fields by name
    agent = with_context(window=8192, min_recent_messages=2, summary=policy, pre_compact="hooks:own")
    stage = await open_stage(database, agent=agent)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, turns)
    return stage


async def compact_for(stage: Stage, *, tokens: int | None = None) -> CompactionResult:
    """Compact as a turn does at the threshold, with a prompt of so many tokens."""
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = plan_context(make_context_input(agent, conversation, None), forced=CompactionTrigger.MANUAL)
    plan = replace(plan, decision=replace(plan.decision, trigger=CompactionTrigger.THRESHOLD))
    plan = plan if tokens is None else replace(plan, tokens=tokens)
    return (await compact(stage.dependencies, Compaction(agent, conversation, plan)))[2]


async def test_it_is_told_once_what_is_going_to_be_compacted(database: Database) -> None:
    hook = Remembers()
    stage = await open_with(database, hook, chunk_messages=2)

    done = await compact_now(stage, "mind the numbers")

    (told,) = hook.told
    assert done.outcome == "adopted"
    assert (told.trigger, told.agent, told.session_id) == ("manual", "assistant", str(stage.session.id))
    assert (told.message_count, told.from_position, told.through_position) == (6, 1, 6)
    assert told.instructions == "mind the numbers"
    assert (told.tokens, told.must_compact) == (done.tokens_before, False)
    assert 0 < told.target_tokens < 8192


async def test_it_may_cancel(database: Database) -> None:
    stage = await open_with(database, own_hooks.cancels)

    done = await compact_for(stage)

    assert (done.outcome, (await stage.reload()).summary_version) == ("cancelled", 0)
    assert stage.model.requests == []


async def test_it_may_not_cancel_what_has_to_be(database: Database) -> None:
    hook = Remembers(Decision(cancel=True))
    stage = await open_with(database, hook)

    done = await compact_for(stage, tokens=9000)

    assert done.outcome == "adopted"
    assert (hook.told[0].trigger, hook.told[0].must_compact) == ("auto", True)


async def test_its_instructions_are_added_to_the_users(database: Database) -> None:
    stage = await open_with(database, own_hooks.add_instructions)

    await compact_now(stage, "mind the numbers")

    assert "mind the numbers\nmind the operator's instructions" in asked(stage.model.requests[0])


@pytest.mark.parametrize("shape", SHAPES)
async def test_its_own_summary_is_used_without_asking_a_model(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, own_hooks.writes, shape=shape, chunk_messages=2)

    done = await compact_now(stage)

    session = await stage.reload()
    assert (done.outcome, session.summary_through_position) == ("adopted", 6)
    assert own_hooks.SUMMARY in session.conversation_summary
    assert stage.model.requests == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_its_own_summary_follows_what_is_summarised_already(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, own_hooks.writes, shape=shape)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks())
    await compact_now(stage)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": own_hooks.writes}))
    await fill(stage, 3)

    await compact_now(stage)

    session = await stage.reload()
    assert session.summary_through_position == 12
    assert "The user counts" in session.conversation_summary
    assert own_hooks.SUMMARY in session.conversation_summary


async def test_a_summary_of_its_own_that_cannot_serve_is_ignored(database: Database) -> None:
    stage = await open_with(database, own_hooks.writes_nothing_useful)

    done = await compact_now(stage)

    assert (done.outcome, len(stage.model.requests)) == ("adopted", 1)


@pytest.mark.parametrize(
    "hook",
    [
        own_hooks.raises,
        own_hooks.raises_later,
        own_hooks.gives_up,
        own_hooks.cancels_itself,
        own_hooks.interrupts,
        own_hooks.talks_nonsense,
        own_hooks.answers_with_numbers,
        own_hooks.answers_with_what_is_neither,
        own_hooks.answers_with_what_breaks,
    ],
)
async def test_a_hook_that_fails_is_logged_without_its_words_and_ignored(database: Database, hook: Hook) -> None:
    stage = await open_with(database, hook)

    with capture_logs() as logs:
        done = await compact_now(stage)

    (entry,) = [log for log in logs if log["event"] == "pre_compact hook failed"]
    assert done.outcome == "adopted"
    assert "may hold anything" not in str(entry)
    assert entry["hook"] == "hooks:own"


@pytest.mark.parametrize("hook", [own_hooks.hangs, own_hooks.blocks, own_hooks.hangs_and_will_not_be_cancelled])
async def test_a_hook_that_hangs_costs_a_share_of_the_time_and_no_more(database: Database, hook: Hook) -> None:
    stage = await open_with(database, hook, timeout_seconds=3)

    done = await compact_now(stage)

    assert done.outcome == "adopted"


async def test_a_hook_that_is_not_there_is_ignored(database: Database) -> None:
    stage = await open_with(database, own_hooks.cancels)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks())

    assert (await compact_now(stage)).outcome == "adopted"


async def test_a_hook_that_fails_again_and_again_is_left_alone(database: Database) -> None:
    calls: list[str] = []

    def breaks(_event: object) -> None:
        calls.append("called")
        raise ValueError

    stage = await open_with(database, breaks)
    for _ in range(FAILURES_TO_OPEN + 2):
        await compact_now(stage)
        await fill(stage, 2)

    assert len(calls) == FAILURES_TO_OPEN


async def test_a_hooks_huge_summary_is_judged_beside_the_loop_and_not_used(database: Database) -> None:
    stage = await open_with(database, lambda _: Decision(summary="So they talked on and on. " * 400_000))
    counter = WatchedCounter()
    stage.dependencies = replace(stage.dependencies, make_counter=lambda _: counter)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert "talked on" not in (await stage.reload()).conversation_summary
    assert max(counter.on_loop) <= LARGE_CHARACTERS


@pytest.mark.parametrize("hook", [own_hooks.answers_with_what_is_neither, own_hooks.answers_with_what_breaks])
async def test_a_hook_that_fails_costs_no_turn_what_was_prepared(database: Database, hook: Hook) -> None:
    stage = await open_with(database, Remembers(), turns=20)
    assert await prepare_one(stage)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = as_adoption(plan_context(make_context_input(agent, conversation, None), forced=CompactionTrigger.MANUAL))

    assert (await compact(stage.dependencies, Compaction(agent, conversation, plan)))[2].outcome == "adopted"


async def test_of_what_is_prepared_it_is_told_as_of_what_is_summarised_already(database: Database) -> None:
    hook = Remembers()
    stage = await open_with(database, hook, turns=20)
    assert await prepare_one(stage)
    await fill(stage, 6)

    await compact_now(stage)

    ahead, now = hook.told
    assert (now.from_position, now.message_count) == (ahead.through_position + 1, 12)
    assert now.through_position == ahead.through_position + 12


async def test_a_hook_is_not_asked_again_while_it_still_hangs(database: Database) -> None:
    asked: list[PreCompact] = []

    def counts(event: PreCompact) -> None:
        asked.append(event)
        own_hooks.hangs(event)

    stage = await open_with(database, counts, timeout_seconds=1)

    with capture_logs() as logs:
        for _ in range(FAILURES_TO_OPEN):
            await fill(stage, 2)
            assert (await compact_now(stage)).outcome == "adopted"
            stage.clock.advance(COOL_DOWN_SECONDS + 1)

    assert len(asked) == 1
    assert [log["event"] for log in logs].count("pre_compact hook skipped") == FAILURES_TO_OPEN - 1


async def test_an_older_call_that_hangs_keeps_the_hook_from_being_asked(database: Database) -> None:
    asked: list[PreCompact] = []
    has_begun, is_held = threading.Event(), threading.Event()

    def first_hangs(event: PreCompact) -> None:
        asked.append(event)
        if len(asked) == 1:
            has_begun.set()
            is_held.wait()

    stage = await open_with(database, first_hangs, timeout_seconds=1)
    older = asyncio.create_task(compact_now(stage))
    await asyncio.to_thread(has_begun.wait)
    await compact_now(stage)
    await older
    await fill(stage, 2)

    await compact_now(stage)

    is_held.set()
    assert len(asked) == 2


async def test_a_call_cancelled_with_its_turn_keeps_the_hook_from_being_asked(database: Database) -> None:
    asked: list[PreCompact] = []
    has_begun, is_held = threading.Event(), threading.Event()

    def hangs(event: PreCompact) -> None:
        asked.append(event)
        has_begun.set()
        is_held.wait()

    stage = await open_with(database, hangs, timeout_seconds=1)
    older = asyncio.create_task(compact_now(stage))
    await asyncio.to_thread(has_begun.wait)
    older.cancel()
    await asyncio.gather(older, return_exceptions=True)

    await compact_now(stage)

    is_held.set()
    assert len(asked) == 1


async def test_a_hook_that_was_only_slow_is_asked_again(database: Database) -> None:
    is_held, asked = threading.Event(), threading.Semaphore(0)

    def waits(_event: PreCompact) -> None:
        asked.release()
        is_held.wait()

    stage = await open_with(database, waits, timeout_seconds=1)
    await compact_now(stage)
    assert asked.acquire(timeout=0)
    is_held.set()
    await until(lambda: not any(call.is_hanging for call in stage.dependencies.hanging_hooks["hooks:own"]))
    await fill(stage, 2)

    await compact_now(stage)

    assert asked.acquire(timeout=0)
