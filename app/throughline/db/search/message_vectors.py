"""Embeddings of messages: which are missing, storing them, and the messages nearest to a query.

Of a vector only the signs of its values are stored, one bit a dimension. The share of differing bits estimates the
angle between two vectors (Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002). A vector
of 1,536 dimensions takes 192 bytes instead of 6,144, and no extension is needed to store and compare it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Repository
from throughline.db.search.rank import BOUNDS, FILTERED, SCOPE, conditions_of, is_positional, scope_of
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.recall import HistoryFilter, Place, Vector, VectorKind

BATCH = 64
BATCH_CHARACTERS = 160_000
"""Most texts and characters of one request to the model, below the providers' limits."""

TEXT_CHARACTERS = 4_000
"""Length up to which a message is embedded: one vector says little about a longer text."""

CHANCE_DEVIATIONS = 4
"""How far below half of the dimensions the differing bits of a near message have to be, in standard deviations.

Two vectors without a relation differ in half of their bits, give or take sqrt(dimensions) / 2. Measured: a bar of four
deviations costs no recall, one of five costs some.
"""

READ_MESSAGES = 256
"""Most messages read at once. Some have nothing to embed, such as tool results."""

_MISSING = sql("""
    with due as (
        select s.id, s.redaction_count, coalesce(e.through_position, 0) as through
        from sessions s left join lateral (
            select * from embedded_sessions e
            where e.session_id = s.id and e.model = :model and e.dimensions = :dimensions offset 0
        ) e on true
        where s.message_count > coalesce(e.through_position, 0)
            and (cast(:newest as uuid) is null or s.id <= :newest)
        order by s.id desc limit :messages
    )
    select due.id as session_id, due.redaction_count, m.position, m.author, case
        when m.role in ('user', 'assistant') and not exists (select from message_redactions r where r.message_id = m.id)
        then left(coalesce(m.content, (
            select string_agg(b.block ->> 'text', E'\\n' order by b.place)
            from json_array_elements(m.content_blocks) with ordinality as b (block, place)
        )), :characters) end as text
    from due cross join lateral (
        select * from messages m where m.session_id = due.id and m.position > due.through
        order by m.position limit :messages
    ) m
    order by due.id desc, m.position limit :messages
""")
# The lock holds up a redaction, so that no removed text leaves a vector. It waits for none: a session that is locked is
# left out, and the turns of the others do not wait with it.
_PUT = sql("""
    with kept as (
        select s.id, r.through from sessions s join unnest(cast(:sessions as uuid[]), cast(:redactions as integer[]),
            cast(:through as integer[])) as r (session_id, redaction_count, through)
            on r.session_id = s.id and r.redaction_count = s.redaction_count
        order by s.id for share of s skip locked
    ), reached as (
        insert into embedded_sessions as e (session_id, model, dimensions, through_position)
        select kept.id, :model, :dimensions, kept.through from kept
        on conflict (session_id, model, dimensions) do update
            set through_position = greatest(e.through_position, excluded.through_position), updated_at = now()
    ), embedded as (
        insert into message_embeddings (session_id, model, dimensions, position, signs)
        select kept.id, :model, :dimensions, v.position, cast(v.signs as bit varying)
        from unnest(cast(:vector_sessions as uuid[]), cast(:positions as integer[]), cast(:signs as text[]))
            as v (session_id, position, signs) join kept on kept.id = v.session_id
        on conflict do nothing
    )
    select id from kept
""")
_NEAREST = """
    with {bounds}, asked as materialized (
        select cast(cast(:signs as text) as bit varying) as signs
    ), {scope}
    select b.session_id, b.position, bit_count(b.signs # asked.signs) as differing
    from scope cross join asked cross join lateral (
        select * from message_embeddings e
        where e.session_id = scope.id and e.model = :model and e.dimensions = :dimensions offset 0
    ) b join bounds on b.position > bounds.low and b.position < bounds.high
            and (b.session_id is distinct from own_session or b.position < own_position)
            and bit_count(b.signs # asked.signs) <= :most_differing
        {filtered}
    order by bit_count(b.signs # asked.signs), b.session_id desc, b.position desc limit :limit
"""
_NEAREST_OF_ANY = sql(_NEAREST, bounds=BOUNDS, scope=SCOPE, filtered="")
_NEAREST_OF_SOME = sql(_NEAREST, bounds=BOUNDS, scope=SCOPE, filtered=FILTERED)
_DELETE_OTHERS = sql("""
    delete from embedded_sessions where (session_id, model, dimensions) in (
        select e.session_id, e.model, e.dimensions from embedded_sessions e
        where (e.model <> :model or e.dimensions <> :dimensions)
            and e.updated_at < now() - make_interval(days => :days) limit :sessions
    ) returning session_id
""")
DELETED_SESSIONS = 100
"""Sessions whose old embeddings one statement deletes, so that it stays short."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a session was read, and its redactions at that time."""

    session_id: SessionId
    position: int
    redaction_count: int


@dataclass(frozen=True, slots=True)
class UnembeddedMessages:
    """Texts to embed and the place of each; `reached` has all sessions that were read, also those without a text."""

    places: tuple[Place, ...]
    texts: tuple[str, ...]
    reached: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class NearMessage:
    """A message near in meaning to a query, and how much nearer than chance: in standard deviations, see above."""

    place: Place
    deviations: float


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Whose messages are searched: an owner's, in one session or in all, and the filter that they have to pass."""

    owner_id: UserId
    session_id: SessionId | None
    only: HistoryFilter


class MessageVectorRepository(Repository):
    """Storage of the embeddings of messages, and search by them."""

    async def missing(self, kind: VectorKind, newest: SessionId | None = None) -> UnembeddedMessages | None:
        """Return the next messages of all users without an embedding of this kind; None if there are none.

        Sessions come from `newest`, or the newest of all, to the oldest. Messages of users and answers are embedded,
        with the author's name before the text; tool results are not.
        """
        rows = await self._transactions.fetch(
            _MISSING,
            model=kind.model,
            dimensions=kind.dimensions,
            newest=newest,
            messages=READ_MESSAGES,
            characters=TEXT_CHARACTERS,
        )
        return _batch(rows) if rows else None

    async def put(self, kind: VectorKind, read: UnembeddedMessages, vectors: Sequence[Vector | None]) -> int:
        """Store a vector of this kind for each text, and how far the sessions are done; return how many were stored.

        None stands for a text that the model refused. A session is left out if it is locked, and if it was erased or
        had a redaction since it was read.
        """
        stored = [(place, vector) for place, vector in zip(read.places, vectors, strict=True) if vector is not None]
        rows = await self._transactions.fetch(
            _PUT,
            model=kind.model,
            dimensions=kind.dimensions,
            sessions=[reached.session_id for reached in read.reached],
            redactions=[reached.redaction_count for reached in read.reached],
            through=[reached.position for reached in read.reached],
            vector_sessions=[place.session_id for place, _ in stored],
            positions=[place.position for place, _ in stored],
            signs=[signs_of(vector) for _, vector in stored],
        )
        return len(rows)

    async def nearest(
        self, asked: SearchScope, kind: VectorKind, vector: Vector, limit: int
    ) -> tuple[NearMessage, ...]:
        """Return the nearest messages, nearest first; only vectors of this kind count.

        A message that is hardly nearer than chance makes two vectors is not found.
        """
        parameters = {
            **scope_of(asked.owner_id, asked.session_id, asked.only),
            "model": kind.model,
            "dimensions": kind.dimensions,
            "signs": signs_of(vector),
            "most_differing": int(kind.dimensions / 2 - CHANCE_DEVIATIONS * math.sqrt(kind.dimensions) / 2),
            "limit": limit,
        }
        if is_positional(asked.only):
            rows = await self._transactions.fetch(_NEAREST_OF_ANY, **parameters)
        else:
            rows = await self._transactions.fetch(_NEAREST_OF_SOME, **parameters, **conditions_of(asked.only))
        half, deviation = kind.dimensions / 2, math.sqrt(kind.dimensions) / 2
        return tuple(
            NearMessage(
                Place(SessionId(row["session_id"]), row["position"]), round((half - row["differing"]) / deviation, 2)
            )
            for row in rows
        )

    async def delete_others(self, kind: VectorKind, days: int) -> int:
        """Delete embeddings of other kinds that are older than `days`; return the number of sessions that had some."""
        done = 0
        while rows := await self._transactions.fetch(
            _DELETE_OTHERS, model=kind.model, dimensions=kind.dimensions, days=days, sessions=DELETED_SESSIONS
        ):
            done += len(rows)
        return done


def signs_of(vector: Vector) -> str:
    """Return the signs of the values as a bit string of PostgreSQL in hexadecimal digits, padded with zeros."""
    digits = -(-len(vector) // 4)
    bits = "".join("1" if value > 0 else "0" for value in vector).ljust(4 * digits, "0")
    return f"x{int(bits, 2):0{digits}x}"


def _batch(rows: Sequence[Row]) -> UnembeddedMessages:
    """Return as many of the rows as one request may take, at least one with a text."""
    places: list[Place] = []
    texts: list[str] = []
    reached: dict[SessionId, Reached] = {}
    characters = 0
    for row in rows:
        session_id = SessionId(row["session_id"])
        if text := _embedded_text(row):
            characters += len(text)
            if len(texts) == BATCH or (texts and characters > BATCH_CHARACTERS):
                break
            places.append(Place(session_id, row["position"]))
            texts.append(text)
        reached[session_id] = Reached(session_id, row["position"], row["redaction_count"])
    return UnembeddedMessages(tuple(places), tuple(texts), tuple(reached.values()))


def _embedded_text(row: Row) -> str:
    text = (row["text"] or "").strip()
    return f"{row['author']}: {text}" if text and row["author"] else text
