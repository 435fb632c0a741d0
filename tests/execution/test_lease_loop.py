"""The loop of leased work: what it claims again after an outage, and when."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fakes.waiting import HANG_SECONDS, until
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.run import LeaseRenewal, RowLease
from throughline.execution.heartbeats import Heartbeat, Heartbeats
from throughline.execution.lease_loop import LeaseLoop, LoopConfig, work_until_lost

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

    async def claim(self, late: Sequence[RowLease]) -> Sequence[Row]:
        self.claims.append(late)
        answer = self.answers.pop(0) if self.answers else ()
        if isinstance(answer, Exception):
            raise answer
        return answer

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

    async def claim(self, late: Sequence[RowLease]) -> Sequence[Row]:
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
