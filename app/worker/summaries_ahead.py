"""The job that writes a session's next summary ahead.

What is lost of it is only time: the turn that needs a summary which is not there writes it itself.
"""

from uuid import UUID

import structlog

from app.db.jobs.queue import Job
from app.domain.errors import NotFound
from app.domain.ids import SessionId
from app.summary.prepare import prepare_next
from app.turn.state import TurnParts

PREPARE_SUMMARY = "prepare_summary"
MOST_IN_A_ROW = 3
"""Summaries one job writes: turns that ended while it was at work found it there and put no further job in line."""

log = structlog.get_logger(__name__)


def summary_job(session_id: SessionId) -> Job:
    """Return the job that prepares the session's next summary."""
    return Job(PREPARE_SUMMARY, str(session_id))


async def prepare_summary(parts: TurnParts, subject: str) -> None:
    """Prepare what is due for the session named by `subject`, and look again. Finds nothing to do the second time."""
    session_id = SessionId(UUID(subject))
    try:
        loaded = await parts.messages.load_context(session_id, None, max_tokens=1)
    except NotFound:
        log.info("session of a job is gone", session_id=subject)
        return
    for _ in range(MOST_IN_A_ROW):
        if not await prepare_next(parts, loaded.session):
            return
