"""The service with a claim loop that breaks once it has claimed: `python -m fakes.breaking_worker worker …`."""

import throughline.assembly.runtime
import throughline.main
from throughline.domain.run import ClaimedRun
from throughline.worker.worker import Worker


class BreakingWorker(Worker):
    """A worker with a defect in its claim loop."""

    def start(self, claimed: ClaimedRun) -> None:
        """Fail as no statement does, past everything that the loop expects."""
        raise RuntimeError(f"a defect met with run {claimed.run.id}")


def main() -> None:
    """Run the command line of the service with it."""
    throughline.assembly.runtime.Worker = BreakingWorker  # type: ignore[attr-defined]  # by this name open_runtime makes it
    throughline.main.main()
