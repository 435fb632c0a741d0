"""Heartbeats: one statement for all leases of a process, and each turn finds out what concerns it."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from fakes.beat_store import BeatStore
from fakes.conversations import open_conversation
from fakes.raw_sql import hold_rows, run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.run import RowLease
from throughline.execution.heartbeats import Heartbeat, Heartbeats, StopReason

SHORT_SECONDS, LONG_SECONDS = 0.06, 600.0
UNREACHABLE = DatabaseUnavailable("The database does not answer.")


def new_lease() -> RowLease:
    return RowLease(uuid.uuid4(), 1)


def heartbeats_over(store: BeatStore, lease_seconds: float) -> Heartbeats[RowLease]:
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
    store, leases = BeatStore(), [new_lease() for _ in range(300)]
    heartbeats = heartbeats_over(store, SHORT_SECONDS)

    async with watching(*(heartbeats.of(lease) for lease in leases)):
        await store.called(2)

    assert store.calls[:2] == [frozenset(leases)] * 2


async def test_a_lease_watched_no_more_is_not_renewed_and_the_last_one_ends_the_beating() -> None:
    store, first, second = BeatStore(), new_lease(), new_lease()
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
    store, mine, other = BeatStore(), new_lease(), new_lease()
    store.cancelled = {mine, other}
    heartbeats = heartbeats_over(store, LONG_SECONDS)
    heartbeat = heartbeats.of(mine)

    async with watching(heartbeat, heartbeats.of(other)) as (told, untold):
        heartbeat.renew_now()
        assert await told is StopReason.CANCEL_REQUESTED
        assert not untold.done()

    assert store.calls == [{mine}]


async def test_a_heartbeat_hurried_before_it_is_watched_asks_at_once() -> None:
    store, mine, other = BeatStore(), new_lease(), new_lease()
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
    store = BeatStore(failures=[UNREACHABLE, RuntimeError("no error of ours"), *[UNREACHABLE] * 20])
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
    store, lease = BeatStore(failures=[UNREACHABLE] * 5), new_lease()
    store.lost = {lease}

    async with watching(heartbeats_over(store, SHORT_SECONDS).of(lease)) as (task,):
        assert await task is StopReason.LEASE_LOST

    assert len(store.calls) == 6


async def test_a_lease_is_held_on_to_while_an_end_is_stored_whoever_wants_to_stop_it() -> None:
    store, lease = BeatStore(), new_lease()
    store.cancelled = {lease}
    holding = asyncio.create_task(heartbeats_over(store, SHORT_SECONDS).of(lease).hold())

    await store.called(5)
    is_over = holding.done()
    store.lost = {lease}
    async with asyncio.timeout(HANG_SECONDS):
        await holding

    assert not is_over


async def test_a_row_that_is_locked_for_a_moment_is_renewed_in_the_same_beat() -> None:
    store, lease = BeatStore(locked=1), new_lease()
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


async def test_however_many_ask_for_a_beat_of_their_own_all_leases_are_renewed_in_time() -> None:
    store, hurried, calm = BeatStore(), new_lease(), new_lease()
    heartbeats = heartbeats_over(store, SHORT_SECONDS)
    restless = heartbeats.of(hurried)

    async with watching(restless, heartbeats.of(calm)):
        while sum(calm in call for call in store.calls) < 5:
            restless.renew_now()
            await asyncio.sleep(0)

    assert len(store.calls) > 5
