"""Maintenance of the search index in the background.

Messages of turns are indexed on a schedule. An import, and a search that ran out of time, queue a job. A search indexes
remaining messages itself for a limited time and reports what is missing.
"""

from datetime import timedelta
from uuid import UUID

import structlog

from throughline.db.jobs.kinds import INDEX_HISTORY
from throughline.db.jobs.queue import Schedule
from throughline.db.search.repository import SearchRepository
from throughline.domain.ids import UserId
from throughline.execution.compute_threads import work_for
from throughline.execution.error_boundary import ErrorBoundary
from throughline.worker.jobs import NotDone

EVERY = timedelta(minutes=5)
LOOK_BACK_MINUTES = 60
"""Sessions with a run in this period are indexed: twelve schedule periods, so that missed runs are made up for."""

log = structlog.get_logger(__name__)


async def index_owner(history: SearchRepository, subject: str) -> NotDone | None:
    """Index due messages of the owner named by `subject`, in rounds between which other jobs may run.

    Texts are tokenized on the owner's one compute thread, which searches and turns share. Raises DatabaseUnavailable.
    """
    owner_id = UserId(UUID(subject))
    work_for(owner_id)
    messages, is_more_due = await history.index_owner(owner_id)
    if messages:
        log.info("history indexed", owner_id=str(owner_id), messages=messages)
    return NotDone(has_failed=not messages) if is_more_due else None


class Indexing:
    """Indexes messages of the last hour's turns. Concurrent processes index each message once."""

    def __init__(self, history: SearchRepository) -> None:
        self._history = history

    async def run(self) -> None:
        """Index the sessions with unindexed messages one by one; a failing session does not stop the others."""
        messages = 0
        sessions = await self._history.sessions_to_index(LOOK_BACK_MINUTES)
        for session_id in sessions:
            with ErrorBoundary(log.warning, "session indexing failed", session_id=str(session_id)):
                messages += await self._history.index_session(session_id)
        if messages:
            log.info("history indexed", sessions=len(sessions), messages=messages)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return how often the worker looks for sessions with messages that are not in the search index."""
        return (Schedule(INDEX_HISTORY, EVERY, self.run),)
