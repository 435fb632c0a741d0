"""Summary segments: stored once per input, found again by hash, and checked before a version uses them."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.locks import hold_lease
from throughline.db.statements.rows import columns_of, fields_from, session_not_found, to_json
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import SegmentId, SessionId
from throughline.domain.errors import NotFound, SummaryConflict
from throughline.domain.message import Role
from throughline.domain.run import Lease
from throughline.domain.summary import Adoption, FactKind, KeptFact, NewSegment, Segment, SummaryState, SummaryVersion

VERSION_COLUMNS = columns_of(SummaryVersion, "v")
SEGMENT_COLUMNS = columns_of(Segment, "t")

_KINDS = {kind.value: kind for kind in FactKind} | {
    # Kinds in versions from before models named facts.
    "path": FactKind.IDENTIFIER,
    "url": FactKind.IDENTIFIER,
    "number": FactKind.VALUE,
    "date": FactKind.VALUE,
}
_FURTHER = len(fields(KeptFact)) - 4
_ROLES = {role.value: role for role in Role}


def version_from(row: Row) -> SummaryVersion:
    """Return the summary version in a row with VERSION_COLUMNS."""
    values = fields_from(SummaryVersion, row)
    read = {
        "state": SummaryState(values["state"]),
        "segment_ids": tuple(values["segment_ids"]),
        "kept_facts": _kept_facts_from(values["kept_facts"]),
    }
    return SummaryVersion(**{**values, **read})


def segment_from(row: Row) -> Segment:
    """Return the segment in a row with SEGMENT_COLUMNS."""
    values = fields_from(Segment, row)
    return Segment(**{**values, "kept_facts": _kept_facts_from(values["kept_facts"])})


def kept_facts_json(facts: Sequence[KeptFact]) -> str:
    """Return the JSON text for the columns `kept_facts`: a list of each fact's fields in their order."""
    return to_json([list(astuple(fact)) for fact in facts])


def _kept_facts_from(stored: Sequence[Sequence[Any]]) -> tuple[KeptFact, ...]:
    """Read stored facts, including the old form of three fields whose kind ends with the role (`path tool`).

    Kinds and fields that only newer versions know are ignored.
    """
    return tuple(fact for one in stored for fact in _kept_fact(*one))


def _kept_fact(
    stored_kind: str,
    text: str,
    position: int,
    said_by: str = "",
    *further: Any,  # noqa: ANN401  # JSON
) -> Iterator[KeptFact]:
    kind, _, role = (stored_kind, "", said_by or Role.USER) if stored_kind in _KINDS else stored_kind.partition(" ")
    if kind in _KINDS and role in _ROLES:
        yield KeptFact(_KINDS[kind], text, int(position), _ROLES[role], *further[:_FURTHER])


_FIND = sql(
    """
    select {segment_columns} from summaries t
    where t.session_id = :session_id and t.read_hash = :read_hash
""",
    segment_columns=SEGMENT_COLUMNS,
)
_KEEP_SESSION = sql("select s.redaction_count from sessions s where s.id = :session_id for share")
_SAVE = sql(
    """
    insert into summaries as t (id, session_id, from_position, through_position, through_id, level, text, kept_facts,
        token_count, model, prompt_version, read_hash, request_hash, input_tokens, output_tokens, duration_seconds)
    select :id, m.session_id, :from_position, m.position, m.id, :level, :text, cast(:kept_facts as jsonb),
        :token_count, :model, :prompt_version, :read_hash, :request_hash, :input_tokens, :output_tokens,
        :duration_seconds
    from messages m where m.id = :through_id and m.session_id = :session_id and m.position = :through_position
    on conflict (session_id, read_hash) do nothing
    returning {segment_columns}
""",
    segment_columns=SEGMENT_COLUMNS,
)
_IN_ORDER = sql(
    """
    select {segment_columns} from unnest(cast(:ids as uuid[])) with ordinality as asked (id, place)
        join summaries t on t.id = asked.id and t.session_id = :session_id
    order by asked.place
""",
    segment_columns=SEGMENT_COLUMNS,
)
_CHAIN = sql(
    """
    with recursive chain as (
        (select f.* from summaries f where f.session_id = :session_id and f.level >= 0
            and f.from_position = cast(:first as integer) and f.through_position < cast(:before as integer)
        order by f.through_position desc, f.id desc limit 1)
        union all
        select n.* from chain c cross join lateral (
            select f.* from summaries f where f.session_id = :session_id and f.level >= 0
                and f.from_position = c.through_position + 1 and f.through_position < cast(:before as integer)
            order by f.through_position desc, f.id desc limit 1) n
    )
    select {segment_columns} from chain t order by t.from_position
""",
    segment_columns=SEGMENT_COLUMNS,
)
_RANGES = sql("""
    select t.from_position, t.through_position, t.through_id
    from unnest(cast(:ids as uuid[])) with ordinality as asked (id, place)
        left join summaries t on t.id = asked.id and t.session_id = :session_id
    order by asked.place
""")


async def find_segment(tx: Statements, session_id: SessionId, read_hash: str) -> Segment | None:
    """Return the segment made from the input with this hash, None if there is none."""
    rows = await tx.fetch(_FIND, session_id=session_id, read_hash=read_hash)
    return segment_from(rows[0]) if rows else None


async def save_segment(tx: Statements, session_id: SessionId, segment: NewSegment, lease: Lease | None) -> Segment:
    """Store the segment, or return the one with its `read_hash`, even if that is being stored concurrently.

    Raises LeaseLost, SummaryConflict if a message was redacted since it was read, and NotFound if the session or the
    segment's last message is missing.
    """
    await hold_unredacted(tx, session_id, segment.redaction_count, lease)
    rows = await tx.fetch(_SAVE, id=new_id(), session_id=session_id, **_parameters(segment))
    if rows:
        return segment_from(rows[0])
    found = await find_segment(tx, session_id, segment.read_hash)
    if found is None:
        raise NotFound(
            f"There is no message {segment.through_id} at position {segment.through_position} of session {session_id}."
        )
    return found


async def hold_unredacted(tx: Statements, session_id: SessionId, redaction_count: int, lease: Lease | None) -> None:
    """Prevent redactions in the session until the transaction ends.

    Raises LeaseLost, NotFound, and SummaryConflict if `redaction_count` has changed.
    """
    await hold_lease(tx, session_id, lease)
    kept = await tx.fetch(_KEEP_SESSION, session_id=session_id)
    if not kept:
        raise session_not_found(session_id)
    if kept[0]["redaction_count"] != redaction_count:
        raise SummaryConflict(f"A message of session {session_id} was redacted since it was read. Read it again.")


async def load_segments(tx: Statements, session_id: SessionId, ids: Sequence[SegmentId]) -> tuple[Segment, ...]:
    """Return the segments in the order of `ids`; missing ones and those of other sessions are left out."""
    rows = await tx.fetch(_IN_ORDER, session_id=session_id, ids=list(ids))
    return tuple(segment_from(row) for row in rows)


async def chain_of_segments(tx: Statements, session_id: SessionId, first: int, before: int) -> tuple[Segment, ...]:
    """Return consecutive stored segments from position `first`, all ending before `before`.

    At each step the longest segment is taken, among equals the newest. Merged segments and their parts are both stored.
    """
    rows = await tx.fetch(_CHAIN, session_id=session_id, first=first, before=before)
    return tuple(segment_from(row) for row in rows)


async def check_segments(tx: Statements, adoption: Adoption) -> None:
    """Raise ValueError unless the segments belong to the session and cover 1..through without gap or overlap.

    This is always a caller's mistake; no race can cause it, since segments never change.
    """
    rows = await tx.fetch(_RANGES, session_id=adoption.session_id, ids=list(adoption.segment_ids))
    reached, last_id = 0, None
    for segment_id, row in zip(adoption.segment_ids, rows, strict=True):
        if row["from_position"] != reached + 1:
            what = "is not the session's" if row["from_position"] is None else f"starts at {row['from_position']}"
            raise ValueError(f"segment {segment_id} {what}; one that starts at position {reached + 1} must stand there")
        reached, last_id = row["through_position"], row["through_id"]
    if (reached, last_id) != (adoption.through_position, adoption.through_id):
        raise ValueError(
            f"the segments end with message {last_id} at {reached}, the summary with {adoption.through_id} at "
            f"{adoption.through_position}"
        )


def _parameters(segment: NewSegment) -> dict[str, object]:
    return {
        "from_position": segment.from_position,
        "through_position": segment.through_position,
        "through_id": segment.through_id,
        "level": segment.level,
        "text": segment.text,
        "kept_facts": kept_facts_json(segment.kept_facts),
        "token_count": segment.token_count,
        "model": segment.model,
        "prompt_version": segment.prompt_version,
        "read_hash": segment.read_hash,
        "request_hash": segment.request_hash,
        "input_tokens": segment.input_tokens,
        "output_tokens": segment.output_tokens,
        "duration_seconds": segment.duration_seconds,
    }
