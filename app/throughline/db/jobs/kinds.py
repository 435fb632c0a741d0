"""The kinds of side jobs, and the jobs that the package `db` itself queues in the transaction that makes them due."""

from throughline.db.jobs.queue import ASK_AGAIN, Job
from throughline.domain.ids import SessionId, UserId

PREPARE_SUMMARY = "prepare_summary"
EMBED_MEMORIES = "embed_memories"
EMBED_HISTORY = "embed_history"
INDEX_OWNER = "index_owner"
RETENTION = "retention"
UNUSED_SUMMARIES = "unused_summaries"
ARCHIVED_SESSIONS = "archived_sessions"
INDEX_HISTORY = "index_history"
FIND_UNEMBEDDED = "find_unembedded"
EXPIRED_WAITS = "expired_waits"
EXPIRED_SESSIONS = "expired_sessions"
BY_THE_CLOCK = (
    RETENTION,
    UNUSED_SUMMARIES,
    ARCHIVED_SESSIONS,
    INDEX_HISTORY,
    FIND_UNEMBEDDED,
    EXPIRED_WAITS,
    EXPIRED_SESSIONS,
)
KINDS = (PREPARE_SUMMARY, EMBED_MEMORIES, EMBED_HISTORY, INDEX_OWNER, *BY_THE_CLOCK)
"""All job kinds that this version knows."""


def summary_job(session_id: SessionId, owner_id: UserId) -> Job:
    """Return the job that prepares the session's next summary."""
    return Job(PREPARE_SUMMARY, str(session_id), owner_id)


def index_job(owner_id: UserId) -> Job:
    """Return the job that indexes the owner's message history."""
    return Job(INDEX_OWNER, str(owner_id), owner_id)


ENQUEUE_SUMMARY = f"""
    insert into jobs as job (kind, subject, owner_id)
    select '{PREPARE_SUMMARY}', cast(due.session_id as text), due.owner_id from due {ASK_AGAIN}
"""  # noqa: S608  # our own name
"""SQL fragment that queues the summary job for each session in the CTE `due`, as `enqueue_job` does."""

ENQUEUE_INDEXING = f"""
    insert into jobs as job (kind, subject, owner_id)
    select '{INDEX_OWNER}', cast(due.owner_id as text), due.owner_id from due {ASK_AGAIN}
"""  # noqa: S608  # our own name
"""SQL fragment that queues the indexing job for the owner in the one row of the CTE `due`, as `enqueue_job` does."""
