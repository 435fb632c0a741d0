"""The worker: claims what waits, keeps to its slots, and gives back what it cannot end."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import cast
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from fakes.conversations import claim_next, open_conversation
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Hang, Say, Step
from fakes.scripted_turns import ASKS_WEATHER, send
from fakes.side_jobs import side_jobs
from fakes.stage import OneTool, Stage, open_stage
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.signals import QueueSignal
from throughline.db.database import Database
from throughline.db.side_jobs import Job
from throughline.domain.basic_types import UserId
from throughline.domain.errors import SummaryLimitReached, TurnLimitReached
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import ClaimedRuns, Claimer, Run, RunStatus
from throughline.ports.storage import RunStore
from throughline.telemetry import PrometheusMetrics
from throughline.turn.take_turn import take_turn
from throughline.turn.worker.jobs import WaitingTurnsReport
from throughline.turn.worker.worker import LONGEST_SILENCE_SECONDS, Worker, WorkerConfig


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


def worker_of(stage: Stage, *, concurrency: int = 2, grace_seconds: float = 5, lease_seconds: float = 10) -> Worker:
    config = WorkerConfig("test", concurrency, lease_seconds, grace_seconds, after_outage_seconds=0.01)
    return Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), config)


async def ended(stage: Stage, run: Run) -> Run:
    async with asyncio.timeout(HANG_SECONDS):
        while not (found := await stage.database.runs.get_run(run.owner_id, run.id)).status.is_final:
            await asyncio.sleep(0.01)
    return found


async def test_a_waiting_run_is_claimed_and_answered(stage: Stage) -> None:
    stage.model.script(Say("here"))

    async with worker_of(stage).working():
        run = await ended(stage, await stage.submit("anybody there?"))

    assert run.status is RunStatus.SUCCEEDED


async def test_a_worker_of_one_user_leaves_the_turns_of_others_and_all_side_jobs(stage: Stage) -> None:
    stage.model.script(Say("mine"))
    theirs = await stage.submit_elsewhere("hello", owner="bert")
    await stage.database.jobs.enqueue(Job("prepare_summary", str(stage.session.id)))
    worker = worker_of(stage)

    async with worker.working(only_for=stage.owner_id):
        mine = await ended(stage, await stage.submit("anybody there?"))
        while worker.reserve() is None:  # the claim loop has found nothing more that it may take
            await asyncio.sleep(0.01)
        worker.release()
        took_jobs = worker.is_taking_jobs

    left = await stage.database.runs.get_run(theirs.owner_id, theirs.id)
    assert (mine.status, left.status) == (RunStatus.SUCCEEDED, RunStatus.QUEUED)
    assert not took_jobs


class CountedClaims:
    """The storage of runs, with how many runs each claim asked for and took."""

    def __init__(self, stage: Stage) -> None:
        self.claims: list[tuple[int, int]] = []
        self._runs = stage.database.runs
        stage.dependencies = replace(stage.dependencies, runs=cast("RunStore", self))

    def __getattr__(self, name: str) -> object:
        return getattr(self._runs, name)

    async def claim(self, claimer: Claimer) -> ClaimedRuns:
        claimed = await self._runs.claim(claimer)
        self.claims.append((claimer.most, len(claimed.runs)))
        return claimed


async def test_runs_that_wait_together_are_claimed_together_for_half_of_the_free_slots(stage: Stage) -> None:
    stage.model.script(*(Hang("a word") for _ in range(5)))
    counted = CountedClaims(stage)
    for _ in range(5):
        await stage.submit_elsewhere("hello")

    async with worker_of(stage, concurrency=6, grace_seconds=0.05).working():
        await until(lambda: len(stage.model.requests) >= 5)

    assert counted.claims[:3] == [(3, 3), (2, 2), (1, 0)]


async def test_a_worker_without_a_free_slot_claims_nothing_however_often_it_is_woken(stage: Stage) -> None:
    stage.model.script(Hang("a word"))
    counted = CountedClaims(stage)
    for _ in range(3):
        await stage.submit_elsewhere("hello")

    async with worker_of(stage, concurrency=1, grace_seconds=0.05).working():
        await until(lambda: bool(stage.model.requests))
        for _ in range(20):
            stage.database.notifier.work.wake()
            await asyncio.sleep(0)
        claims = list(counted.claims)

    assert claims == [(1, 1)]


async def test_a_run_that_this_process_can_claim_wakes_no_other(stage: Stage) -> None:
    stage.model.script(Say("here"))
    told: list[int] = []
    signal = QueueSignal(lambda: told.append(1))
    worker = Worker(stage.dependencies, signal, side_jobs(stage), WorkerConfig("test", 2))

    signal.announce()
    before = len(told)
    async with worker.working():
        run = await stage.submit("anybody there?")
        await until(lambda: worker.is_claiming)
        signal.announce()
        await ended(stage, run)
        during = len(told)
    told.clear()
    signal.announce()

    assert (before, during, len(told)) == (1, 1, 1)


async def test_runs_that_find_no_slot_here_are_passed_on_once(stage: Stage) -> None:
    stage.model.script(Hang("a word"))
    told: list[int] = []
    signal = QueueSignal(lambda: told.append(1))
    worker = Worker(stage.dependencies, signal, side_jobs(stage), WorkerConfig("test", 1, grace_seconds=0.05))

    async with worker.working():
        await until(lambda: worker.is_claiming)
        for _ in range(2):
            await stage.submit_elsewhere("hello")
        signal.announce()
        kept = len(told)
        await until(lambda: bool(told))
        for _ in range(10):
            signal.wake()
            await asyncio.sleep(0)
        passed_on = len(told)

    assert (kept, passed_on, len(told)) == (0, 1, 1)


def test_a_run_announced_during_a_claim_that_finds_nothing_is_still_passed_on() -> None:
    told: list[int] = []
    signal = QueueSignal(lambda: told.append(1))
    signal.claim_here(lambda: True)

    signal.announce()
    times = signal.times
    signal.announce()
    signal.has_claimed_all(times)
    signal.pass_on()
    signal.announce()
    signal.has_claimed_all(signal.times)
    signal.pass_on()

    assert told == [1]


async def test_messages_of_one_session_are_answered_one_after_the_other_in_order(stage: Stage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"))
    runs = [await stage.submit(text) for text in ("first", "second", "third")]

    async with worker_of(stage, concurrency=3).working():
        for run in runs:
            await ended(stage, run)

    contents = [text_of(message.content) for message in await stage.messages()]
    assert contents == ["first", "one", "second", "two", "third", "three"]


@pytest.mark.parametrize("turns", [25, pytest.param(100, marks=pytest.mark.proof)])
async def test_many_turns_wait_for_their_model_over_a_pool_of_five_connections(stage: Stage, turns: int) -> None:
    stage.model.script(*(Hang("a word") for _ in range(turns)))
    for _ in range(turns):
        await stage.submit_elsewhere("hello")

    async with worker_of(stage, concurrency=turns, grace_seconds=0.05).working():
        await until(lambda: len(stage.model.requests) >= turns)

    assert len(stage.model.requests) == turns


async def test_a_full_worker_reserves_no_slot_and_a_released_one_is_free_again(stage: Stage) -> None:
    worker = worker_of(stage, concurrency=1)
    async with worker.working():
        while (first := worker.reserve()) is None:  # the claim loop holds the slot for its first look
            await asyncio.sleep(0.01)
        second = worker.reserve()
        worker.release()
        while worker.reserve() is None:  # the claim loop looks first, for earlier runs
            await asyncio.sleep(0.01)
        worker.release()

    assert first.worker == "test"
    assert second is None


async def test_a_slot_that_comes_free_goes_to_a_waiting_run_and_not_to_a_new_request(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("the first answer", gate), Say("the second"))
    await stage.submit("hello")

    worker = worker_of(stage, concurrency=1)
    async with worker.working(), asyncio.timeout(10):
        while not stage.model.requests:
            await asyncio.sleep(0.01)
        waiting = await stage.submit_elsewhere("hello", owner="bert")
        gate.set()
        passed = False
        while len(stage.model.requests) < 2 and not passed:
            passed = worker.reserve() is not None
            await asyncio.sleep(0)
        assert not passed
        found = await stage.database.runs.get_run(waiting.owner_id, waiting.id)

    assert found.status is not RunStatus.QUEUED


async def test_a_closed_worker_takes_nothing(stage: Stage) -> None:
    worker = worker_of(stage)

    assert worker.reserve() is None
    assert not worker.is_claiming


async def test_runs_with_one_try_left_are_taken_over_file_lock(stage: Stage) -> None:
    runs = [await stage.submit_elsewhere("hello", owner=owner) for owner in ("anna", "bert", "cleo")]
    for _ in range(2 * len(runs)):
        await claim_next(stage.database.runs, Claimer(worker="dead", lease_seconds=0, skipped_attempt=2))
    worker, open_turns = worker_of(stage), []

    def answer(_request: ModelRequest) -> Step:
        open_turns.append(worker.open_turns)
        return Say("done")

    stage.model.by_request = answer
    async with worker.working():
        ends = [await ended(stage, run) for run in runs]

    assert [(end.status, end.attempt) for end in ends] == [(RunStatus.SUCCEEDED, 3)] * 3
    assert open_turns == [1, 1, 1]


async def test_a_run_that_was_to_stop_when_its_worker_died_is_stopped_at_once_by_the_next(stage: Stage) -> None:
    stage.model.script(Hang("taken up again"))
    run = await stage.submit("hello")
    await claim_next(stage.database.runs, Claimer(worker="dead", lease_seconds=0))
    await stage.database.runs.request_cancel(stage.owner_id, run.id)

    async with worker_of(stage, lease_seconds=600).working():
        found = await ended(stage, run)

    assert found.status is RunStatus.CANCELLED


async def test_a_cancel_that_is_heard_while_the_run_is_being_claimed_is_not_lost(stage: Stage) -> None:
    stage.model.script(Hang("a word"))
    run = await stage.submit("hello")
    worker = worker_of(stage, lease_seconds=600)
    claimed = await stage.claim()
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    worker.on_cancel(run.id)

    async with worker.working():
        while worker.reserve() is None:
            await asyncio.sleep(0.01)
        worker.start(claimed)
        found = await ended(stage, run)

    assert found.status is RunStatus.CANCELLED


async def test_what_does_not_end_within_the_grace_is_given_back_to_the_line(stage: Stage) -> None:
    stage.model.script(Hang("half"), Say("whole"))
    run = await stage.submit("hello")
    async with worker_of(stage, grace_seconds=0.05).working(), asyncio.timeout(HANG_SECONDS):
        while not stage.model.requests:
            await asyncio.sleep(0.01)

    waiting = await stage.database.runs.get_run(stage.owner_id, run.id)
    async with worker_of(stage).working():
        finished = await ended(stage, run)

    assert waiting.status is RunStatus.QUEUED
    assert finished.status is RunStatus.SUCCEEDED
    assert finished.attempt == 1


async def test_what_is_no_turn_takes_the_place_of_one_and_gives_it_back(stage: Stage) -> None:
    worker = worker_of(stage, concurrency=1)
    stage.model.script(Say("here"))
    async with worker.working():
        async with worker.occupied(stage.owner_id):
            run = await stage.submit("anybody there?")
            for _ in range(100):
                await asyncio.sleep(0)
            assert worker.reserve() is None
            assert stage.model.requests == []
        found = await ended(stage, run)

    assert found.status is RunStatus.SUCCEEDED


async def test_what_is_no_turn_takes_a_tenth_of_all_places_at_most(stage: Stage) -> None:
    worker = worker_of(stage, concurrency=20)

    async with worker.occupied(a_user()), worker.occupied(a_user()):
        with pytest.raises(TurnLimitReached, match="2 summaries"):
            await enter(worker, a_user())
    await enter(worker, a_user())


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (20, 1), (60, 3), (500, 4)])
async def test_one_user_gets_a_share_of_the_places_for_what_is_no_turn(
    stage: Stage, concurrency: int, most: int
) -> None:
    worker = worker_of(stage, concurrency=concurrency)
    anna, bert = a_user(), a_user()

    async with AsyncExitStack() as taken:
        for _ in range(most):
            await taken.enter_async_context(worker.occupied(anna))
        with pytest.raises(SummaryLimitReached, match=rf"one user may have \({most}\)"):
            await enter(worker, anna)
        if concurrency > 1:
            await enter(worker, bert)
    await enter(worker, anna)


def a_user() -> UserId:
    return UserId(uuid4())


async def enter(worker: Worker, owner_id: UserId) -> None:
    async with worker.occupied(owner_id):
        pass


async def until_claiming_failed() -> None:
    with capture_logs() as logs:
        await until(lambda: any(entry["event"] == "claim failed" for entry in logs))


async def test_a_worker_is_ready_by_answered_claims_and_not_while_all_fail(stage: Stage, database_url: str) -> None:
    await run_sql(database_url, "alter table runs rename to elsewhere")
    worker = worker_of(stage, concurrency=1)
    async with worker.working():
        await until_claiming_failed()
        before = worker.is_claiming
        await run_sql(database_url, "alter table elsewhere rename to runs")
        await until(lambda: worker.is_claiming)
        stage.clock.advance(LONGEST_SILENCE_SECONDS - 1)
        soon_after = worker.is_claiming
        await run_sql(database_url, "alter table runs rename to elsewhere")
        await until_claiming_failed()
        stage.clock.advance(LONGEST_SILENCE_SECONDS)
        after = worker.is_claiming
        await run_sql(database_url, "alter table elsewhere rename to runs")

    assert (before, soon_after, after) == (False, True, False)


async def test_a_full_worker_is_ready_however_long_its_turns_take(stage: Stage) -> None:
    stage.model.script(Hang("a long answer"))
    await stage.submit("hello")

    worker = worker_of(stage, concurrency=1, grace_seconds=0.05, lease_seconds=600)
    async with worker.working():
        await until(lambda: bool(stage.model.requests))
        stage.clock.advance(LONGEST_SILENCE_SECONDS * 10)
        is_claiming = worker.is_claiming

    assert is_claiming


@pytest.mark.parametrize(
    ("repeatable", "calls", "told"),
    [(True, 2, "posted"), (False, 1, "This call was interrupted")],
    ids=["may be repeated", "must not be repeated"],
)
async def test_a_call_that_was_cut_is_made_again_only_where_the_tool_allows_it(
    database: Database, database_url: str, *, repeatable: bool, calls: int, told: str
) -> None:
    tools = OneTool("post", "posted", repeatable, hangs_at_first=True)
    stage = await open_stage(database, tools=tools)
    stage.model.script(Call((ToolCall("c1", "post", "{}"),)), Say("done"))
    run = await stage.submit("write to her")
    dying = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    while not tools.keys:
        await asyncio.sleep(0.01)
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")

    await take_turn(stage.turn_start(await stage.claim()))
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    messages = await stage.messages()
    assert (ended.status, ended.attempt) == (RunStatus.SUCCEEDED, 2)
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert text_of(messages[2].content).startswith(told)
    assert tools.keys == [f"{run.id}:c1"] * calls


async def test_queued_turns_and_turns_that_wait_for_a_client_are_told_apart(
    database: Database, database_url: str
) -> None:
    metrics = PrometheusMetrics()
    report = WaitingTurnsReport(database.runs, metrics)
    await report.record()
    assert metrics.registry.get_sample_value("throughline_turns_waiting", {"status": "queued"}) == 0

    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    await send(stage)
    for name in ("anna", "bert"):
        await (await open_conversation(database, name)).submit()
    await run_sql(database_url, "update runs set created_at = now() - interval '90 seconds' where status = 'queued'")
    await report.record()

    values = {
        (series, status): metrics.registry.get_sample_value(f"throughline_turns_{series}", {"status": status})
        for series in ("waiting", "oldest_seconds")
        for status in ("queued", "waiting")
    }
    assert values["waiting", "queued"] == 2
    assert values["waiting", "waiting"] == 1
    assert (values["oldest_seconds", "queued"] or 0) >= 90
    assert 0 <= (values["oldest_seconds", "waiting"] or 0) < 90
