"""The search for messages: reads index entries, has them scored, and multiplies scores for what the query implies.

The index entries of the query's terms are read and scored (scores.py). The scores of the best messages are multiplied
for what the query implies, an author whom it names, days, a time, and for what the messages themselves show. Messages
that only ask other people or are very short count less, because they rarely answer anything. So do messages with a
better one close by: they are read around that one, and would displace other parts of the conversation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import numpy as np

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.search.analyzer import UNSPACED
from throughline.db.search.entries import AFTER_PAUSE, AUTHOR, DAY, OFFSET_SHIFT, LiveEntries
from throughline.db.search.query import Cues
from throughline.db.search.scores import (
    SESSION_SHIFT,
    Corpus,
    Entries,
    Flags,
    Numbers,
    Ranking,
    Scores,
    Terms,
    full_score,
    score_messages,
)
from throughline.db.statements.rows import MESSAGE_COLUMNS
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import LAST_POSITION
from throughline.domain.recall import HistoryFilter
from throughline.execution.compute_threads import run_off_loop_if_large

CANDIDATES, FEW_CANDIDATES = 100, 40
"""Messages whose neighbours are examined: 100, or four times the limit if that is more; before a turn 40."""

MOST_ENTRIES = 20_000
"""Most index entries that one query scores, rarest terms first; all entries of the rarest term are scored.

The terms left out occur almost everywhere and matter little, so that very long sessions take little longer to search.
"""

PAIR_WANTED = 0.5
"""Share of a question's pairs of characters that a full answer has: in scripts without spaces others span two words."""

MANY_ENTRIES = 5_000
"""Number of entries from which a search is computed in a thread: scoring them takes some 5 ms."""

SHORT_BYTES = 80
QUESTION_BYTES = 400
"""Size up to which a message with a question mark at its end is only a question; long answers may end with one too."""

TIMES = (
    r"\m(yesterday|today|tonight|tomorrow|ago|recently|(last|next|this) (week|month|year|night|weekend|morning|spring|"
    r"summer|autumn|fall|winter|mon|tues|wednes|thurs|fri|satur|sun)\w*|"
    r"(january|february|march|april|may|june|july|august|september|october|november|december)|"
    r"(mon|tues|wednes|thurs|fri|satur|sun)day|(19|20)\d\d|(years?|months?|weeks?|days?|birthday))\M"
)
"""Words by which a message tells a time, as a regular expression of PostgreSQL."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search request: weighted terms, the owner, optionally one session, a filter, the most results, and cues.

    `version` is that of the index entries to read. `candidates` is the number of messages whose neighbours are
    examined. With `places_only` the messages are not read.
    """

    owner_id: UserId
    session_id: SessionId | None
    terms: Mapping[str, float]
    only: HistoryFilter
    limit: int
    cues: Cues
    candidates: int
    version: str
    places_only: bool = False


Parameters: TypeAlias = dict[str, object]


CONDITIONS = """
    and (cast(:role as text) is null or m.role = :role)
    and (cast(:tool as text) is null or lower(m.name) = lower(:tool))
    and (cast(:author as text) is null or lower(m.author) = lower(:author))
    and (cast(:since as timestamptz) is null or m.created_at >= :since)
    and (cast(:until as timestamptz) is null or m.created_at < :until)
    and coalesce(m.content, cast(m.content_blocks as text)) ilike all (cast(:phrases as text[]))"""
FILTERED = "join messages m on m.session_id = b.session_id and m.position = b.position " + CONDITIONS
BOUNDS = """bounds as materialized (
        select cast(:after as integer) as low, cast(:before as integer) as high, own.session_id as own_session,
            own.position as own_position
        from (values (1)) one left join lateral (
            (select m.session_id, m.position from messages m where m.run_id = cast(:before_run as uuid)
            order by m.position limit 1)
        ) own on true
    )"""
SCOPE = """scope as materialized (
        select s.id from sessions s where s.id = :session_id and s.owner_id = :owner_id
        union all
        select s.id from sessions s
        where cast(:session_id as uuid) is null and s.owner_id = :owner_id and s.expires_at is null
    )"""
_NEWEST = """
    with {bounds},
    {scope}
    select {message_columns}, {pinned}, cast(0 as float8) as score
    from scope join messages m on m.session_id = scope.id
        join bounds on m.position > bounds.low and m.position < bounds.high
            and (m.session_id is distinct from own_session or m.position < own_position)
    where (m.name is null or m.name <> all(:recall_tools))
        {conditions}
    order by m.created_at desc, m.position desc limit :limit
"""
PINNED = "exists (select 1 from message_pins p where p.message_id = m.id) as pinned"


# `offset 0` in read_entries.sql keeps one index scan for each session, whatever the statistics say: a scan of the
# table would read terms of all users.
_FOLDER = Path(__file__).parent
_READ_ENTRIES = sql((_FOLDER / "read_entries.sql").read_text(encoding="utf-8"), bounds=BOUNDS, scope=SCOPE)
# One scan of the index for each session: with one for each message, a search would read the levels of the index as
# often, and a larger table has more of them. `offset 0` and `materialized` keep a kept plan from repeating the scans.
_PLACED = """placed as materialized (
        select m.*, s.session
        from (
            select w.session, array_agg(w.position) as positions
            from unnest(cast(:session_numbers as integer[]), cast(:positions as integer[])) as w (session, position)
            group by w.session
        ) s cross join lateral (
            select * from messages m
            where m.session_id = (cast(:sessions as uuid[]))[s.session] and m.position = any(s.positions) offset 0
        ) m
    )"""
_PLACED_MESSAGES = """placed m
    join unnest(cast(:session_numbers as integer[]), cast(:positions as integer[]), cast(:scores as float8[]))
        with ordinality as w (session, position, score, place) on w.session = m.session and w.position = m.position
"""
_PASSING = sql(
    "with {placed} select cast(w.place as integer) as place from {placed_messages} where true {conditions}",
    placed=_PLACED,
    placed_messages=_PLACED_MESSAGES,
    conditions=CONDITIONS,
)
_WEIGH = (_FOLDER / "weigh.sql").read_text(encoding="utf-8")
_WEIGH_MESSAGES, _WEIGH_PLACES = (
    sql(_WEIGH, placed=_PLACED, placed_messages=_PLACED_MESSAGES, conditions=CONDITIONS, columns=columns)
    for columns in (f"{MESSAGE_COLUMNS}, {PINNED}", "m.session_id, m.position")
)
_FIND_NEWEST = sql(
    _NEWEST, bounds=BOUNDS, scope=SCOPE, conditions=CONDITIONS, message_columns=MESSAGE_COLUMNS, pinned=PINNED
)


@dataclass(frozen=True, slots=True)
class BestRows:
    """The best messages as rows with MESSAGE_COLUMNS and `score`, best first.

    `full_score` is the score of a message with every word of the query. If the request is for places, the rows have the
    session and the position instead of MESSAGE_COLUMNS.
    """

    rows: Sequence[Row] = ()
    full_score: float = 0.0


@dataclass(frozen=True, slots=True)
class PositionRange:
    """The range of positions that is searched, both ends excluded.

    In the session with the number `own_session` it ends before `own_position`; the number is -1 if there is none.
    """

    low: int
    high: int
    own_session: int
    own_position: int

    def contain(self, keys: Numbers) -> Flags:
        """Return whether each message, given by its key, is in the range."""
        positions = keys & LAST_POSITION
        is_own = keys >> SESSION_SHIFT == self.own_session
        return (positions > self.low) & (positions < np.where(is_own, min(self.high, self.own_position), self.high))


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """What was read of the index for a request: entries within the bounds, and the sessions by their numbers."""

    entries: Entries
    terms: Terms
    sessions: tuple[UUID, ...]
    bounds: PositionRange


async def find(
    tx: Statements, asked: SearchRequest, live: LiveEntries, ranking: Ranking, hidden_tools: Sequence[str]
) -> BestRows:
    """Return the best messages. `live` holds entries that are not in the index.

    A search over all sessions gets a plan of its own: the kept plan, made for a single session, takes many times as
    long.
    """
    statement = replace(_READ_ENTRIES, is_cached=asked.session_id is not None)
    live_sessions = list({entry.session_id for entry in live.items})
    rows = await tx.fetch(statement, **_asked(asked), **_terms(asked), live_sessions=live_sessions)
    size = sum(len(row["entries"] or ()) for row in rows)
    read = await run_off_loop_if_large(size, partial(_read, rows, asked, live), large=MANY_ENTRIES)
    if not len(read.entries.keys):
        return BestRows()
    passing = None if is_positional(asked.only) else await _passing(tx, asked, read)
    score = partial(_score, asked, read, ranking, passing)
    scores = await run_off_loop_if_large(size, score, large=MANY_ENTRIES)
    weigh = _WEIGH_PLACES if asked.places_only else _WEIGH_MESSAGES
    parameters = _places(read, scores) | _weights(ranking) | _cues(asked.cues) | conditions_of(asked.only)
    found = await tx.fetch(weigh, **parameters, limit=asked.limit, recall_tools=list(hidden_tools))
    return BestRows(found, full_score(read.terms, read.entries.corpus.message_count))


def _ranking_for(cues: Cues, ranking: Ranking) -> Ranking:
    """Return the ranking for a query that asks what the assistant said, or what the user did."""
    if cues.asks_of_assistant:
        return replace(ranking, long_answer=0.0)
    return replace(ranking, answer=ranking.answer_if_of_user) if cues.asks_of_user else ranking


@dataclass(frozen=True, slots=True)
class TermBlock:
    """The entries of a term in a block of messages whose first has `key`.

    `entries` is empty if the term is left out (MOST_ENTRIES); `message_count` counts its messages all the same.
    """

    key: int
    term: str
    entries: Sequence[int]
    message_count: int


def _read(rows: Sequence[Row], asked: SearchRequest, live: LiveEntries) -> FoundEntries:
    """Return the entries of the rows and those of unindexed messages. Each row has the totals and the bounds, too."""
    totals, found = rows[0], [row for row in rows if row["term"] is not None]
    ids = dict.fromkeys([*(row["session_id"] for row in found), *totals["live_sessions"]])
    numbers = {session_id: number for number, session_id in enumerate(ids)}
    own = numbers.get(totals["own_session"], -1)
    bounds = PositionRange(totals["low"], totals["high"], own, totals["own_position"] or 0)
    blocks = [
        TermBlock(
            (numbers[row["session_id"]] << SESSION_SHIFT) + row["from_position"],
            row["term"],
            row["entries"] or (),
            row["message_count"],
        )
        for row in found
    ]
    blocks += [
        TermBlock((numbers[item.session_id] << SESSION_SHIFT) + item.position, item.term, [item.entry], 1)
        for item in live.items
        if item.session_id in numbers
    ]
    size = Corpus(
        session_count=totals["session_count"],
        message_count=max(totals["all_messages"] + live.message_count, 1),
        term_count=totals["all_terms"] + live.term_count,
    )
    return FoundEntries(
        _entries(blocks, asked, bounds, size, np.arange(len(numbers)) << SESSION_SHIFT),
        _terms_of(blocks, asked),
        tuple(numbers),
        bounds,
    )


def _entries(
    blocks: Sequence[TermBlock], asked: SearchRequest, bounds: PositionRange, corpus: Corpus, firsts: Numbers
) -> Entries:
    """Return the entries of the blocks within the bounds. `firsts` are the keys with which the sessions begin."""
    numbers_of = {term: number for number, term in enumerate((*asked.terms, AFTER_PAUSE))}
    sizes = [len(block.entries) for block in blocks]
    numbers = np.fromiter(chain.from_iterable(block.entries for block in blocks), np.int64, sum(sizes))
    keys = np.repeat(np.array([block.key for block in blocks], np.int64), sizes) + (numbers >> OFFSET_SHIFT)
    terms = np.repeat(np.array([numbers_of[block.term] for block in blocks], np.int64), sizes)
    is_pause = terms == numbers_of[AFTER_PAUSE]
    used = ~is_pause & bounds.contain(keys)
    starts = np.union1d(keys[is_pause], firsts)
    return Entries(keys[used], terms[used], numbers[used], starts, corpus)


def _terms_of(blocks: Sequence[TermBlock], asked: SearchRequest) -> Terms:
    counts: Counter[str] = Counter()
    for block in blocks:
        counts[block.term] += block.message_count
    return Terms(
        weights=np.array(list(asked.terms.values()), np.float64),
        messages=np.array([counts[term] for term in asked.terms], np.float64),
        is_word=np.array([not term.startswith((AUTHOR, DAY)) for term in asked.terms]),
        wanted=np.array([PAIR_WANTED if UNSPACED.match(term) else 1.0 for term in asked.terms]),
    )


async def _passing(tx: Statements, asked: SearchRequest, read: FoundEntries) -> Numbers:
    """Return the keys of the messages with entries that pass the filter, sorted."""
    keys = np.unique(read.entries.keys)
    places = _places(read, Scores(keys, np.zeros(len(keys))))
    rows = await tx.fetch(_PASSING, **places, **conditions_of(asked.only))
    return keys[sorted(row["place"] - 1 for row in rows)]


def _score(asked: SearchRequest, read: FoundEntries, ranking: Ranking, passing: Numbers | None) -> Scores:
    """Return the scores of the messages to weigh: with a filter all that are scored, else the best `candidates`."""
    implied = _ranking_for(asked.cues, ranking)
    scores = score_messages(read.entries, read.terms, implied, asked.candidates, passing)
    within = read.bounds.contain(scores.keys)
    scores = Scores(scores.keys[within], scores.scores[within])
    return scores.best(asked.candidates if passing is None else len(scores.keys))


async def find_newest(tx: Statements, asked: SearchRequest, hidden_tools: Sequence[str]) -> Sequence[Row]:
    """Return the newest messages that pass the filter, for a query without terms."""
    parameters = _asked(asked) | conditions_of(asked.only)
    return await tx.fetch(_FIND_NEWEST, **parameters, recall_tools=list(hidden_tools))


def is_positional(only: HistoryFilter) -> bool:
    """Whether the filter uses only positions, so that it can be applied without reading the messages."""
    positions = HistoryFilter(after=only.after, before=only.before, before_run=only.before_run)
    return only == positions


def _asked(asked: SearchRequest) -> Parameters:
    return {**scope_of(asked.owner_id, asked.session_id, asked.only), "limit": asked.limit}


def scope_of(owner_id: UserId, session_id: SessionId | None, only: HistoryFilter) -> Parameters:
    """Return the parameters that say whose messages are searched, and at which positions."""
    return {
        "owner_id": owner_id,
        "session_id": session_id,
        "after": only.after or 0,
        "before": LAST_POSITION if only.before is None else min(only.before, LAST_POSITION),
        "before_run": only.before_run,
    }


def _terms(asked: SearchRequest) -> Parameters:
    return {
        "terms": list(asked.terms),
        "after_pause": AFTER_PAUSE,
        "most_entries": MOST_ENTRIES,
        "version": asked.version,
    }


def _places(read: FoundEntries, scores: Scores) -> Parameters:
    return {
        "sessions": list(read.sessions),
        "session_numbers": (1 + (scores.keys >> SESSION_SHIFT)).tolist(),
        "positions": (scores.keys & LAST_POSITION).tolist(),
        "scores": scores.scores.tolist(),
    }


def _weights(ranking: Ranking) -> Parameters:
    return {
        "reach": ranking.reach,
        "beside_better": ranking.beside_better,
        "named": ranking.named,
        "question": ranking.question,
        "question_bytes": QUESTION_BYTES,
        "short": ranking.short,
        "short_bytes": SHORT_BYTES,
        "tells_when": ranking.tells_when,
        "on_day": ranking.on_day,
    }


def _cues(cues: Cues) -> Parameters:
    return {
        "names": list(cues.names),
        "asks_when": cues.asks_when,
        "times": TIMES,
        "days_since": [days.since for days in cues.days],
        "days_until": [days.until for days in cues.days],
    }


def conditions_of(only: HistoryFilter) -> Parameters:
    """Return what a filter asks of the messages themselves: role, tool, author, time, phrases."""
    return {
        "role": None if only.role is None else only.role.value,
        "tool": only.tool,
        "author": only.author,
        "since": only.since,
        "until": only.until,
        "phrases": [f"%{_literal(phrase)}%" for phrase in only.phrases],
    }


def _literal(phrase: str) -> str:
    return phrase.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
