"""Reads and writes the rows of summaries, their segments and their kept facts."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any

from throughline.db.connection.statement import Row
from throughline.db.statements.rows import to_json
from throughline.domain.ids import MessageId, SegmentId, SessionId, SummaryId
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Role
from throughline.domain.summary import Segment, SummaryState, SummaryVersion

VERSION_COLUMNS = """
    v.id, v.session_id, v.version, v.state, v.text, v.token_count, v.through_id, v.through_position, v.model,
    v.created_at, v.segment_ids, v.kept_facts"""

SEGMENT_COLUMNS = """
    t.id, t.from_position, t.through_position, t.through_id, t.level, t.text, t.token_count, t.model, t.read_hash,
    t.kept_facts"""


_KINDS = {kind.value: kind for kind in FactKind} | {
    # Kinds of versions that were written before models named facts.
    "path": FactKind.IDENTIFIER,
    "url": FactKind.IDENTIFIER,
    "number": FactKind.VALUE,
    "date": FactKind.VALUE,
}
_FURTHER = len(fields(KeptFact)) - 4
_ROLES = {role.value: role for role in Role}


def version_from(row: Row) -> SummaryVersion:
    """Return the summary version of a row with VERSION_COLUMNS."""
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
    """Return the segment of a row with SEGMENT_COLUMNS."""
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
    """Return what the columns `kept_facts` store: for each fact a list of its fields, in their order."""
    return to_json([list(astuple(fact)) for fact in facts])


def _kept_facts_from(stored: Sequence[Sequence[Any]]) -> tuple[KeptFact, ...]:
    """Read stored facts, also those of three fields, whose kind names who said them (`path tool`).

    Kinds and fields that a newer version wrote and this one does not know are left aside.
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
