import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from fakes.conversations import open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from fakes.side_jobs import doing, side_jobs, until_jobs
from fakes.stage import import_into, open_stage
from fakes.waiting import HANG_SECONDS, until, until_found
from throughline.assembly.serving import ProcessHeartbeats
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database
from throughline.db.search.analyzer import Analyzer, Term
from throughline.db.search.entries import IndexedMessage
from throughline.db.search.index_history import LARGE_CHARACTERS, HistoryIndex
from throughline.db.service_status import HEARTBEAT_SECONDS
from throughline.db.side_jobs import Job, Schedule, WaitingJobs
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import ProcessId, SessionId, UserId
from throughline.domain.recall import HistoryQuery
from throughline.domain.service_status import Process, ProcessKind, ProcessState
from throughline.turn.worker.jobs import Indexing, NotDone, index_owner

BLOCKS = "select from_position, through_position from search_blocks"
JOBS = "select kind, subject, owner_id from jobs"


OLD = "update sessions set updated_at = $1, unindexed_since = $1 where unindexed_since is not null"


async def minutes_pass(database_url: str) -> None:
    await run_sql(database_url, OLD, datetime.now(UTC) - timedelta(minutes=10))


async def test_the_schedule_indexes_what_no_job_was_enqueued_for(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    await import_into(stage, 2)
    other = await open_conversation(database, "bob")
    await other.say("one", "two", "three")
    await run_sql(database_url, "delete from jobs")
    await minutes_pass(database_url)

    await Indexing(database.history).run()
    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    assert sorted(await run_sql(database_url, BLOCKS)) == [(1, 2), (1, 3)]


async def test_the_schedule_leaves_owners_alone_whose_messages_arenew_or_indexed(
    database: Database, database_url: str
) -> None:
    indexed, new = await open_conversation(database), await open_conversation(database, "bob")
    await indexed.say("one")
    await database.history.index_session(indexed.session.id)
    await minutes_pass(database_url)
    await new.say("one")

    await Indexing(database.history).run()

    assert await run_sql(database_url, "select subject from jobs") == []


class WatchedAnalyzer(Analyzer):
    """Notes which threads cut texts into terms."""

    def __init__(self) -> None:
        super().__init__("english")
        self.threads: list[int] = []

    def terms(self, text: str) -> Iterator[Term]:
        self.threads.append(threading.get_ident())
        return super().terms(text)


def indexed(characters: int) -> IndexedMessage:
    text = ("word " * characters)[:characters]
    return IndexedMessage(SessionId(uuid4()), 1, text, author=None, created_at=datetime.now(UTC))


async def test_long_texts_are_indexed_in_a_thread(
    database_url: str,
) -> None:
    analyzer = WatchedAnalyzer()
    index = HistoryIndex(Transactions(ConnectionPool(shared_address(database_url), PoolConfig(1, 1.0))), analyzer)

    await index.live_entries([indexed(LARGE_CHARACTERS)], {"word"})
    await index.live_entries([indexed(LARGE_CHARACTERS + 1)], {"word"})

    short, long = analyzer.threads
    assert short == threading.get_ident()
    assert long != threading.get_ident()


async def test_imported_sessions_are_indexed_by_the_job_that_the_import_puts_in_line(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    for _ in range(3):
        await import_into(stage, 2)

    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    assert await run_sql(database_url, BLOCKS) == [(1, 2)] * 3


async def test_a_session_that_is_talked_in_is_not_indexed_message_by_message(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database)
    await conversation.say("one", "two")

    embed_soon = AsyncMock()

    assert await index_owner(database.history, embed_soon, str(conversation.owner_id)) is None

    assert await run_sql(database_url, BLOCKS) == []
    embed_soon.assert_not_awaited()


async def test_what_was_indexed_is_embedded_soon(database: Database) -> None:
    stage, embed_soon = await open_stage(database), AsyncMock()
    await import_into(stage, 2)

    await index_owner(database.history, embed_soon, str(stage.session.owner_id))
    await index_owner(database.history, embed_soon, str(stage.session.owner_id))

    embed_soon.assert_awaited_once()


@pytest.mark.parametrize("is_prepared", [False, True])
async def test_what_a_summary_covers_is_indexed_as_soon_as_the_summary_is_adopted(
    database: Database, database_url: str, *, is_prepared: bool
) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("The gate code is 4417.", "It rains.")
    before = await run_sql(database_url, JOBS)
    if is_prepared:
        prepared = await conversation.prepare(covered)
        await database.summaries.adopt_prepared(conversation.session.id, prepared.id, expected_version=0)
    else:
        await conversation.adopt(covered)
    asked = await run_sql(database_url, JOBS)

    async with doing(side_jobs(await open_stage(database))):
        await until_jobs(database_url, [])

    assert (before, asked) == ([], [("index_owner", str(conversation.owner_id), conversation.owner_id)])
    indexed = await run_sql(
        database_url, "select through_position from search_blocks where session_id = $1", conversation.session.id
    )
    assert [row[0] for row in indexed] == [2]


async def test_a_summary_of_indexed_messages_asks_for_no_index(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("one", "two")
    await database.history.index_session(conversation.session.id)

    await conversation.adopt(covered)

    assert await run_sql(database_url, JOBS) == []


async def test_messages_after_a_summary_of_indexed_ones_are_not_indexed_one_by_one(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("one", "two")
    await conversation.adopt(covered)
    await database.history.index_session(conversation.session.id)
    await conversation.say("three")

    assert await index_owner(database.history, None, str(conversation.owner_id)) is None

    assert await run_sql(database_url, BLOCKS) == [(1, 2)]


async def test_an_owner_has_a_quarter_of_the_places_and_another_finds_one(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    anna, ben = UserId(new_id()), UserId(new_id())
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    gate = asyncio.Event()

    async def work(subject: str) -> None:
        owner = subject[0]
        under_way[owner] += 1
        most[owner] = max(most[owner], under_way[owner])
        await gate.wait()
        under_way[owner] -= 1

    for number in range(20):
        await database.jobs.enqueue(Job("work", f"a{number}", anna))
    await database.jobs.enqueue(Job("work", "b", ben))
    async with doing(side_jobs(stage, {"work": work}, concurrency=8)):
        await until(lambda: under_way == {"a": 2, "b": 1})
        gate.set()
        await until_jobs(database_url, [])

    assert most == {"a": 2, "b": 1}


async def test_further_rounds_come_behind_what_was_put_in_line_later(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    done: list[str] = []

    async def work(subject: str) -> NotDone | None:
        done.append(subject)
        if subject == "long" and done.count("long") == 1:
            for number in range(3):
                await database.jobs.enqueue(Job("work", f"{number}"))
        return NotDone() if subject == "long" and done.count("long") < 3 else None

    await database.jobs.enqueue(Job("work", "long"))
    async with doing(side_jobs(stage, {"work": work}, concurrency=1)):
        await until_jobs(database_url, [])

    assert done[0] == "long"
    assert done[-1] == "long"
    assert sorted(done) == ["0", "1", "2", "long", "long", "long"]
    ended = [(row["kind"], row["outcome"]) for row in stage.metrics.of("job_ended")]
    assert sorted(ended) == [("work", "continued")] * 2 + [("work", "done")] * 4


async def test_further_rounds_leave_places_to_others(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    begun: Counter[str] = Counter()
    ended: list[str] = []
    gate = asyncio.Event()

    async def work(subject: str) -> NotDone | None:
        begun[subject] += 1
        if subject != "new":
            if begun[subject] == 1:
                return NotDone()
            await gate.wait()
        ended.append(subject)
        return None

    async with doing(side_jobs(stage, {"work": work}, concurrency=2)):
        for subject in ("first", "second"):
            await database.jobs.enqueue(Job("work", subject))
        await until(lambda: sorted(begun.values()) == [1, 2])
        await database.jobs.enqueue(Job("work", "new"))
        await until(lambda: bool(ended))
        gate.set()
        await until_jobs(database_url, [])

    assert ended[0] == "new"
    assert sorted(ended[1:]) == ["first", "second"]


async def test_work_by_the_clock_takes_no_place_of_other_jobs(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    gate = asyncio.Event()
    begun: list[str] = []

    async def tidy() -> None:
        begun.append("tidy")
        await gate.wait()

    async def work(subject: str) -> None:
        begun.append(subject)
        await gate.wait()

    await database.jobs.enqueue(Job("tidy", ""))
    for subject in ("1", "2"):
        await database.jobs.enqueue(Job("work", subject))
    schedule = Schedule("tidy", timedelta(days=1), tidy)
    async with doing(side_jobs(stage, {"work": work}, concurrency=2, schedules=[schedule])):
        await until(lambda: len(begun) == 3)
        gate.set()
        await until_jobs(database_url, [])

    assert sorted(begun) == ["1", "2", "tidy"]


async def test_waiting_jobs_are_counted_by_kind_with_the_age_of_the_oldest_that_is_due(
    database: Database, database_url: str
) -> None:
    for kind, subject in (("work", "1"), ("work", "2"), ("later", "3")):
        await database.jobs.enqueue(Job(kind, subject))
    await run_sql(
        database_url,
        "update jobs set created_at = now() - interval '90 seconds', due_at = case kind "
        "when 'later' then now() + interval '1 hour' else now() - interval '90 seconds' end",
    )

    found = {waiting.kind: waiting for waiting in await database.jobs.waiting()}

    assert found["later"] == WaitingJobs("later", 1, 0.0)
    assert found["work"].jobs == 2
    assert 90 <= found["work"].oldest_seconds < 90 + HANG_SECONDS


async def test_readiness_outlasts_a_claim_that_fails_and_ends_with_the_loop(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    jobs = side_jobs(stage, {"work": lambda _: asyncio.sleep(0)})
    before = jobs.is_taking
    async with doing(jobs):
        await until(lambda: jobs.is_taking)
        with capture_logs() as logs:
            await run_sql(database_url, "alter table jobs rename to away")
            await until(lambda: any(line["event"] == "claim failed" for line in logs))
            during = jobs.is_taking
        await run_sql(database_url, "alter table away rename to jobs")

    assert (before, during, jobs.is_taking) == (False, True, False)


PROCESS = Process(ProcessId(UUID(int=1)), ProcessKind.WORKER, "host:1:00000001", "0.1.0")


class SteppedClock:
    """A clock on which each sleeper waits until it is moved on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._moved = asyncio.Event()
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        until_seconds = self.seconds + seconds
        self.sleeps += 1
        while self.seconds < until_seconds:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        """Move on; each sleeper has come to the next sleep afterwards."""
        await until(lambda: self.sleeps > 0)
        before = self.sleeps
        self.seconds += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        await until(lambda: self.sleeps > before)


@dataclass
class Beating:
    heartbeats: ProcessHeartbeats
    clock: SteppedClock
    state: ProcessState


@asynccontextmanager
async def beating(database: Database) -> AsyncGenerator[Beating]:
    clock = SteppedClock()
    state = ProcessState(500, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=True)
    stage = Beating(
        ProcessHeartbeats(database.processes, PROCESS, lambda: stage.state, clock),  # type: ignore[arg-type]  # no wall time
        clock,
        state,
    )
    task = asyncio.create_task(stage.heartbeats.run())
    try:
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def rows(url: str) -> list[tuple[object, ...]]:
    return await run_sql(url, "select is_claiming, open_turns from processes")


async def test_a_process_tells_of_itself_at_its_start_and_then_by_the_clock(
    database: Database, database_url: str
) -> None:
    async with beating(database) as stage:
        await until(lambda: stage.clock.sleeps > 0)
        at_start = await rows(database_url)
        stage.state = replace(stage.state, open_turns=3)
        await stage.clock.advance(HEARTBEAT_SECONDS / 2)
        between = await rows(database_url)
        await stage.clock.advance(HEARTBEAT_SECONDS / 2)
        at_its_time = await rows(database_url)

    assert at_start == between == [(False, 0)]
    assert at_its_time == [(False, 3)]


async def test_a_process_that_begins_to_take_turns_says_so_at_once(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        stage.state = replace(stage.state, is_claiming=True)
        await stage.clock.advance(0.5)
        found = await rows(database_url)

    assert found == [(True, 0)]


async def test_a_heartbeat_that_fails_is_made_up_for_by_the_next(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        await until(lambda: stage.clock.sleeps > 0)
        await run_sql(database_url, "alter table processes rename to elsewhere")
        await stage.clock.advance(HEARTBEAT_SECONDS)
        await run_sql(database_url, "alter table elsewhere rename to processes")
        await run_sql(database_url, "truncate processes")
        await stage.clock.advance(HEARTBEAT_SECONDS)
        found = await rows(database_url)

    assert found == [(False, 0)]


async def test_the_end_of_a_process_does_not_fail_over_its_row(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        await until_found(lambda: rows(database_url))
    await run_sql(database_url, "alter table processes rename to elsewhere")

    await stage.heartbeats.forget()
    await run_sql(database_url, "alter table elsewhere rename to processes")
    left = await rows(database_url)
    await stage.heartbeats.forget()

    assert left == [(False, 0)]
    assert await rows(database_url) == []


@pytest.mark.parametrize(("count", "characters"), [(20, 3_000), (10, 20_000), (3, 60_000)])
async def test_a_quick_search_asks_for_the_index_of_long_texts_that_it_leaves_out(
    database: Database, database_url: str, count: int, characters: int
) -> None:
    conversation = await open_conversation(database)
    await conversation.say(*["word " * (characters // 5)] * count)
    query = HistoryQuery("parcel", 1, is_before_turn=True, is_plain=True)

    await database.history.search(conversation.owner_id, conversation.session.id, query)

    assert await run_sql(database_url, JOBS) == [("index_owner", str(conversation.owner_id), conversation.owner_id)]
