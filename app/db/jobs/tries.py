"""How often a job was tried: counted before it is begun, and written down when it goes back into the line.

PgQueuer's own retry always counts as a try and leaves the job at the head of the line; that a process died counts as
nothing. `attempts` is ours therefore: how often the job was begun and neither ended nor handed back.
"""

import json

from pgqueuer import AsyncpgDriver
from pgqueuer.models import Job as QueuedJob

from app.db.jobs.names import queue_names
from app.db.jobs.queue import Again, Job, TakenJob

_FAILURES = "failures"
CONTINUED = -1
"""The priority of a further round: of a long history, say, behind the next summary of all others."""

_TABLE = queue_names().qualified.queue_table
_BEGIN = f"update {_TABLE} set attempts = attempts + 1 where id = $1 and queue_manager_id = $2"  # noqa: S608  # our name
_HAND_BACK = f"""
    update {_TABLE} set id = nextval(pg_get_serial_sequence('{_TABLE}', 'id')), status = 'queued',
        queue_manager_id = null, slot = null, created = now(), updated = now(), execute_after = now() + $3::interval,
        attempts = $4, headers = $5::jsonb, priority = $6
    where id = $1 and queue_manager_id = $2
"""  # noqa: S608  # our name
# Jobs are taken by priority, then by id: with a new one it stands behind all that wait. Of the old one PgQueuer finds
# nothing to delete.


def read_taken(queued: QueuedJob) -> TakenJob:
    """Return the job as those see it who do it."""
    failures = (queued.headers or {}).get(_FAILURES, 0)
    return TakenJob(
        Job(queued.entrypoint, (queued.payload or b"").decode(errors="replace")),
        failures=failures if isinstance(failures, int) else 0,
        lost=queued.attempts,
        is_continued=queued.priority < 0,
    )


async def begin(driver: AsyncpgDriver, queued: QueuedJob) -> None:
    """Count that the job is begun: if nobody hands it back or ends it, it is one that was cut off."""
    await driver.execute(_BEGIN, queued.id, queued.queue_manager_id)


async def hand_back(driver: AsyncpgDriver, queued: QueuedJob, again: Again) -> None:
    """Put the job at the end of the line; one that another process has taken over meanwhile is left to it."""
    headers = json.dumps({_FAILURES: again.failures})
    priority = CONTINUED if again.is_continued else 0
    await driver.execute(_HAND_BACK, queued.id, queued.queue_manager_id, again.delay, again.lost, headers, priority)
