"""Maintenance of the search index in the background, by one job for each user whose messages are not indexed.

An import, the adoption of a summary, and a search that ran out of time enqueue the job at once. A schedule enqueues it
for all other messages. A search indexes remaining messages itself for a limited time and reports what is missing.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import structlog

from throughline.db.jobs.queue import INDEX_HISTORY, Schedule
from throughline.db.search.repository import SearchRepository
from throughline.domain.ids import UserId
from throughline.execution.compute_threads import work_for
from throughline.turn.recall.embed_missing import Rest
from throughline.turn.worker.jobs import NotDone


async def embed_in_rounds(run: Callable[[str], Awaitable[Rest | None]], subject: str) -> NotDone | None:
    """Do one round of an embedding job: call `run` with the job's subject, the name of the embedding model.

    Return None if the job is done, else the pause before its next round. Raises the model's errors, and
    DatabaseUnavailable.
    """
    rest = await run(subject)
    return None if rest is None else NotDone(rest.pause, has_failed=rest.has_failed)


EVERY = timedelta(minutes=5)
log = structlog.get_logger(__name__)


async def index_owner(
    history: SearchRepository, embed_soon: Callable[[], Awaitable[None]] | None, subject: str
) -> NotDone | None:
    """Index due messages of the owner named by `subject`, in rounds between which other jobs may run.

    With an embedding model, `embed_soon` queues the job that embeds the indexed messages. Texts are tokenized on the
    owner's one compute thread, which searches and turns share. Return None if no more messages are due. Raises
    DatabaseUnavailable.
    """
    owner_id = UserId(UUID(subject))
    work_for(owner_id)
    messages, is_more_due = await history.index_owner(owner_id)
    if messages:
        log.info("messages indexed for search", owner_id=str(owner_id), messages=messages)
        if embed_soon is not None:
            await embed_soon()
    return NotDone(has_failed=not messages) if is_more_due else None


class Indexing:
    """The scheduled search for owners with unindexed messages, whose indexing jobs it enqueues."""

    def __init__(self, history: SearchRepository) -> None:
        self._history = history

    async def run(self) -> None:
        """Enqueue a job for each owner with messages that have been unindexed for some minutes."""
        owners = await self._history.enqueue_indexing()
        if owners:
            log.info("search indexing jobs enqueued", owners=owners)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedule by which `run` is called."""
        return (Schedule(INDEX_HISTORY, EVERY, self.run),)
