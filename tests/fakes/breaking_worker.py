"""The service with a claim loop that breaks once it has claimed: `python -m fakes.breaking_worker worker …`."""

import app.assembly.runtime
import app.main
from app.domain.run import ClaimedRun
from app.worker.worker import Worker


class BreakingWorker(Worker):
    """A worker with a defect in its claim loop."""

    def start(self, claimed: ClaimedRun) -> None:
        """Fail as no statement does, past everything that the loop expects."""
        raise RuntimeError(f"a defect met with run {claimed.run.id}")


def main() -> None:
    """Run the command line of the service with it."""
    app.assembly.runtime.Worker = BreakingWorker  # type: ignore[attr-defined]  # by this name open_runtime makes it
    app.main.main()
