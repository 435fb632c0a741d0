"""Heartbeats: one statement for all leases of a process, and each turn finds out what concerns it."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fakes.conversations import open_conversation
from fakes.raw_sql import hold_rows, run_sql
from fakes.waiting import HANG_SECONDS, until
from throughline.db.database import Database
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.run import LeaseRenewal, RowLease
from throughline.execution.lease_loop import (
    Claims,
    Heartbeat,
    Heartbeats,
    LeaseLoop,
    LoopConfig,
    StopReason,
    work_until_lost,
)


class LeaseStore:
    """Renews every lease; `failures` are raised one by one instead, `locked` says how often a row is passed over."""

    def __init__(self, *, failures: list[Exception] | None = None, locked: int = 0) -> None:
        self.calls: list[frozenset[RowLease]] = []
        self.cancelled: set[RowLease] = set()
        self.lost: set[RowLease] = set()
        self._failures = failures or []
        self._locked = locked
        self._called = asyncio.Event()

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        del lease_seconds
        self.calls.append(frozenset(leases))
        self._called.set()
        if self._failures:
            raise self._failures.pop(0)
        self._locked -= 1
        is_free = self._locked < 0
        return {lease: LeaseRenewal(lease in self.cancelled, is_free) for lease in leases if lease not in self.lost}

    async def called(self, times: int) -> None:
        """Return once there were so many calls in all."""
        while len(self.calls) < times:
            self._called.clear()
            await self._called.wait()


SHORT_SECONDS, LONG_SECONDS = 0.06, 600.0
UNREACHABLE = DatabaseUnavailable("The database does not answer.")


def new_lease() -> RowLease:
    return RowLease(uuid.uuid4(), 1)


def heartbeats_over(store: LeaseStore, lease_seconds: float) -> Heartbeats[RowLease]:
    return Heartbeats(store.renew, lease_seconds)


@asynccontextmanager
async def watching(*heartbeats: Heartbeat[RowLease]) -> AsyncGenerator[list[asyncio.Task[StopReason]]]:
    tasks = [asyncio.create_task(heartbeat.watch()) for heartbeat in heartbeats]
    await asyncio.sleep(0)
    async with asyncio.timeout(HANG_SECONDS):
        yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_three_hundred_leases_are_renewed_by_one_statement() -> None:
    store, leases = LeaseStore(), [new_lease() for _ in range(300)]
    heartbeats = heartbeats_over(store, SHORT_SECONDS)

    async with watching(*(heartbeats.of(lease) for lease in leases)):
        await store.called(2)

    assert store.calls[:2] == [frozenset(leases)] * 2


async def test_a_lease_watched_no_more_is_not_renewed_and_the_last_one_ends_the_beating() -> None:
    store, first, second = LeaseStore(), new_lease(), new_lease()
    heartbeats = heartbeats_over(store, SHORT_SECONDS)

    async with watching(heartbeats.of(first)):
        async with watching(heartbeats.of(second)):
            await store.called(1)
        calls = len(store.calls)
        await store.called(calls + 2)
    while any(task.get_name() == "heartbeat" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)

    assert store.calls[calls + 1] == {first}


async def test_a_hurried_heartbeat_asks_at_once_and_for_its_own_lease_only() -> None:
    store, mine, other = LeaseStore(), new_lease(), new_lease()
    store.cancelled = {mine, other}
    heartbeats = heartbeats_over(store, LONG_SECONDS)
    heartbeat = heartbeats.of(mine)

    async with watching(heartbeat, heartbeats.of(other)) as (told, untold):
        heartbeat.renew_now()
        assert await told is StopReason.CANCEL_REQUESTED
        assert not untold.done()

    assert store.calls == [{mine}]


async def test_a_heartbeat_hurried_before_it_is_watched_asks_at_once() -> None:
    store, mine, other = LeaseStore(), new_lease(), new_lease()
    store.lost = {mine}
    heartbeats = heartbeats_over(store, LONG_SECONDS)
    heartbeat = heartbeats.of(mine)

    async with watching(heartbeats.of(other)):
        heartbeat.renew_now()
        await asyncio.sleep(0)
        async with watching(heartbeat) as (told,):
            assert await told is StopReason.LEASE_LOST


@pytest.mark.slow
async def test_a_database_that_is_away_for_long_costs_no_lease_that_nobody_took_over() -> None:
    store = LeaseStore(failures=[UNREACHABLE, RuntimeError("no error of ours"), *[UNREACHABLE] * 20])
    lease = new_lease()
    heartbeats = heartbeats_over(store, SHORT_SECONDS)
    heartbeat = heartbeats.of(lease)

    async with watching(heartbeat) as (task,):
        await store.called(15)
        is_late = heartbeats.late() == (lease,)
        await store.called(25)
        assert not task.done()

    assert is_late


async def test_a_lease_that_was_taken_over_while_the_database_was_away_is_lost() -> None:
    store, lease = LeaseStore(failures=[UNREACHABLE] * 5), new_lease()
    store.lost = {lease}

    async with watching(heartbeats_over(store, SHORT_SECONDS).of(lease)) as (task,):
        assert await task is StopReason.LEASE_LOST

    assert len(store.calls) == 6


async def test_a_lease_is_held_on_to_while_an_end_is_stored_for_all_that_would_stop_it() -> None:
    store, lease = LeaseStore(), new_lease()
    store.cancelled = {lease}
    holding = asyncio.create_task(heartbeats_over(store, SHORT_SECONDS).of(lease).hold())

    await store.called(5)
    is_over = holding.done()
    store.lost = {lease}
    async with asyncio.timeout(HANG_SECONDS):
        await holding

    assert not is_over


async def test_a_row_that_is_locked_for_a_moment_is_renewed_by_the_same_heartbeat() -> None:
    store, lease = LeaseStore(locked=1), new_lease()
    heartbeat = heartbeats_over(store, LONG_SECONDS).of(lease)

    async with watching(heartbeat) as (task,):
        heartbeat.renew_now()
        await store.called(2)
        assert not task.done()

    assert heartbeat.is_renewed


@pytest.mark.parametrize("locks", ["for share", "for update"])
async def test_one_locked_run_keeps_no_other_lease_from_being_renewed(
    database: Database, database_url: str, locks: str
) -> None:
    first, second = await open_conversation(database), await open_conversation(database)
    held, free = (await first.start()).lease, (await second.start()).lease
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 hour'")

    async with hold_rows(database_url, f"select from runs where id = '{held.run_id}' {locks}"):
        pulses = await database.runs.renew([held, free], 10)
    afterwards = await database.runs.renew([held, free], 10)

    assert (pulses[held].is_renewed, pulses[free].is_renewed) == (False, True)
    assert all(pulse.is_renewed for pulse in afterwards.values())


async def test_each_lease_is_told_what_became_of_its_own_run(database: Database) -> None:
    kept, cancelled, ended = [await open_conversation(database) for _ in range(3)]
    leases = [(await conversation.start()).lease for conversation in (kept, cancelled, ended)]
    await database.runs.request_cancel(cancelled.owner_id, leases[1].run_id)
    await ended.end(leases[2])
    heartbeats = Heartbeats(database.runs.renew, 0.3)

    async with watching(*(heartbeats.of(lease) for lease in leases)) as (first, second, third):
        assert await second is StopReason.CANCEL_REQUESTED
        assert await third is StopReason.LEASE_LOST
        assert not first.done()


async def test_however_many_ask_for_their_own_heartbeat_all_leases_are_renewed_in_time() -> None:
    store, hurried, calm = LeaseStore(), new_lease(), new_lease()
    heartbeats = heartbeats_over(store, SHORT_SECONDS)
    restless = heartbeats.of(hurried)

    async with watching(restless, heartbeats.of(calm)):
        while sum(calm in call for call in store.calls) < 5:
            restless.renew_now()
            await asyncio.sleep(0)

    assert len(store.calls) > 5


AWAY = DatabaseUnavailable("The database does not answer.")


@dataclass(frozen=True, slots=True)
class Row:
    lease: RowLease = field(default_factory=lambda: RowLease(uuid.uuid4(), 1))


@dataclass
class Rows:
    """Work that never ends; `answers` are the claims one by one, nothing afterwards."""

    answers: list[Sequence[Row] | Exception]
    claims: list[Sequence[RowLease]] = field(default_factory=list)
    given_back: list[Row] = field(default_factory=list)

    async def claim(self, late: Sequence[RowLease]) -> Claims[Row]:
        self.claims.append(late)
        answer = self.answers.pop(0) if self.answers else ()
        if isinstance(answer, Exception):
            raise answer
        return Claims(answer, may_have_left=bool(answer))

    async def perform(self, claimed: Row, heartbeat: Heartbeat[RowLease]) -> None:
        del claimed
        await work_until_lost(asyncio.Event().wait(), heartbeat)

    async def put_back(self, claimed: Row) -> None:
        self.given_back.append(claimed)

    def ended(self, claimed: Row) -> None:
        pass


@dataclass
class AlwaysWoken:
    """A signal that ends each wait at once; `after` says how many claims had been made before each."""

    polls_alone = False
    work: Rows
    after: list[int] = field(default_factory=list)

    async def wait(self, timeout_seconds: float) -> bool:
        del timeout_seconds
        self.after.append(len(self.work.claims))
        await asyncio.sleep(0)
        return True

    def wake(self) -> None:
        pass


async def renew_nothing(leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
    del leases, lease_seconds
    raise AWAY


async def test_after_an_unanswered_claim_no_signal_makes_the_loop_claim_sooner() -> None:
    work = Rows([AWAY, AWAY])
    signal = AlwaysWoken(work)
    loop = LeaseLoop(work, Heartbeats(renew_nothing, 30.0), signal, LoopConfig(HANG_SECONDS, after_outage_seconds=0.01))

    async with loop.running("test"):
        await until(lambda: len(signal.after) > 1)

    assert signal.after[:2] == [3, 4]


async def test_a_loop_closed_after_an_unanswered_claim_ends_at_once() -> None:
    work = Rows([AWAY])
    loop = LeaseLoop(work, Heartbeats(renew_nothing, 30.0), AlwaysWoken(work), LoopConfig(1, after_outage_seconds=3600))

    async with asyncio.timeout(HANG_SECONDS), loop.running("test"):
        await until(lambda: bool(work.claims))

    assert len(work.claims) == 1


async def test_a_row_whose_lease_was_not_renewed_in_time_is_named_to_the_claim() -> None:
    row = Row()
    work = Rows([(row,)])
    loop = LeaseLoop(work, Heartbeats(renew_nothing, 0.1), AlwaysWoken(work), LoopConfig(1))

    async with loop.running("test"):
        await until(lambda: work.claims[-1:] == [(row.lease,)])

    assert work.claims[0] == ()


@dataclass
class Ending(Rows):
    """Work that ends when its row is among `ended_rows`; a claim is answered once `may_answer` is set."""

    ends: dict[Row, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def claim(self, late: Sequence[RowLease]) -> Claims[Row]:
        claimed = await super().claim(late)
        await self.may_answer.wait()
        return claimed

    async def perform(self, claimed: Row, heartbeat: Heartbeat[RowLease]) -> None:
        del heartbeat
        await self.ends[claimed].wait()


def loop_of(work: Rows) -> LeaseLoop[Row]:
    heartbeats = Heartbeats(renew_nothing, HANG_SECONDS)
    return LeaseLoop(work, heartbeats, AlwaysWoken(work), LoopConfig(poll_seconds=HANG_SECONDS))


async def test_work_stopped_before_its_first_step_is_put_back() -> None:
    work, row = Ending([]), Row()
    loop = loop_of(work)

    loop.begin(row)
    loop.stop()
    await until(lambda: not loop.held)

    assert work.given_back == [row]


async def test_work_begun_during_a_drain_has_the_rest_of_the_grace() -> None:
    work, first, second = Ending([]), Row(), Row()
    loop = loop_of(work)

    loop.begin(first)
    draining = asyncio.create_task(loop.drain(HANG_SECONDS))
    await asyncio.sleep(0)
    loop.begin(second)
    work.ends[first].set()
    await until(lambda: loop.held == (second,))
    for _ in range(10):
        await asyncio.sleep(0)
    work.ends[second].set()
    await asyncio.wait_for(draining, HANG_SECONDS)

    assert work.given_back == []


async def test_a_claim_answered_while_the_loop_ends_is_put_back() -> None:
    row = Row()
    work = Ending([(row,)])
    loop = loop_of(work)

    async with loop.running("rows"):
        await until(lambda: bool(work.claims))
        asyncio.get_running_loop().call_later(0.05, work.may_answer.set)

    assert work.given_back == [row]
