"""The loop of leased work: what it claims again after an outage, and when."""

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fakes.waiting import HANG_SECONDS, until
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.lease import RowLease
from throughline.domain.run import LeaseRenewal
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
        pass

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
