"""The ranking query: BM25 over the terms, extended by the terms of neighbouring messages.

A message scores for each query term it contains, and less for a term that only a neighbour contains, decreasing with
the distance. The reason: an answer is often a turn away from the words of the question. Each term counts once, with its
best score. So a part of the conversation with all query words ranks above one that repeats a single word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from throughline.db.connection.statement import Row, Statement
from throughline.db.connection.transactions import Statements
from throughline.db.search.entries import LENGTH_STEP, LiveEntries
from throughline.db.statements.rows import MESSAGE_COLUMNS
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId
from throughline.domain.recall import HistoryFilter

CANDIDATES = 100
"""Fewest messages whose neighbours are examined; four times the limit if that is more."""

MOST_ENTRIES = 20_000
"""Most index entries that one query scores, rarest terms first; all entries of the rarest term are scored.

The terms left out occur almost everywhere and matter little, so that very long sessions take little longer to search.
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parameters of the ranking, tuned by benchmarks/retrieval.py on one half of its data.

    `saturation` and `length_share` are BM25's k1 and b. A term in a neighbouring message counts `nearby` times its
    score there, decreasing linearly with the distance, and nothing beyond `reach` messages. A matching author counts
    `author` times a matching word.
    """

    saturation: float = 1.2
    length_share: float = 0.3
    nearby: float = 0.3
    reach: int = 6
    author: float = 0.5


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search request: weighted terms, the owner, optionally one session, a filter, and the most results."""

    owner_id: UserId
    session_id: SessionId | None
    terms: Mapping[str, float]
    only: HistoryFilter
    limit: int


Parameters: TypeAlias = dict[str, object]

_CONDITIONS = """
    and (cast(:role as text) is null or m.role = :role)
    and (cast(:tool as text) is null or lower(m.name) = lower(:tool))
    and (cast(:author as text) is null or lower(m.author) = lower(:author))
    and (cast(:since as timestamptz) is null or m.created_at >= :since)
    and (cast(:until as timestamptz) is null or m.created_at < :until)
    and coalesce(m.content, cast(m.content_blocks as text)) ilike all (cast(:phrases as text[]))"""
_FILTERED = "join messages m on m.session_id = b.session_id and m.position = b.position " + _CONDITIONS
_BOUNDS = """bounds as materialized (
        select cast(:after as integer) as low, cast(:before as integer) as high, own.session_id as own_session,
            own.position as own_position
        from (values (1)) one left join lateral (
            select m.session_id, m.position from messages m where m.run_id = cast(:before_run as uuid)
            order by m.position limit 1
        ) own on true
    )"""
_FIND = """
    with {bounds}, numbers as materialized (
        select cast(:saturation as float8) as saturation, cast(:length_share as float8) as length_share,
            cast(:length_step as float8) as length_step, cast(:nearby as float8) as nearby,
            cast(:reach as integer) as reach
    ), distances as materialized (
        select d.distance,
            case when d.distance = 0 then 1 else nearby * (1 - abs(d.distance) / (reach + 1.0)) end as share
        from numbers cross join lateral generate_series(-reach, reach) as d (distance)
    ), asked as materialized (
        select a.term, a.weight from unnest(cast(:terms as text[]), cast(:weights as float8[])) as a (term, weight)
    ), scope as materialized (
        select s.id from sessions s
        where s.owner_id = :owner_id and (cast(:session_id as uuid) is null or s.id = :session_id)
    ), sizes as materialized (
        select greatest(sum(sized.messages), 1) as messages,
            greatest(sum(sized.terms) / greatest(sum(sized.messages), 1), 1) as mean
        from (
            select b.through_position - b.from_position + 1 as messages, b.term_count as terms
            from search_blocks b join scope on scope.id = b.session_id
            union all
            select cast(:live_messages as bigint), cast(:live_term_count as bigint)
        ) sized
    ), live as materialized (
        select l.session_id, a.term, a.weight, l.position, l.entry
        from unnest(cast(:live_sessions as uuid[]), cast(:live_positions as integer[]), cast(:live_terms as text[]),
                cast(:live_entries as integer[])) as l (session_id, position, term, entry)
            join asked a on a.term = l.term join scope on scope.id = l.session_id
    ), indexed as materialized (
        select t.session_id, a.term, a.weight, t.from_position, t.entries
        from scope cross join asked a join search_terms t on t.session_id = scope.id and t.term = a.term
    ), counted as (
        select c.term, sum(c.messages) as messages
        from (
            select term, cardinality(entries) as messages from indexed union all select term, 1 from live
        ) c group by c.term
    ), chosen as materialized (
        select c.term, ln(1 + (greatest(z.messages - c.messages, 0) + 0.5) / (c.messages + 0.5)) as rarity
        from (select *, sum(messages) over (order by messages, term) as so_far from counted) c cross join sizes z
        where c.so_far <= :most_entries or c.so_far = c.messages
    ), postings as materialized (
        select i.session_id, i.term, i.weight * c.rarity as weight, i.from_position + (e.entry >> 8) as position,
            e.entry & 255 as entry
        from indexed i join chosen c on c.term = i.term cross join lateral unnest(i.entries) as e (entry)
        union all
        select l.session_id, l.term, l.weight * c.rarity, l.position, l.entry
        from live l join chosen c on c.term = l.term
    ), scored as materialized (
        select p.session_id, p.position, p.term,
            p.weight * (p.entry & 15) * (saturation + 1) / ((p.entry & 15) + saturation * case
                when p.entry < 16 then 1
                else 1 - length_share + length_share * power(2, length_step * ((p.entry >> 4) - 1)) / z.mean
            end) as score
        from postings p cross join sizes z cross join numbers
            join bounds on p.position > bounds.low and p.position < bounds.high
                and (p.session_id is distinct from own_session or p.position < own_position)
    ), best as materialized (
        select b.session_id, b.position
        from (select session_id, position, sum(score) as score from scored group by session_id, position) b
            {filtered}
        order by b.score desc, b.position desc limit :candidates
    ), around as materialized (
        select distinct best.session_id, best.position + d.distance as position
        from best cross join distances d
            join bounds on best.position + d.distance > bounds.low and best.position + d.distance < bounds.high
                and (best.session_id is distinct from own_session or best.position + d.distance < own_position)
    ), pairs as materialized (
        select a.session_id, a.position, a.position + d.distance as beside, d.share from around a cross join distances d
    ), near as (
        select p.session_id, p.position, n.term, max(n.score * p.share) as score
        from pairs p join scored n on n.session_id = p.session_id and n.position = p.beside
        group by p.session_id, p.position, n.term
    ), ranked as (
        select session_id, position, sum(score) as score from near group by session_id, position
    )
    select {message_columns}, {pinned}, b.score
    from ranked b join messages m on m.session_id = b.session_id and m.position = b.position
        join scope on scope.id = m.session_id
    where (m.name is null or m.name <> all(:recall_tools))
        {conditions}
    order by b.score desc, b.session_id desc, b.position desc limit :limit
"""
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
_PINNED = "exists (select 1 from message_pins p where p.message_id = m.id) as pinned"


def _statement(*, is_open: bool) -> Statement:
    return sql(
        _FIND,
        bounds=_BOUNDS,
        filtered="" if is_open else _FILTERED,
        conditions="" if is_open else _CONDITIONS,
        message_columns=MESSAGE_COLUMNS,
        pinned=_PINNED,
    )


_FIND_ANY, _FIND_SOME = _statement(is_open=True), _statement(is_open=False)
_FIND_NEWEST = sql(_NEWEST, bounds=_BOUNDS, conditions=_CONDITIONS, message_columns=MESSAGE_COLUMNS, pinned=_PINNED)
_LAST_POSITION = 2**31 - 1


async def find(
    tx: Statements, asked: SearchRequest, live: LiveEntries, ranking: Ranking, hidden_tools: Sequence[str]
) -> Sequence[Row]:
    """Return the best messages as rows with MESSAGE_COLUMNS and `score`; `live` holds entries not in the index."""
    parameters = _asked(asked) | _terms(asked) | _live(live) | _ranking(ranking)
    if _is_positional(asked.only):
        return await tx.fetch(_FIND_ANY, **parameters, recall_tools=list(hidden_tools))
    return await tx.fetch(_FIND_SOME, **parameters, **_conditions(asked.only), recall_tools=list(hidden_tools))


async def find_newest(tx: Statements, asked: SearchRequest, hidden_tools: Sequence[str]) -> Sequence[Row]:
    """Return the newest messages that pass the filter, for a query without terms."""
    parameters = _asked(asked) | _conditions(asked.only)
    return await tx.fetch(_FIND_NEWEST, **parameters, recall_tools=list(hidden_tools))


def _is_positional(only: HistoryFilter) -> bool:
    """Whether the filter uses only positions, so that it can be applied without reading the messages."""
    return only == HistoryFilter(after=only.after, before=only.before, before_run=only.before_run)


def _asked(asked: SearchRequest) -> Parameters:
    only = asked.only
    return {
        "owner_id": asked.owner_id,
        "session_id": asked.session_id,
        "after": only.after or 0,
        "before": _LAST_POSITION if only.before is None else min(only.before, _LAST_POSITION),
        "before_run": only.before_run,
        "limit": asked.limit,
    }


def _terms(asked: SearchRequest) -> Parameters:
    return {
        "terms": list(asked.terms),
        "weights": list(asked.terms.values()),
        "most_entries": MOST_ENTRIES,
        "candidates": max(CANDIDATES, 4 * asked.limit),
    }


def _ranking(ranking: Ranking) -> Parameters:
    return {
        "saturation": ranking.saturation,
        "length_share": ranking.length_share,
        "length_step": LENGTH_STEP,
        "nearby": ranking.nearby,
        "reach": ranking.reach,
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


def _conditions(only: HistoryFilter) -> Parameters:
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
