"""How often a job was tried: counted before it is begun, and written down when it goes back into the line.

PgQueuer's own retry always counts as a try and leaves the job at the head of the line; that a process died counts as
nothing. `attempts` is ours therefore: how often the job was begun and neither ended nor handed back.

Every statement names the holder too: a process that was frozen for so long that another took its job changes nothing.
Those that end a job name how often it was begun as well: the same process may have taken it once more.
"""

import json

from pgqueuer.models import Job as QueuedJob
from pgqueuer.ports.driver import Driver

from throughline.db.jobs.names import queue_names
from throughline.db.jobs.queue import Again, Ending, Job, TakenJob

_FAILURES, _RESTED = "failures", "rested"
CONTINUED = -1
"""The priority of a further round: of a long history, say, behind the next summary of all others."""

_TABLE = queue_names().qualified.queue_table
_LOG = queue_names().qualified.queue_table_log
_STATUS = queue_names().qualified.queue_status_type
_BEGIN = f"""
    update {_TABLE} set attempts = attempts + 1, headers = headers - 'again' where id = $1 and queue_manager_id = $2
"""  # noqa: S608  # our name
# Whoever asked again until here is answered by the work that begins now.
_HAND_BACK = f"""
    update {_TABLE} set id = nextval(pg_get_serial_sequence('{_TABLE}', 'id')), status = 'queued',
        queue_manager_id = null, slot = null, created = now(), updated = now(), execute_after = now() + $3::interval,
        attempts = $4, headers = $5::jsonb, priority = $6
    where id = $1 and queue_manager_id = $2 and attempts <= $7
"""  # noqa: S608  # our name
# Jobs are taken by priority, then by id: with a new one it stands behind all that wait.
_REMOVE = f"""
    with held as materialized (
        select id, entrypoint, priority, coalesce(headers ? 'again', false) as is_asked_again from {_TABLE}
        where id = $1 and queue_manager_id = $2 and attempts <= $4 for update
    ), gone as (
        delete from {_TABLE} q using held where q.id = held.id and not held.is_asked_again
    ), again as (
        update {_TABLE} q set id = nextval(pg_get_serial_sequence('{_TABLE}', 'id')), status = 'queued',
            queue_manager_id = null, slot = null, created = now(), updated = now(), execute_after = now(),
            attempts = 0, headers = jsonb_build_object(), priority = 0
        from held where q.id = held.id and held.is_asked_again
    )
    insert into {_LOG} (job_id, status, entrypoint, priority)
    select id, cast($3 as {_STATUS}), entrypoint, priority from held
"""  # noqa: S608  # our names
# The row is locked before it is looked at: who asks for the job either is seen, or finds it gone and puts in a new one.


def read_taken(queued: QueuedJob) -> TakenJob:
    """Return the job as those see it who do it."""
    failures, rested = ((queued.headers or {}).get(name, 0) for name in (_FAILURES, _RESTED))
    return TakenJob(
        Job(queued.entrypoint, (queued.payload or b"").decode(errors="replace")),
        failures=failures if isinstance(failures, int) else 0,
        lost=queued.attempts,
        is_continued=queued.priority < 0,
        rested_after=rested if isinstance(rested, int) else 0,
    )


async def begin(driver: Driver, queued: QueuedJob) -> None:
    """Count that the job is begun: if nobody hands it back or ends it, it is one that was cut off."""
    await driver.execute(_BEGIN, queued.id, queued.queue_manager_id)


async def end(driver: Driver, queued: QueuedJob, ending: Ending) -> None:
    """Take the job out of the queue, or put it at the end of the line; one that another has taken over is left to it.

    One that was asked for while it was done is as good as new, and back in the line. Doing this twice does it once.
    """
    most_begun = queued.attempts + 1
    if not isinstance(ending, Again):
        status = "successful" if ending is None else "exception"
        await driver.execute(_REMOVE, queued.id, queued.queue_manager_id, status, most_begun)
        return
    headers = json.dumps({_FAILURES: ending.failures, _RESTED: ending.rested_after})
    priority = CONTINUED if ending.is_continued else 0
    again = (ending.delay, ending.lost, headers, priority)
    await driver.execute(_HAND_BACK, queued.id, queued.queue_manager_id, *again, most_begun)
