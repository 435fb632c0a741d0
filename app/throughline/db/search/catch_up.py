"""Time-limited indexing of unindexed messages: before a search, which reports the rest, and by a side job.

In one process the searches and the job of one owner index one batch after the other. So no work is done twice, and
threads stay free.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakValueDictionary

import structlog

from throughline.db.search.entries import IndexedMessage
from throughline.db.search.index_history import BATCH_MESSAGES, HistoryIndex
from throughline.db.search.unindexed import BLOCK_MESSAGES, LIVE_MESSAGES, Waiting
from throughline.domain.errors import DatabaseBusy
from throughline.domain.ids import SessionId, UserId

CATCH_UP_SECONDS = 2.0
"""Time a search spends on indexing before it runs without the rest; a started batch is finished."""

MANY_SESSIONS = 100
"""Number of incompletely indexed sessions above which a search leaves the indexing to the owner's job.

It does so only while that job is under way.
"""

ROUND_SECONDS = 5.0
"""Time of one round of the indexing job, after which other jobs may run."""
log = structlog.get_logger(__name__)


class CatchUp:
    """Indexing of one owner's unindexed messages within a time limit."""

    def __init__(self, index: HistoryIndex, now: Callable[[], float]) -> None:
        """Write to `index`. `now` returns monotonic seconds."""
        self._index = index
        self._now = now
        self._lines: WeakValueDictionary[UserId, asyncio.Lock] = WeakValueDictionary()

    async def catch_up(
        self, owner_id: UserId, session_id: SessionId | None
    ) -> tuple[tuple[IndexedMessage, ...], tuple[Waiting, ...]]:
        """Index the owner's messages, or those of one session, until few are left or CATCH_UP_SECONDS have passed.

        Return live messages and incomplete sessions. The live messages are unindexed, and the search tokenizes them
        itself. The incomplete sessions have further unindexed messages, which the search misses.
        """
        deadline = self._now() + CATCH_UP_SECONDS
        is_over = False
        while True:
            waiting = await self._index.waiting(owner_id, session_id)
            live = await self._index.read_unindexed(waiting)
            left = _without(waiting, live)
            if is_over or not left:
                return live, left
            if len(left) > MANY_SESSIONS and await self._index.has_job_under_way(owner_id):
                return live, left
            is_over = not await self._index_some(owner_id, left, deadline)

    async def index_owner(self, owner_id: UserId) -> tuple[int, bool]:
        """Index the owner's due messages for up to ROUND_SECONDS, short sessions first.

        Return the number of messages indexed, and whether more are due.
        """
        deadline, messages = self._now() + ROUND_SECONDS, 0
        while await self._index.unmark_complete(owner_id) and self._now() < deadline:
            pass
        due = sorted(await self._index.due(owner_id), key=lambda found: found.messages)
        for batch in _batches(due):
            left = sum(found.messages for found in batch)
            while left > 0 and self._now() < deadline:
                indexed = await self._index_batch(owner_id, batch, deadline)
                messages += indexed
                left = left - indexed if indexed else 0
        return messages, bool(await self._index.due(owner_id))

    async def _index_some(self, owner_id: UserId, left: Sequence[Waiting], deadline: float) -> bool:
        """Index the next block of each session, until few messages are left or the deadline has passed.

        Return whether to continue: False after the deadline, or if nothing was indexed.
        """
        messages, done = sum(found.messages for found in left), 0
        for batch in _batches(left):
            done += await self._index_batch(owner_id, batch, deadline)
            if self._now() >= deadline:
                return False
            if messages - done <= LIVE_MESSAGES:
                break
        return done > 0

    async def _index_batch(self, owner_id: UserId, batch: Sequence[Waiting], deadline: float) -> int:
        """Index the sessions' next blocks under the owner's lock; return the number of messages, 0 after a timeout."""
        line = self._lines.setdefault(owner_id, asyncio.Lock())
        try:
            async with asyncio.timeout(deadline - self._now()):
                await line.acquire()
        except TimeoutError:
            return 0
        try:
            return await self._index_or_skip([found.session_id for found in batch], deadline)
        finally:
            line.release()

    async def _index_or_skip(self, sessions: Sequence[SessionId], deadline: float) -> int:
        """Index the sessions' next blocks; if the database is busy, one by one, so that one session stops no other.

        A session whose block cannot be stored is skipped. Returns the number of indexed messages.
        """
        try:
            return await self._index.index_blocks(sessions)
        except DatabaseBusy as error:
            if len(sessions) == 1:
                log.warning("search indexing failed", session_id=str(sessions[0]), cause=error.detail)
                return 0
        messages = 0
        for session_id in sessions:
            if self._now() < deadline:
                messages += await self._index_or_skip([session_id], deadline)
        return messages


def _batches(waiting: Sequence[Waiting]) -> Iterator[Sequence[Waiting]]:
    """Yield the sessions in groups whose next blocks together have up to BATCH_MESSAGES messages."""
    start = messages = 0
    for number, found in enumerate(waiting):
        block = min(found.messages, BLOCK_MESSAGES)
        if messages + block > BATCH_MESSAGES:
            yield waiting[start:number]
            start, messages = number, 0
        messages += block
    if waiting:
        yield waiting[start:]


def _without(waiting: Sequence[Waiting], live: Sequence[IndexedMessage]) -> tuple[Waiting, ...]:
    """Return the sessions with unindexed messages that are not in `live`, sessions with the most messages first."""
    taken = Counter(message.session_id for message in live)
    left = (found for found in waiting if taken[found.session_id] < found.messages)
    return tuple(sorted(left, key=lambda found: -found.messages))
