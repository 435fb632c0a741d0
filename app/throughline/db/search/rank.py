"""The ranking of messages: BM25 over the terms, extended by what stands around a message.

A message scores for each query term it contains, and less for a term that only a neighbour contains, decreasing with
the distance. The reason: an answer is often a turn away from the words of the question. Each term counts once, with its
best score. So a part of the conversation with all query words ranks above one that repeats a single word.

Messages between two long pauses form an episode. An episode is scored like one long message, and a share of its score
is added to each of its messages. Passages, a dozen messages in a row, are scored in the same way: an answer is often
spread over several messages, and many conversations have no pauses. The sum is multiplied for how much of the query the
passage has, and for what the query implies: an author whom it names, days, a time. Messages that only ask or are very
short count less, because they rarely answer anything. So do messages with a better one close by: they are read around
that one, and would displace other parts of the conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Statements
from throughline.db.search.analyzer import UNSPACED
from throughline.db.search.entries import AFTER_PAUSE, AUTHOR, DAY, LENGTH_STEP, LiveEntries
from throughline.db.search.query import Cues
from throughline.db.statements.rows import MESSAGE_COLUMNS
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.recall import HistoryFilter

CANDIDATES, FEW_CANDIDATES = 100, 40
"""Fewest messages whose neighbours are examined, and their number if the search must be fast.

Four times the limit are examined if that is more than the former.
"""

MOST_ENTRIES = 20_000
"""Most index entries that one query scores, rarest terms first; all entries of the rarest term are scored.

The terms left out occur almost everywhere and matter little, so that very long sessions take little longer to search.
"""

HALF_PASSAGE = 6
"""Messages in half a passage. Passages overlap by half, so each message is in two."""

PAIR_WANTED = 0.5
"""Share of the pairs of characters of a question that a full answer has: others span two words of the question."""

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
class Ranking:
    """Parameters of the ranking, tuned by benchmarks/retrieval.py on one half of its data.

    `saturation` and `length_share` are BM25's k1 and b. A term in a neighbouring message counts `nearby` times its
    score there, decreasing linearly with the distance, and nothing beyond `reach` messages. A term in the message
    before counts `previous` times its score, because that message is often the question. A matching author counts
    `author` times a matching word, and an episode's score `episode` times. A passage is scored with a saturation of
    `passage_saturation`; with p for its share of the score of a message that has every word, it multiplies by
    1 + `passage` · p. The other values multiply the score of messages whose author the query names (`named`), that end
    with a question mark (`question`), that mention a time when the query asks for one (`tells_when`), that were written
    on a day the query names (`on_day`), and that have a better message within `reach` (`beside_better`). A message
    shorter than SHORT_BYTES counts by its share of that length to the power `short`.
    """

    saturation: float = 1.2
    length_share: float = 0.3
    nearby: float = 0.3
    reach: int = 6
    author: float = 1.5
    previous: float = 0.7
    episode: float = 0.7
    passage: float = 3.0
    passage_saturation: float = 10.0
    beside_better: float = 0.75
    named: float = 1.2
    question: float = 0.8
    tells_when: float = 1.3
    on_day: float = 2.0
    short: float = 0.3


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search request: weighted terms, the owner, optionally one session, a filter, the most results, and cues.

    `candidates` is the number of messages whose neighbours are examined. With `places_only` the messages are not read.
    """

    owner_id: UserId
    session_id: SessionId | None
    terms: Mapping[str, float]
    only: HistoryFilter
    limit: int
    cues: Cues
    candidates: int
    places_only: bool = False


Parameters: TypeAlias = dict[str, object]


# `offset 0` in the statement keeps one index scan for each session, whatever the statistics say: a scan of the table
# would read terms of all users. All rows come from `scope`, so the end need not check it again; with outdated
# statistics, that join ran the aggregation of `ranked` once for each session.
_RANKING = Path(__file__).with_name("ranking.sql").read_text(encoding="utf-8")
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
            union all
            select s.id, s.summary_through_position + 1 from sessions s where s.id = cast(:cursor_of as uuid)
            limit 1
        ) own on true
    )"""
SCOPE = """scope as materialized (
        select s.id from sessions s
        where s.owner_id = :owner_id
            and case when cast(:session_id as uuid) is null then s.expires_at is null else s.id = :session_id end
    )"""
_FIRST = "order by score desc limit :candidates"
"""Without a filter, only the best messages are read, as many as there are candidates."""

_NEWEST = """
    with {bounds}
    select {message_columns}, {pinned}, cast(0 as float8) as score
    from sessions s join messages m on m.session_id = s.id
        join bounds on m.position > bounds.low and m.position < bounds.high
            and (m.session_id is distinct from own_session or m.position < own_position)
    where s.owner_id = :owner_id and (cast(:session_id as uuid) is null or s.id = :session_id)
        and (m.name is null or m.name <> all(:recall_tools))
        {conditions}
    order by m.created_at desc, m.position desc limit :limit
"""
PINNED = "exists (select 1 from message_pins p where p.message_id = m.id) as pinned"


def _statement(*, is_open: bool, columns: str = f"{MESSAGE_COLUMNS}, {PINNED}") -> Statement:
    return sql(
        _RANKING,
        bounds=BOUNDS,
        scope=SCOPE,
        filtered="" if is_open else FILTERED,
        first=_FIRST if is_open else "",
        conditions="" if is_open else CONDITIONS,
        columns=columns,
    )


_FIND_ANY, _FIND_SOME = _statement(is_open=True), _statement(is_open=False)
_PLACE_COLUMNS = "m.session_id, m.position"
_PLACES_OF_ANY = _statement(is_open=True, columns=_PLACE_COLUMNS)
_PLACES_OF_SOME = _statement(is_open=False, columns=_PLACE_COLUMNS)
_FIND_NEWEST = sql(_NEWEST, bounds=BOUNDS, conditions=CONDITIONS, message_columns=MESSAGE_COLUMNS, pinned=PINNED)
_LAST_POSITION = 2**31 - 1


async def find(
    tx: Statements, asked: SearchRequest, live: LiveEntries, ranking: Ranking, hidden_tools: Sequence[str]
) -> Sequence[Row]:
    """Return the best messages as rows with MESSAGE_COLUMNS, `score` and `full_score`, best first.

    `live` holds entries that are not in the index. If the request is for places, the rows have the session and the
    position instead of MESSAGE_COLUMNS. `full_score` is that of a message with every word of the query.

    A search over all sessions is planned for its parameters, because the plan for any parameters, made for a single
    session, takes many times as long.
    """
    parameters = _asked(asked) | _terms(asked) | _live(live) | _ranking(ranking) | _cues(asked.cues)
    hidden = {"recall_tools": list(hidden_tools)}
    if is_positional(asked.only):
        statement = _PLACES_OF_ANY if asked.places_only else _FIND_ANY
    else:
        statement = _PLACES_OF_SOME if asked.places_only else _FIND_SOME
        parameters |= conditions_of(asked.only)
    return await tx.fetch(replace(statement, is_cached=asked.session_id is not None), **parameters, **hidden)


async def find_newest(tx: Statements, asked: SearchRequest, hidden_tools: Sequence[str]) -> Sequence[Row]:
    """Return the newest messages that pass the filter, for a query without terms."""
    parameters = _asked(asked) | conditions_of(asked.only)
    return await tx.fetch(_FIND_NEWEST, **parameters, recall_tools=list(hidden_tools))


def is_positional(only: HistoryFilter) -> bool:
    """Whether the filter uses only positions, so that it can be applied without reading the messages."""
    positions = HistoryFilter(
        after=only.after, before=only.before, before_run=only.before_run, behind_cursor_of=only.behind_cursor_of
    )
    return only == positions


def _asked(asked: SearchRequest) -> Parameters:
    return {**scope_of(asked.owner_id, asked.session_id, asked.only), "limit": asked.limit}


def scope_of(owner_id: UserId, session_id: SessionId | None, only: HistoryFilter) -> Parameters:
    """Return the parameters that say whose messages are searched, and at which positions."""
    return {
        "owner_id": owner_id,
        "session_id": session_id,
        "after": only.after or 0,
        "before": _LAST_POSITION if only.before is None else min(only.before, _LAST_POSITION),
        "before_run": only.before_run,
        "cursor_of": only.behind_cursor_of,
    }


def _terms(asked: SearchRequest) -> Parameters:
    return {
        "terms": list(asked.terms),
        "weights": list(asked.terms.values()),
        "wanted": [PAIR_WANTED if UNSPACED.match(term) else 1.0 for term in asked.terms],
        "most_entries": MOST_ENTRIES,
        "candidates": asked.candidates,
    }


def _ranking(ranking: Ranking) -> Parameters:
    return {
        "saturation": ranking.saturation,
        "length_share": ranking.length_share,
        "length_step": LENGTH_STEP,
        "nearby": ranking.nearby,
        "reach": ranking.reach,
        "previous": ranking.previous,
        "episode": ranking.episode,
        "passage": ranking.passage,
        "half_passage": HALF_PASSAGE,
        "passage_saturation": ranking.passage_saturation,
        "beside_better": ranking.beside_better,
        "after_pause": AFTER_PAUSE,
        "beside": [AUTHOR, DAY],
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


def _live(live: LiveEntries) -> Parameters:
    return {
        "live_messages": live.message_count,
        "live_term_count": live.term_count,
        "live_sessions": [entry.session_id for entry in live.items],
        "live_positions": [entry.position for entry in live.items],
        "live_terms": [entry.term for entry in live.items],
        "live_entries": [entry.entry for entry in live.items],
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
