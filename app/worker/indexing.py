"""Keeps the index that history is searched with near what is stored, by the clock and beside the turns.

What it has not got to yet, a search indexes itself: lateness costs that search time, and nothing is missed.
"""

import structlog

from app.db.jobs.queue import Schedule
from app.db.search.repository import SearchRepository
from app.execution.error_boundary import ErrorBoundary

TIMES = "*/5 * * * *"
LOOK_BACK_MINUTES = 60
"""Sessions with a run made since then are looked at: twelve times, so that a time that was missed is made up for."""

IDLE_MINUTES = 5
"""Then the few newest messages are indexed too; before, they would make many small blocks."""

log = structlog.get_logger(__name__)


class Indexing:
    """Indexes what the turns of the last hour have stored. Two processes at once index every message once."""

    def __init__(self, history: SearchRepository) -> None:
        """Index through `history`."""
        self._history = history

    async def run(self) -> None:
        """Index the sessions that have something to index, one after the other; one that fails stops no other."""
        messages = 0
        sessions = await self._history.sessions_to_index(LOOK_BACK_MINUTES, IDLE_MINUTES)
        for session_id in sessions:
            with ErrorBoundary(log.warning, "session was not indexed", session_id=str(session_id)):
                messages += await self._history.index_session(session_id)
        if messages:
            log.info("history indexed", sessions=len(sessions), messages=messages)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return when it is done."""
        return (Schedule("index_history", TIMES, self.run),)
