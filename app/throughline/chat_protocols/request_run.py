"""The run that a request has begun, and that may end with the request's client."""

import asyncio
from dataclasses import dataclass

import structlog

from throughline.domain.run import Run
from throughline.execution.error_boundary import ErrorBoundary
from throughline.http.call import Call

_CANCELLING: set[asyncio.Task[None]] = set()
"""Tasks that are not finished; without a reference asyncio may drop one."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RequestRun:
    """The run of a request. If `ends_with_client`, it is cancelled when the request ends before it."""

    call: Call
    run: Run
    ends_with_client: bool
    has_ended: bool = False

    def close(self) -> None:
        """Ask a bound run that has not ended to stop, without waiting for it: the request may be cancelled itself."""
        if not self.ends_with_client or self.has_ended:
            return
        task = asyncio.create_task(self._cancel(), name="cancel abandoned run")
        _CANCELLING.add(task)
        task.add_done_callback(_CANCELLING.discard)

    async def _cancel(self) -> None:
        with ErrorBoundary(log.warning, "abandoned run not cancelled", run_id=str(self.run.id)):
            await self.call.services.database.runs.request_cancel(self.call.owner_id, self.run.id)
