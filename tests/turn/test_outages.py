"""A database that is away for a moment, or answers what nobody expects: turns wait, are given back, or end clearly."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.side_jobs import side_jobs
from fakes.stage import Stage
from fakes.waiting import HANG_SECONDS
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.db.runs.events import EventRepository
from throughline.db.runs.repository import RunRepository
from throughline.db.sessions.messages import MessageRepository
from throughline.db.summaries.repository import SummaryRepository
from throughline.domain.errors import DatabaseBusy, DatabaseUnavailable, DatabaseUnusable, LeaseLost
from throughline.domain.events import EventType, NewEvent, RunEvent
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import ToolSpec, Usage
from throughline.domain.run import Lease, Outcome, Run, RunStatus
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.ports.hooks import Tools
from throughline.turn.event_writer import FLUSHING
from throughline.turn.follow_run import Following, Idle
from throughline.turn.llm_node import OUT_OF_ROUNDS
from throughline.turn.store_step import MOST_TRIES
from throughline.turn.take_turn import take_turn
from throughline.turn.worker.worker import Worker, WorkerConfig


class FlakyStore:
    """Raises the errors of `failures[intent]` one by one, then hands the calls on to the real store."""

    def __init__(
        self,
        store: RunRepository | MessageRepository | EventRepository | SummaryRepository,
        **failures: list[Exception],
    ) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, intent: str) -> Any:  # noqa: ANN401  # stands for every method of the store
        real = getattr(self._store, intent)
        failures = self._failures.get(intent)
        if not failures:
            return real

        async def fail(*_: object, **__: object) -> None:
            raise failures.pop(0)

        return fail


AWAY = DatabaseUnavailable("away")
CALL = Call((ToolCall("c1", "calculator", '{"expression": "2+3"}'),))


class OutageAfterCall:
    """The real tools; the first call that ran finds the database away."""

    def __init__(self, tools: Tools, failures: list[Exception]) -> None:
        self._tools, self._failures, self._has_failed = tools, failures, False

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        return self._tools.specs(names)

    def is_repeatable(self, name: str) -> bool:
        return self._tools.is_repeatable(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        outcome = await self._tools.run(call, context)
        if not self._has_failed:
            self._has_failed = True
            self._failures.append(AWAY)
        return outcome


def break_store(stage: Stage, **failures: list[Exception]) -> None:
    database = stage.database
    stage.dependencies = replace(
        stage.dependencies,
        runs=FlakyStore(database.runs, **failures),
        messages=FlakyStore(database.messages, **failures),
        events=FlakyStore(database.events, **failures),
    )


async def test_an_outage_while_a_tool_result_is_stored_costs_nothing(stage: Stage) -> None:
    stage.model.script(CALL, Say("5"))
    run = await stage.submit("2+3?")
    claimed = await stage.claim()
    appends: list[Exception] = []
    break_store(stage, append_message=appends)
    tools = OutageAfterCall(stage.dependencies.tools, appends)
    stage.dependencies = replace(stage.dependencies, tools=tools)

    await take_turn(stage.turn_start(claimed))

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert (ended.status, ended.attempt) == (RunStatus.SUCCEEDED, 1)
    assert len(stage.model.requests) == 2
    assert [message.role for message in await stage.messages()] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
    ]


async def test_a_finished_answer_waits_for_the_database_and_is_not_asked_for_twice(stage: Stage) -> None:
    stage.model.script(Say("worth keeping"))
    break_store(stage, finish=[AWAY] * 20)

    run = await stage.turn("hello")

    assert run.status is RunStatus.SUCCEEDED
    assert len(stage.model.requests) == 1


class AnswerLost:
    """The real store; the first end it stores is not confirmed, as by a server that stalls while it commits."""

    def __init__(self, database: Database) -> None:
        self._database, self._is_first = database, True

    def __getattr__(self, intent: str) -> Any:  # noqa: ANN401  # stands for every other method
        return getattr(self._database.runs, intent)

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        run = await self._database.runs.finish(lease, outcome, unstored, next_seq)
        if self._is_first:
            self._is_first = False
            raise AWAY
        return run


async def test_an_end_that_was_stored_unheard_is_reported_as_it_was_stored(stage: Stage) -> None:
    stage.model.script(Say("heard by nobody"))
    stage.dependencies = replace(stage.dependencies, runs=AnswerLost(stage.database))

    run = await stage.turn("hello")

    assert run.status is RunStatus.SUCCEEDED
    assert [row["status"] for row in stage.metrics.of("turn_finished")] == ["succeeded"]


async def test_an_end_that_another_worker_will_write_is_not_reported(stage: Stage) -> None:
    stage.model.script(Say("too late"))
    break_store(stage, finish=[LeaseLost("taken over")])
    await stage.submit("hello")
    claimed = await stage.claim()

    await take_turn(stage.turn_start(claimed))

    assert stage.metrics.of("turn_finished") == []


async def test_a_turn_that_could_not_begin_is_given_back_once_the_database_is_there_again(stage: Stage) -> None:
    run = await stage.submit("hello")
    claimed = await stage.claim()
    break_store(stage, load_context=[AWAY], give_back=[AWAY] * 30)

    await take_turn(stage.turn_start(claimed))

    waiting = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert (waiting.status, waiting.attempt) == (RunStatus.QUEUED, 0)


async def test_a_turn_that_a_busy_database_never_takes_back_is_left_to_its_lease(stage: Stage) -> None:
    run = await stage.submit("hello")
    claimed = await stage.claim()
    break_store(stage, load_context=[AWAY], give_back=[AWAY, *[DatabaseBusy("took too long")] * (MOST_TRIES + 1)])

    async with asyncio.timeout(HANG_SECONDS):
        await take_turn(stage.turn_start(claimed))

    held = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert (held.status, held.attempt) == (RunStatus.RUNNING, 1)


async def test_an_outage_before_a_busy_moment_costs_a_step_none_of_its_tries(stage: Stage) -> None:
    stage.model.script(CALL, Say("5"))
    busy = [DatabaseBusy("took too long")] * (MOST_TRIES - 1)
    break_store(stage, append_message=[*[AWAY] * 20, *busy])

    run = await stage.turn("2+3?")

    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)


async def test_a_step_of_the_model_waits_for_the_database_and_is_not_asked_for_twice(stage: Stage) -> None:
    stage.model.script(CALL, Say("5"))
    break_store(stage, append_message=[AWAY] * 20)

    run = await stage.turn("2+3?")

    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    assert len(stage.model.requests) == 2


class Unlearning:
    """Calibrations that cannot be kept."""

    async def load(self, model: str) -> Calibration | None:
        del model
        return None

    async def save(self, model: str, calibration: Calibration) -> None:
        del model, calibration
        raise AWAY


async def test_an_answer_is_not_given_up_because_nothing_can_be_learned_from_it(stage: Stage) -> None:
    stage.model.script(Say("worth keeping", usage=Usage(50, 2)))
    stage.dependencies = replace(stage.dependencies, calibrations=Unlearning())

    run = await stage.turn("hello")

    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    assert len(stage.model.requests) == 1


async def test_what_a_run_does_to_the_database_itself_costs_its_attempts(stage: Stage) -> None:
    run = await stage.submit("hello")
    most = stage.dependencies.config.max_attempts
    break_store(stage, load_context=[DatabaseBusy("took too long")] * most)

    for _ in range(most):
        await take_turn(stage.turn_start(await stage.claim()))
    await take_turn(stage.turn_start(await stage.claim()))

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.error is not None
    assert ended.error.type == "run_abandoned"


async def test_a_turn_that_was_given_back_writes_nothing_more(stage: Stage) -> None:
    await stage.submit("hello")
    break_store(stage, load_context=[DatabaseBusy("took too long")])

    await take_turn(stage.turn_start(await stage.claim()))

    assert FLUSHING not in {task.get_name() for task in asyncio.all_tasks()}


async def test_an_end_that_the_database_never_takes_becomes_a_failure(stage: Stage) -> None:
    stage.model.script(Say("too much"))
    break_store(stage, finish=[DatabaseBusy("took too long")] * MOST_TRIES)

    run = await stage.turn("hello")

    assert run.status is RunStatus.FAILED


async def test_a_turn_stopped_while_its_end_is_stored_is_given_back(stage: Stage) -> None:
    stage.model.script(Say("almost"))
    run = await stage.submit("hello")
    ends = EndNever(stage.database)
    config = WorkerConfig("test", grace_seconds=0)
    worker = Worker(replace(stage.dependencies, runs=ends), stage.database.notifier.work, side_jobs(stage), config)
    async with worker.working(), asyncio.timeout(HANG_SECONDS):
        await ends.is_asked.wait()

    waiting = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert (waiting.status, waiting.attempt) == (RunStatus.QUEUED, 0)


class EndNever:
    """The real store, whose ends are never answered."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_asked = asyncio.Event()

    def __getattr__(self, intent: str) -> Any:  # noqa: ANN401  # stands for every other method
        return getattr(self._database.runs, intent)

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        del lease, outcome, unstored, next_seq
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_an_answer_that_cannot_be_stored_ends_the_run_with_an_error(stage: Stage) -> None:
    stage.model.script(Say("unstorable"))
    break_store(stage, finish=[ValueError("a defect")])

    run = await stage.turn("hello")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert "could not be stored" in run.error.detail


REFUSE_ENDS = "alter table run_events add check (type not in ('run.completed', 'run.failed'))"
LET_LEASES_RUN_OUT = "update runs set lease_until = now() - interval '1 second' where status = 'running'"


async def test_a_run_whose_end_is_refused_for_ever_fails_after_its_attempts(stage: Stage, database_url: str) -> None:
    most = stage.dependencies.config.max_attempts
    stage.model.script(*[Say("unstorable")] * most)
    run = await stage.submit("hello")
    await run_sql(database_url, REFUSE_ENDS)

    for _ in range(most + 1):
        await take_turn(stage.turn_start(await stage.claim()))
        await run_sql(database_url, LET_LEASES_RUN_OUT)

    ended = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert (ended.status, ended.attempt) == (RunStatus.FAILED, most + 1)
    assert ended.error is not None
    assert ended.error.type == "run_abandoned"
    assert [text_of(message.content) for message in await stage.messages()] == ["hello"]
    assert (await last_event_heard(stage, ended)).type is EventType.RUN_FAILED


async def last_event_heard(stage: Stage, run: Run) -> RunEvent:
    following = Following(stage.database.followed_runs, stage.clock.monotonic)
    async with asyncio.timeout(HANG_SECONDS):
        heard = [item async for item in following.events(run) if not isinstance(item, Idle)]
    return heard[-1][-1]


async def test_the_claim_loop_outlives_every_answer_of_the_database(stage: Stage) -> None:
    stage.model.script(Say("at last"))
    break_store(stage, claim=[DatabaseUnusable("read only"), ValueError("a defect"), AWAY])
    worker = Worker(
        stage.dependencies,
        stage.database.notifier.work,
        side_jobs(stage),
        WorkerConfig(name="test", after_outage_seconds=0.01),
    )
    async with worker.working():
        run = await stage.submit("anybody?")
        async with asyncio.timeout(HANG_SECONDS):
            while not (await stage.database.runs.get_run(stage.owner_id, run.id)).status.is_final:
                stage.database.notifier.work.wake()
                await asyncio.sleep(0.01)

    assert [text_of(message.content) for message in await stage.messages()] == ["anybody?", "at last"]


async def test_a_model_that_calls_tools_it_was_not_offered_still_gives_an_answer(stage: Stage) -> None:
    calls = [Call((ToolCall(f"c{number}", "calculator", '{"expression": "1+1"}'),)) for number in range(4)]
    stage.model.script(*calls)

    run = await stage.turn("loop for ever")

    last = (await stage.messages())[-1]
    assert run.status is RunStatus.SUCCEEDED
    assert (last.role, last.content) == (Role.ASSISTANT, OUT_OF_ROUNDS)
    assert last.tool_calls == ()
