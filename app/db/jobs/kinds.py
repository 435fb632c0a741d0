"""The kinds of jobs that are put in line inside this package, as part of what makes them due."""

from app.db.jobs.queue import Job
from app.domain.ids import SessionId

PREPARE_SUMMARY = "prepare_summary"


def summary_job(session_id: SessionId) -> Job:
    """Return the job that prepares the session's next summary."""
    return Job(PREPARE_SUMMARY, str(session_id))
