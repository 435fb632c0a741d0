"""Claims of several runs in one statement: as fair as claims of one run each, and exact with many claimers at once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest

from fakes.conversations import CLAIMER, claim_next, open_conversation
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import hold_rows, run_sql
from fakes.single_claims import CLAIM_ONE
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.claim import claim_runs
from throughline.domain.run import Caps, ClaimedRun, Claimer

SPACED = 2
"""Attempts of a run whose next attempt is the last one."""

NEW_SESSION = "insert into sessions (id, owner_id, agent, source, metadata) values ($1, $2, 'assistant', 'api', '{}')"
NEW_RUN = """
    insert into runs (id, session_id, owner_id, agent, input, source, status, attempt, fence, worker, lease_until,
        started_at)
    values ($1, $2, $3, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', $4, $5, $5, 'dead',
        case when $4 = 'running' then now() + make_interval(secs => $6) end, now() - make_interval(secs => $7))
"""
SAVE = "create table saved_runs as select * from runs"
RESTORE = """
    with gone as (delete from saved_runs returning *)
    insert into runs overriding system value select * from gone
"""


@pytest.fixture
async def transactions(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))
    yield Transactions(pool)
    await pool.close()


@dataclass(frozen=True)
class Queue:
    """A random queue: the owners' running, waiting, queued and ended runs, some abandoned, some started before."""

    dice: random.Random
    url: str
    owners: Sequence[UUID]

    async def fill(self) -> None:
        """Store the runs of a few sessions of each owner."""
        sessions = [owner for owner in self.owners for _ in range(self.dice.randint(1, 5))]
        rows = []
        for owner in sessions:
            session = uuid4()
            await run_sql(self.url, NEW_SESSION, session, owner)
            first = self.dice.choice(["running", "waiting", "queued", "queued", "queued", "succeeded"])
            others = ["queued"] * self.dice.randint(0, 3)
            rows.append([(session, owner, status) for status in (first, *others)])
        while rows:
            line = self.dice.choice(rows)
            await self._store(*line.pop(0))
            rows = [line for line in rows if line]

    async def _store(self, session: UUID, owner: UUID, status: str) -> None:
        was_started = status != "queued" or self.dice.random() < 0.3
        attempt = self.dice.randint(1, 4) if was_started else 0
        lease_seconds = self.dice.choice([-1.0, -60.0, 600.0])
        started_ago = self.dice.uniform(10, 10_000) if was_started else None
        await run_sql(self.url, NEW_RUN, uuid4(), session, owner, status, attempt, lease_seconds, started_ago)


async def taken_together(
    transactions: Transactions, claimer: Claimer, caps: Caps, sizes: Sequence[int]
) -> list[ClaimedRun]:
    """Return what claims of these sizes take, one after the other, as a worker makes them."""
    taken: list[ClaimedRun] = []
    for size in sizes:
        claimed = await claim_runs(transactions, replace(claimer, most=size), caps)
        taken += claimed.runs
        if any(one.run.attempt > SPACED for one in claimed.runs):
            claimer = replace(claimer, skipped_attempt=SPACED)
    return taken


async def taken_one_by_one(transactions: Transactions, claimer: Claimer, caps: Caps, count: int) -> list[UUID]:
    """Return what so many claims of one run each take, with another last attempt only before the first one."""
    taken: list[UUID] = []
    skipped = claimer.skipped_attempt
    for _ in range(count):
        rows = await transactions.fetch(
            CLAIM_ONE,
            worker=claimer.worker,
            claim_id=uuid4(),
            lease_seconds=claimer.lease_seconds,
            held=list(claimer.held),
            skipped_attempt=skipped,
            max_running_of_owner=caps.running_per_owner,
        )
        if rows and rows[0]["attempt"] > SPACED:
            skipped = SPACED
        taken += [row["id"] for row in rows]
    return taken


@pytest.mark.parametrize("seed", range(40))
async def test_claims_of_several_runs_take_what_single_claims_take_in_their_order(
    database: Database, database_url: str, transactions: Transactions, seed: int
) -> None:
    dice = random.Random(seed)
    owners = [(await open_conversation(database, owner)).owner_id for owner in "abcdef"[: dice.randint(1, 6)]]
    await Queue(dice, database_url, owners).fill()
    abandoned = [row[0] for row in await run_sql(database_url, "select id from runs where lease_until < now()")]
    claimer = Claimer(
        worker="worker",
        lease_seconds=600,
        held=tuple(UUID(str(found)) for found in abandoned if dice.random() < 0.2),
        skipped_attempt=dice.choice([None, SPACED]),
        spaced_attempt=SPACED,
    )
    caps = Caps(running_per_owner=dice.randint(1, 5))
    sizes = [dice.randint(1, 7) for _ in range(4)]
    await run_sql(database_url, SAVE)

    together = await taken_together(transactions, claimer, caps, sizes)
    await run_sql(database_url, "delete from runs")
    await run_sql(database_url, RESTORE)
    one_by_one = await taken_one_by_one(transactions, claimer, caps, sum(sizes))

    assert [one.run.id for one in together] == one_by_one
    await run_sql(database_url, "drop table saved_runs")


class TwiceSent(Transactions):
    """Sends each statement once more after its commit, as after a reply that was lost."""

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        await super().fetch(statement, **parameters)
        return await super().fetch(statement, **parameters)


async def test_a_claim_that_is_sent_again_returns_the_runs_that_it_has_taken(
    database: Database, database_url: str
) -> None:
    runs = [(await (await open_conversation(database)).submit()).run.id for _ in range(6)]
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))

    claimed = await claim_runs(TwiceSent(pool), replace(CLAIMER, most=4, spaced_attempt=0), Caps())
    await pool.close()

    assert [one.run.id for one in claimed.runs] == runs[:4]
    assert [one.run.attempt for one in claimed.runs] == [1] * 4
    assert [one.run.id for one in (await database.runs.claim(replace(CLAIMER, most=9))).runs] == runs[4:]


async def test_a_claim_starts_one_last_attempt_at_most(database: Database) -> None:
    for _ in range(3):
        await (await open_conversation(database)).submit()
    dead = Claimer("dead", lease_seconds=0, most=3)
    for _ in range(2):
        assert len((await database.runs.claim(dead)).runs) == 3
    claimer = replace(CLAIMER, most=9, spaced_attempt=SPACED)

    claimed = [await database.runs.claim(claimer) for _ in range(4)]

    assert [[one.run.attempt for one in one_claim.runs] for one_claim in claimed] == [[3], [3], [3], []]


SLOW_CLAIMS = """
    create function slow_down() returns trigger language plpgsql as
        $$ begin perform pg_sleep(0.005); return new; end $$
"""
SLOW_CLAIM = """
    create trigger slow_down before update of status on runs for each row when (new.status = 'running')
    execute function slow_down()
"""


async def overlap_claims(url: str) -> None:
    """Have each claim take some time, so that the claims of a test overlap."""
    await run_sql(url, SLOW_CLAIMS)
    await run_sql(url, SLOW_CLAIM)


async def claim_until_empty(database: Database, most: Callable[[], int]) -> list[ClaimedRun]:
    """Return all that one claimer takes until it finds the queue empty, and nobody else claiming."""
    taken: list[ClaimedRun] = []
    while True:
        claimed = await database.runs.claim(replace(CLAIMER, most=most()))
        taken += claimed.runs
        if not claimed.runs and not claimed.is_contended:
            return taken


@pytest.mark.parametrize("seed", range(3))
async def test_many_claimers_take_each_run_once_and_leave_none_that_may_start(database_url: str, seed: int) -> None:
    dice = random.Random(seed)
    caps = Caps(running_per_owner=5)
    await overlap_claims(database_url)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=12, caps=caps))
    sessions = Counter({owner: dice.randint(1, 12) for owner in "abcdefgh"})
    conversations = [await open_conversation(database, owner) for owner in sessions.elements()]
    dice.shuffle(conversations)
    for conversation in conversations:
        for _ in range(2):
            await conversation.submit()

    taken = await asyncio.gather(*(claim_until_empty(database, lambda: dice.randint(1, 7)) for _ in range(12)))
    left = await claim_next(database.runs)

    runs = [one.run for of_one in taken for one in of_one]
    running = Counter(run.owner_id for run in runs)
    assert len({run.id for run in runs}) == len({run.session_id for run in runs}) == len(runs)
    assert sorted(running.values()) == sorted(min(count, 5) for count in sessions.values())
    assert left is None
    await database.close()


async def test_a_claim_that_finds_a_run_locked_takes_others_and_says_so(database: Database, database_url: str) -> None:
    first, second = [(await (await open_conversation(database, owner)).submit()).run for owner in ("anna", "bert")]

    async with hold_rows(database_url, f"select 1 from runs where id = '{first.id}' for update"):
        claimed = await database.runs.claim(replace(CLAIMER, most=2))
    after = await database.runs.claim(replace(CLAIMER, most=2))

    assert ([one.run.id for one in claimed.runs], claimed.is_contended) == ([second.id], True)
    assert ([one.run.id for one in after.runs], after.is_contended) == ([first.id], False)


async def test_the_cap_of_an_owner_holds_while_turns_end_and_others_claim(database_url: str) -> None:
    caps = Caps(running_per_owner=3)
    await overlap_claims(database_url)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=9, caps=caps))
    conversations = [await open_conversation(database, "anna") for _ in range(24)]
    for conversation in conversations:
        await conversation.submit()
    by_session = {conversation.session.id: conversation for conversation in conversations}
    running: set[UUID] = set()
    most = 0
    ended = 0

    async def work() -> None:
        nonlocal most, ended
        while ended < len(conversations):
            for one in (await database.runs.claim(replace(CLAIMER, most=4))).runs:
                running.add(one.run.id)
                most = max(most, len(running))
                await asyncio.sleep(0)
                running.discard(one.run.id)
                await by_session[one.run.session_id].end(one.lease)
                ended += 1

    workers: list[Awaitable[None]] = [work() for _ in range(8)]
    async with asyncio.timeout(60):
        await asyncio.gather(*workers)

    assert most <= 3
    await database.close()
