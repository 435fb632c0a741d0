"""The kinds of jobs there are, and those that are put in line inside this package, as part of what makes them due."""

from throughline.db.jobs.queue import ASK_AGAIN, Job
from throughline.domain.ids import SessionId, UserId

PREPARE_SUMMARY = "prepare_summary"
EMBED_MEMORIES = "embed_memories"
INDEX_OWNER = "index_owner"
KINDS = (PREPARE_SUMMARY, EMBED_MEMORIES, INDEX_OWNER)
"""All that this version does in one process or another."""


def summary_job(session_id: SessionId) -> Job:
    """Return the job that prepares the session's next summary."""
    return Job(PREPARE_SUMMARY, str(session_id))


def index_job(owner_id: UserId) -> Job:
    """Return the job that indexes the history of the owner."""
    return Job(INDEX_OWNER, str(owner_id))


ENQUEUE_SUMMARY = f"""
    insert into throughline_jobs.pgqueuer as job (priority, entrypoint, payload, dedupe_key, headers, status)
    select 0, '{PREPARE_SUMMARY}', convert_to(cast(ended.session_id as text), 'UTF8'),
        '{PREPARE_SUMMARY}:' || cast(ended.session_id as text), jsonb_build_object(), 'queued' from ended
    {ASK_AGAIN}
"""  # noqa: S608  # our own name
"""What `enqueue_job` does with the summary job of each session in `ended`, as a part of another statement.

Only for statements that have something to put in line: PgQueuer's trigger notifies for each insert, also of no row.
"""
