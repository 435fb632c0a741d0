"""The service with a claim loop that breaks once it has claimed: `python -m fakes.breaking_worker worker …`."""

from collections.abc import Iterator, Sequence

import throughline.assembly.runtime
import throughline.main
from throughline.domain.run import ClaimedRun, RowLease
from throughline.execution.lease_loop import Claims
from throughline.turn.worker.worker import Worker


class _Defect(tuple[ClaimedRun, ...]):
    """Claimed runs that cannot be looked at."""

    __slots__ = ()

    def __iter__(self) -> Iterator[ClaimedRun]:
        """Fail as no statement does, past everything that the loop expects."""
        raise RuntimeError(f"a defect met with {len(self)} run")


class BreakingWorker(Worker):
    """A worker with a defect in its claim loop."""

    async def claim(self, late: Sequence[RowLease]) -> Claims[ClaimedRun]:
        """Claim, and break the loop with what was claimed."""
        claimed = await super().claim(late)
        return Claims(_Defect(claimed.rows)) if claimed.rows else claimed


def main() -> None:
    """Run the command line of the service with it."""
    throughline.assembly.runtime.Worker = BreakingWorker  # type: ignore[attr-defined]  # by this name open_runtime makes it
    throughline.main.main()
