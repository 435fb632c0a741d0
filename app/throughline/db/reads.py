"""Reads that a replica may answer: exports, reports of usage, and searches by users.

They may miss the newest changes, and nothing is written because of them. All else, in particular turns, keys and what
a request has just stored, is read from the primary. Without a replica the primary answers here, too.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

from throughline.db.connection.replica import (
    MISSING,
    OLDER,
    UNINDEXED,
    Replica,
    ReplicaRefused,
    ReplicaTransactions,
)
from throughline.db.connection.transactions import Transactions
from throughline.db.search.entries import IndexedMessage
from throughline.db.search.message_vectors import MessageVectorRepository, NearMessage, SearchScope
from throughline.db.search.query import ReadQuery
from throughline.db.search.rank import SearchRequest
from throughline.db.search.repository import Ranked, Scored, SearchRepository
from throughline.db.sessions.messages import MessageRepository
from throughline.db.sessions.repository import SessionRepository
from throughline.db.usage import UsageRepository
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Message
from throughline.domain.recall import HistoryQuery, Hit, SearchResult, Vector, VectorKind
from throughline.domain.replica import ReplicaAge, ReplicaReport, older_of

T = TypeVar("T")


class ReplicaSearch(SearchRepository):
    """The search of messages on a replica. It tokenizes the newest messages itself, and indexes none."""

    async def _unindexed(
        self, request: SearchRequest, _query: HistoryQuery
    ) -> tuple[tuple[IndexedMessage, ...], tuple[SessionId, ...]]:
        """Return all unindexed messages. Raises ReplicaRefused if they are more than a search tokenizes itself."""
        waiting = await self._index.waiting(request.owner_id, request.session_id)
        live = await self._index.read_unindexed(waiting)
        if sum(session.messages for session in waiting) > len(live):
            raise ReplicaRefused(UNINDEXED)
        return live, ()


@dataclass(frozen=True, slots=True)
class ReadRepositories:
    """The repositories from which a replica may answer, all over the same server."""

    sessions: SessionRepository
    messages: MessageRepository
    usage: UsageRepository
    history: SearchRepository
    message_vectors: MessageVectorRepository


class Reading:
    """The reads of one answer: by a replica until one of them is refused there, from then on by the primary."""

    def __init__(
        self,
        primary: ReadRepositories,
        replica: Replica | None = None,
        make_repositories: Callable[[Transactions], ReadRepositories] | None = None,
    ) -> None:
        """Read from `primary`; with a `replica` first there, by repositories that `make_repositories` makes."""
        self._primary = primary
        self._replica = replica
        self._make_repositories = make_repositories
        self._age: ReplicaAge | None = None
        self._told: tuple[ReplicaAge | None, ...] = ()

    @property
    def asks_replica(self) -> bool:
        """Whether the next read asks a replica."""
        return self._replica is not None

    def use_primary(self) -> None:
        """Let the primary give the whole answer: nothing that was read before is part of it."""
        self._replica = self._age = None

    def tell_age(self) -> ReplicaAge | None:
        """Return the age of the answer so far, None if nothing came from a replica, or if that was current.

        Further reads of this answer use no older data.
        """
        self._told = (self._age,)
        return self._age

    async def run(self, read: Callable[[ReadRepositories], Awaitable[T]]) -> T:
        """Return what `read` returns, which may be called twice: with repositories of a replica, then of the primary.

        Errors are those of the primary: what is new may be missing in a replica.
        """
        replica, make_repositories = self._replica, self._make_repositories
        if replica is not None and make_repositories is not None:
            try:
                return await self._read_there(replica, make_repositories, read)
            except (ReplicaRefused, ThroughlineError) as error:
                replica.note_refusal(error.reason if isinstance(error, ReplicaRefused) else MISSING)
                self._replica = None
        return await read(self._primary)

    async def _read_there(
        self,
        replica: Replica,
        make_repositories: Callable[[Transactions], ReadRepositories],
        read: Callable[[ReadRepositories], Awaitable[T]],
    ) -> T:
        ages: list[ReplicaAge | None] = []
        found = await read(make_repositories(ReplicaTransactions(replica, ages.append)))
        age = reduce(older_of, ages, self._age)
        if self._told and age != self._told[0]:
            raise ReplicaRefused(OLDER)
        self._age = age
        replica.note_answer(age)
        return found


class Reads:
    """The way to the reads that a replica may answer."""

    def __init__(
        self,
        primary: ReadRepositories,
        replica: Replica | None,
        make_repositories: Callable[[Transactions], ReadRepositories],
    ) -> None:
        """Read from `primary`, and from `replica` if there is one, by repositories that `make_repositories` makes."""
        self._primary = primary
        self._replica = replica
        self._make_repositories = make_repositories

    def begin(self) -> Reading:
        """Return the reads of a new answer."""
        if self._replica is None or not self._replica.may_ask():
            return Reading(self._primary)
        return Reading(self._primary, self._replica, self._make_repositories)

    def on_read(self, count: Callable[[str], None]) -> None:
        """Call `count` after each read with a replica: with `answers`, or the reason for which the primary answers."""
        if self._replica is not None:
            self._replica.on_read = count

    def report(self) -> ReplicaReport | None:
        """Return the state of this process's replica, None without one."""
        return None if self._replica is None else self._replica.report()

    async def close(self) -> None:
        """Close the connections to the replica."""
        if self._replica is not None:
            await self._replica.pool.close()


class QueryParser(Protocol):
    """What reads a query's terms and filter."""

    def parse(self, query: HistoryQuery) -> ReadQuery:
        """Return the query's terms and filter. Raises InvalidInput."""


class HistoryReads:
    """The search of messages and of their vectors by the reads of one answer."""

    def __init__(self, parser: QueryParser, reading: Reading) -> None:
        """Search by `reading`. `parser` reads queries, which needs no database."""
        self._parser = parser
        self._reading = reading

    def parse(self, query: HistoryQuery) -> ReadQuery:
        return self._parser.parse(query)

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> SearchResult:
        return await self._reading.run(lambda each: each.history.search(owner_id, session_id, query))

    async def rank(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> Ranked:
        return await self._reading.run(lambda each: each.history.rank(owner_id, session_id, query))

    async def show(self, ranked: Sequence[Scored], query: HistoryQuery) -> tuple[Hit, ...]:
        return await self._reading.run(lambda each: each.history.show(ranked, query))

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        return await self._reading.run(lambda each: each.history.read(owner_id, session_id, first, last))

    async def nearest(
        self, scope: SearchScope, kind: VectorKind, vector: Vector, limit: int
    ) -> tuple[NearMessage, ...]:
        return await self._reading.run(lambda each: each.message_vectors.nearest(scope, kind, vector, limit))
