"""Reads and writes the rows of summaries, their stretches and their ledger."""

from collections.abc import Sequence

from throughline.db.connection.statement import Row
from throughline.db.statements.rows import to_json
from throughline.domain.ids import MessageId, SessionId, StretchId, SummaryId
from throughline.domain.ledger import LedgerEntry, LedgerKind
from throughline.domain.message import Role
from throughline.domain.summary import Stretch, SummaryState, SummaryVersion

VERSION_COLUMNS = """
    v.id, v.session_id, v.version, v.state, v.text, v.token_count, v.through_id, v.through_position, v.model,
    v.created_at, v.stretch_ids, v.ledger"""

STRETCH_COLUMNS = """
    t.id, t.from_position, t.through_position, t.through_id, t.level, t.text, t.token_count, t.model, t.read_hash"""


def _stored_kind(kind: LedgerKind, said_by: Role) -> str:
    return kind.value if said_by is Role.USER else f"{kind.value} {said_by.value}"


_LEDGER_KINDS = {_stored_kind(kind, role): ((kind, role),) for kind in LedgerKind for role in Role}


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
        stretch_ids=tuple(StretchId(stretch_id) for stretch_id in row["stretch_ids"]),
        ledger=_ledger_from(row["ledger"]),
    )


def stretch_from(row: Row) -> Stretch:
    """Return the stretch of a row with STRETCH_COLUMNS."""
    return Stretch(
        id=StretchId(row["id"]),
        from_position=row["from_position"],
        through_position=row["through_position"],
        through_id=MessageId(row["through_id"]),
        level=row["level"],
        text=row["text"],
        token_count=row["token_count"],
        model=row["model"],
        read_hash=row["read_hash"],
    )


def ledger_json(ledger: Sequence[LedgerEntry]) -> str:
    """Return what the column `summary_versions.ledger` stores: [kind, text, position] for each entry.

    Where the user did not say it, the kind is followed by who did. Versions that know no such kinds leave it aside.
    """
    return to_json([[_stored_kind(entry.kind, entry.said_by), entry.text, entry.position] for entry in ledger])


def _ledger_from(stored: Sequence[Sequence[str]]) -> tuple[LedgerEntry, ...]:
    """Read a stored ledger. Kinds that a newer version wrote and this one does not know are left aside."""
    return tuple(
        LedgerEntry(kind, text, int(position), said_by)
        for stored_kind, text, position in stored
        for kind, said_by in _LEDGER_KINDS.get(stored_kind, ())
    )
