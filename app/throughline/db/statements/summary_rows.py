"""Conversion between rows and values for summary versions, segments and kept facts."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any

from throughline.db.connection.pool import Row
from throughline.db.statements.rows import to_json
from throughline.domain.ids import MessageId, SegmentId, SessionId, SummaryId
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact, Segment, SummaryState, SummaryVersion

VERSION_COLUMNS = """
    v.id, v.session_id, v.version, v.state, v.text, v.token_count, v.through_id, v.through_position, v.model,
    v.created_at, v.segment_ids, v.kept_facts"""

SEGMENT_COLUMNS = """
    t.id, t.from_position, t.through_position, t.through_id, t.level, t.text, t.token_count, t.model, t.read_hash,
    t.kept_facts"""


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
    return SummaryVersion(
        id=SummaryId(row["id"]),
        session_id=SessionId(row["session_id"]),
        version=row["version"],
        state=SummaryState(row["state"]),
        text=row["text"],
        token_count=row["token_count"],
        through_id=MessageId(row["through_id"]),
        through_position=row["through_position"],
        model=row["model"],
        created_at=row["created_at"],
        segment_ids=tuple(SegmentId(segment_id) for segment_id in row["segment_ids"]),
        kept_facts=_kept_facts_from(row["kept_facts"]),
    )


def segment_from(row: Row) -> Segment:
    """Return the segment in a row with SEGMENT_COLUMNS."""
    return Segment(
        id=SegmentId(row["id"]),
        from_position=row["from_position"],
        through_position=row["through_position"],
        through_id=MessageId(row["through_id"]),
        level=row["level"],
        text=row["text"],
        token_count=row["token_count"],
        model=row["model"],
        read_hash=row["read_hash"],
        kept_facts=_kept_facts_from(row["kept_facts"]),
    )


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
