"""Search of stored messages on behalf of their owner, and maintenance of the search index."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias
from weakref import WeakValueDictionary

import structlog

from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Transactions
from throughline.db.search.analyzer import Analyzer, Term
from throughline.db.search.entries import AFTER_PAUSE, IndexedMessage, LiveEntries
from throughline.db.search.index_history import (
    BATCH_MESSAGES,
    BLOCK_MESSAGES,
    LARGE_CHARACTERS,
    LIVE_CHARACTERS,
    LIVE_MESSAGES,
    HistoryIndex,
    UnindexedSession,
    find_owners,
)
from throughline.db.search.query import MAX_QUERY_CHARACTERS, ReadQuery, cues_of, read_plain, read_query
from throughline.db.search.rank import CANDIDATES, FEW_CANDIDATES, PINNED, BestRows, SearchRequest, find, find_newest
from throughline.db.search.scores import Ranking
from throughline.db.sessions.messages import MessageQuery, MessageRepository
from throughline.db.side_jobs import JobQueue, index_job
from throughline.db.statements.rows import MESSAGE_COLUMNS, message_from, session_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import DatabaseBusy
from throughline.domain.message import LAST_POSITION, Message, searched_text
from throughline.domain.recall import HistoryQuery, Hit, Place, SearchResult
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.error_boundary import ErrorBoundary

# Time-limited indexing of unindexed messages: before a search, which reports the rest, and by a side job.
#
# In one process the searches and the job of one owner index one batch after the other. So no work is done twice, and
# threads stay free.

CATCH_UP_SECONDS = 2.0
"""Time a search spends on indexing before it runs without the rest; a started batch is finished."""

MANY_SESSIONS = 100
"""Number of incompletely indexed sessions above which a search leaves the indexing to the owner's job.

It does so only while that job is under way.
"""

ROUND_SECONDS = 5.0
"""Time of one round of the indexing job, after which other jobs may run."""


class CatchUp:
    """Indexing of one owner's unindexed messages within a time limit."""

    def __init__(self, index: HistoryIndex, now: Callable[[], float]) -> None:
        """Write to `index`. `now` returns monotonic seconds."""
        self._index = index
        self._now = now
        self._lines: WeakValueDictionary[UserId, asyncio.Lock] = WeakValueDictionary()

    async def catch_up(
        self, owner_id: UserId, session_id: SessionId | None
    ) -> tuple[tuple[IndexedMessage, ...], tuple[UnindexedSession, ...]]:
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

    async def _index_some(self, owner_id: UserId, left: Sequence[UnindexedSession], deadline: float) -> bool:
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

    async def _index_batch(self, owner_id: UserId, batch: Sequence[UnindexedSession], deadline: float) -> int:
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


def _batches(waiting: Sequence[UnindexedSession]) -> Iterator[Sequence[UnindexedSession]]:
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


def _without(waiting: Sequence[UnindexedSession], live: Sequence[IndexedMessage]) -> tuple[UnindexedSession, ...]:
    """Return the sessions with unindexed messages that are not in `live`, sessions with the most messages first."""
    taken = Counter(message.session_id for message in live)
    left = (found for found in waiting if taken[found.session_id] < found.messages)
    return tuple(sorted(left, key=lambda found: -found.messages))


SNIPPET_CHARACTERS = 240
LEAD_CHARACTERS = 40
"""Characters shown before the first match, as context."""

READ_CHARACTERS = 20_000
"""Text length up to which a whole text is tokenized; of a longer one only the text around likely matches.

Tokenizing 20,000 characters of unseen words takes 50 ms, and a search shows up to 50 messages.
"""

SHORT_STEM = 4
MAX_MATCHES = 10
"""Most likely matches examined for each query word, from the beginning of the text."""

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A one-line excerpt of a text, and the ranges of characters (from, to; `to` excluded) in it that match."""

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def snippet_of(analyzer: Analyzer, text: str, words: Collection[str]) -> Snippet:
    """Return the excerpt of `text` with the most different `words`; its beginning if none occurs in it.

    `words` are the analyzed terms of a query.
    """
    matches = list(_matches(analyzer, text, words))
    start = _start(text, _best_place(matches))
    end = min(len(text), start + SNIPPET_CHARACTERS)
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    shift = len(head) - start
    places = sorted({
        (term.start + shift, term.end + shift) for term in matches if start <= term.start < term.end <= end
    })
    return Snippet(f"{head}{_on_one_line(text[start:end])}{tail}", _joined(places))


def _matches(analyzer: Analyzer, text: str, words: Collection[str]) -> Iterator[Term]:
    """Yield the text's terms that are among the words, in order."""
    for start, end in _pieces(text, words):
        for term in analyzer.terms(text[start:end]):
            found = replace(term, start=term.start + start, end=term.end + start)
            is_cut = (found.start == start > 0) or (found.end == end < len(text))
            if term.text in words and not is_cut:
                yield found


def _pieces(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Return the ranges to tokenize; for a long text without a literal match, its beginning."""
    if len(text) <= READ_CHARACTERS:
        return [(0, len(text))]
    lowered = text.lower()
    if len(lowered) != len(text):  # lower() changed the length, so positions would not match
        lowered = text
    places = sorted(place for word in words for place in islice(_places(lowered, word), MAX_MATCHES))
    return _around(places, len(text)) or [(0, READ_CHARACTERS)]


def _around(places: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return ranges around the positions in a text of this length; overlapping ranges are merged."""
    pieces: list[tuple[int, int]] = []
    for place in places:
        start, end = max(place - SNIPPET_CHARACTERS, 0), min(place + 2 * SNIPPET_CHARACTERS, length)
        if pieces and start <= pieces[-1][1]:
            start = pieces.pop()[0]
        pieces.append((start, end))
    return pieces


def _places(lowered: str, word: str) -> Iterator[int]:
    """Yield positions where the word may occur, ignoring its last letter, in which a stem can differ from its words."""
    stem = word if len(word) < SHORT_STEM else word[:-1]
    place = lowered.find(stem)
    while place >= 0:
        yield place
        place = lowered.find(stem, place + 1)


def _best_place(matches: list[Term]) -> int:
    """Return the start of the excerpt with the most different terms; among equals the first."""
    best, place, first = 0, 0, 0
    for last, term in enumerate(matches):
        while term.end - matches[first].start > SNIPPET_CHARACTERS - LEAD_CHARACTERS:
            first += 1
            if first > last:
                break
        different = len({match.text for match in matches[first : last + 1]})
        if different > best:
            best, place = different, matches[first].start
    return place


def _start(text: str, place: int) -> int:
    """Return an excerpt start shortly before the position, at a word boundary."""
    if place <= LEAD_CHARACTERS:
        return 0
    space = text.find(" ", place - LEAD_CHARACTERS, place)
    return space + 1 if space >= 0 else place


def _on_one_line(text: str) -> str:
    """Replace each whitespace character by a space, so that ranges stay valid."""
    return "".join(" " if character.isspace() else character for character in text)


def _joined(places: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ranges with overlapping ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


RANKING = Ranking()
SCORE_DIGITS = 4
log = structlog.get_logger(__name__)
_SHOW = sql(
    """
    select {columns}, {pinned}, w.score
    from unnest(cast(:sessions as uuid[]), cast(:positions as integer[]), cast(:scores as float8[])) with ordinality
        as w (session_id, position, score, place) join messages m
        on m.session_id = w.session_id and m.position = w.position
    order by w.place
""",
    columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_EXISTS = sql("select 1 as found from sessions where id = :session_id and owner_id = :owner_id")


Scored: TypeAlias = tuple[Place, float]
"""The place of a message, and its score."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Places of messages, best first, and the sessions that could not be searched completely in time."""

    places: tuple[Place, ...]
    incomplete_sessions: tuple[SessionId, ...]


class SearchRepository:
    """Implements the interface History, and indexes messages."""

    def __init__(
        self,
        transactions: Transactions,
        messages: MessageRepository,
        jobs: JobQueue,
        language: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use `transactions`; stem words by the rules of `language`. Raises SettingInvalid.

        Indexing that remains is queued in `jobs`. `now` returns monotonic seconds.
        """
        self._transactions = transactions
        self._messages = messages
        self._jobs = jobs
        self._analyzer = Analyzer(language)
        self._index = HistoryIndex(transactions, self._analyzer)
        self._catch_up = CatchUp(self._index, now)

    def parse(self, query: HistoryQuery, ranking: Ranking = RANKING) -> ReadQuery:
        """Return the query's terms and filter.

        Raises InvalidInput for a filter such as `before:` with an invalid value.
        """
        read = read_plain if query.is_plain else read_query
        return read(self._analyzer, query.text, query.only, author_weight=ranking.author)

    async def search(
        self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery, ranking: Ranking = RANKING
    ) -> SearchResult:
        """Return the owner's best matching messages, from one session or from all.

        A query without words returns the newest messages that pass its filter. Raises NotFound, and InvalidInput as
        `parse` does.
        """
        read = self.parse(query, ranking)
        found, left = await self._find(_request(owner_id, session_id, query, read, self._index.version), query, ranking)
        if not found.rows and session_id is not None and not query.is_before_turn:
            await self._check_exists(owner_id, session_id)
        return SearchResult(await self._hits(found.rows, read, query), left, found.full_score)

    async def rank(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> Ranked:
        """Return the places of the best matching messages, as `search` finds them, without reading the messages."""
        request = replace(
            _request(owner_id, session_id, query, self.parse(query), self._index.version), places_only=True
        )
        found, left = await self._find(replace(request, places_only=True), query, RANKING)
        return Ranked(tuple(Place(SessionId(row["session_id"]), row["position"]) for row in found.rows), left)

    async def show(self, ranked: Sequence[Scored], query: HistoryQuery) -> tuple[Hit, ...]:
        """Return the messages at these places as hits of the query. A message erased meanwhile is left out."""
        rows = await self._transactions.fetch(
            _SHOW,
            sessions=[place.session_id for place, _ in ranked],
            positions=[place.position for place, _ in ranked],
            scores=[score for _, score in ranked],
        )
        return await self._hits(rows, self.parse(query), query)

    async def _find(
        self, request: SearchRequest, query: HistoryQuery, ranking: Ranking
    ) -> tuple[BestRows, tuple[SessionId, ...]]:
        """Return the best matching rows, and the sessions that could not be searched completely."""
        if not request.terms:
            rows = () if query.is_plain else await find_newest(self._transactions, request, RECALL_TOOLS)
            return BestRows(rows), ()
        live, left = await self._unindexed(request, query)
        entries = await self._index.live_entries(live, {*request.terms, AFTER_PAUSE}) if live else LiveEntries()
        found = await find(self._transactions, request, entries, ranking, RECALL_TOOLS)
        if left:
            with ErrorBoundary(log.warning, "indexing job not enqueued"):
                await self._jobs.enqueue(index_job(request.owner_id))
        return found, left

    async def _unindexed(
        self, request: SearchRequest, query: HistoryQuery
    ) -> tuple[tuple[IndexedMessage, ...], tuple[SessionId, ...]]:
        """Return unindexed messages for the search to read itself, and the sessions that have, or may have, more."""
        session_id = request.session_id
        if not query.is_before_turn or session_id is None:
            live, left = await self._catch_up.catch_up(request.owner_id, session_id)
            return live, tuple(session.session_id for session in left)
        before = LAST_POSITION if query.only.before is None else query.only.before
        live = await self._index.read_unindexed_before(session_id, before)
        characters = sum(len(message.text) for message in live)
        has_more = len(live) == LIVE_MESSAGES or characters > LIVE_CHARACTERS / 2
        return live, (session_id,) if has_more else ()

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return the messages at positions `first` to `last`, at most one page of the history. Raises NotFound."""
        query = MessageQuery(after=first - 1, before=last + 1, limit=200)
        return (await self._messages.list_messages(owner_id, session_id, query)).items

    async def index_session(self, session_id: SessionId) -> int:
        """Index the session's unindexed messages; return their number."""
        done = 0
        while messages := await self._index.index_blocks([session_id]):
            done += messages
        return done

    async def index_owner(self, owner_id: UserId) -> tuple[int, bool]:
        """Index the owner's due messages for some seconds; return the number indexed, and whether more is due."""
        return await self._catch_up.index_owner(owner_id)

    async def enqueue_indexing(self) -> int:
        """Enqueue the indexing job of each owner with messages unindexed for some minutes; return the number."""
        owners = await find_owners(self._transactions)
        for owner_id in owners:
            await self._jobs.enqueue(index_job(owner_id))
        return len(owners)

    async def _hits(self, rows: Sequence[Row], read: ReadQuery, query: HistoryQuery) -> tuple[Hit, ...]:
        messages = [message_from(row) for row in rows]
        texts = [searched_text(message) for message in messages]
        most = (query.whole_characters, min(query.whole_characters, SNIPPET_CHARACTERS))
        cut = [len(text) > most[place >= query.whole_hit_count] for place, text in enumerate(texts)]
        characters = sum(len(text) for text, is_cut in zip(texts, cut, strict=True) if is_cut)

        def render() -> tuple[Hit, ...]:
            shown = zip(rows, messages, texts, cut, strict=True)
            return tuple(
                self._hit(row, message, text, read if is_cut else None) for row, message, text, is_cut in shown
            )

        return await run_off_loop_if_large(characters, render, large=LARGE_CHARACTERS)

    def _hit(self, row: Row, message: Message, text: str, read: ReadQuery | None) -> Hit:
        """Return the hit with a snippet of its text that shows the query's words.

        `read` is None for a text that is short enough to be returned as a whole.
        """
        score = round(row["score"], SCORE_DIGITS)
        if read is None:
            return Hit(message, score, text)
        snippet = snippet_of(self._analyzer, text, read.words)
        return Hit(message, score, snippet.text, snippet.highlights)

    async def _check_exists(self, owner_id: UserId, session_id: SessionId) -> None:
        if not await self._transactions.fetch(_EXISTS, owner_id=owner_id, session_id=session_id):
            raise session_not_found(session_id)


def _request(
    owner_id: UserId, session_id: SessionId | None, query: HistoryQuery, read: ReadQuery, version: str
) -> SearchRequest:
    cues = cues_of(query.text[:MAX_QUERY_CHARACTERS], query.today)
    candidates = FEW_CANDIDATES if query.is_before_turn else max(CANDIDATES, 4 * query.limit)
    return SearchRequest(owner_id, session_id, read.terms, read.only, query.limit, cues, candidates, version)
