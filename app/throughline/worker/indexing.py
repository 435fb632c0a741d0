"""Keeps the index that history is searched with near what is stored, beside the turns.

What turns store is indexed by the clock. An import, and a search that could not look at everything, put a job in line.
What neither has got to yet, a search indexes itself for a while, and says what is left.
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
"""Sessions with a run made since then are looked at: twelve times, so that a time that was missed is made up for."""

log = structlog.get_logger(__name__)


async def index_owner(history: SearchRepository, subject: str) -> NotDone | None:
    """Index what is due of the sessions of the owner named by `subject`, in rounds between which other jobs come.

    Texts are tokenized on the owner's one compute thread, which searches and turns share. Raises DatabaseUnavailable.
    """
    owner_id = UserId(UUID(subject))
    work_for(owner_id)
    messages, is_more_due = await history.index_owner(owner_id)
    if messages:
        log.info("history indexed", owner_id=str(owner_id), messages=messages)
    return NotDone(has_failed=not messages) if is_more_due else None


class Indexing:
    """Indexes what the turns of the last hour have stored. Two processes at once index every message once."""

    def __init__(self, history: SearchRepository) -> None:
        """Index through `history`."""
        self._history = history

    async def run(self) -> None:
        """Index the sessions that have something to index, one after the other; one that fails stops no other."""
        messages = 0
        sessions = await self._history.sessions_to_index(LOOK_BACK_MINUTES)
        for session_id in sessions:
            with ErrorBoundary(log.warning, "session was not indexed", session_id=str(session_id)):
                messages += await self._history.index_session(session_id)
        if messages:
            log.info("history indexed", sessions=len(sessions), messages=messages)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return when it is done."""
        return (Schedule(INDEX_HISTORY, EVERY, self.run),)
