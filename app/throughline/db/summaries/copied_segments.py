"""Copying of summary segments between sessions of one owner, in place of a model request that was made before."""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.sql import sql
from throughline.db.statements.summary_rows import SEGMENT_COLUMNS, segment_from
from throughline.db.summaries.segments import find_segment, hold_unredacted
from throughline.domain.ids import SessionId
from throughline.domain.run import Lease
from throughline.domain.summary import Segment, WantedSegment

_OF_OTHERS = """
    from sessions here
        join summaries o on o.request_hash = :request_hash and o.session_id <> here.id
        join sessions there on there.id = o.session_id and there.owner_id = here.owner_id
    where here.id = :session_id and o.from_position = :from_position and o.through_position = :through_position
    limit 1
"""
_IS_THERE = sql(f"select 1 as found {_OF_OTHERS}")
_COPY = sql(
    """
    with found as materialized (select o.* {of_others} for key share of o skip locked)
    insert into summaries as t (id, session_id, from_position, through_position, through_id, level, text, kept_facts,
        token_count, model, prompt_version, read_hash, request_hash, input_tokens, output_tokens, duration_seconds)
    select :id, m.session_id, f.from_position, m.position, m.id, f.level, f.text, f.kept_facts, f.token_count, f.model,
        f.prompt_version, :read_hash, f.request_hash, 0, 0, 0
    from found f
        join messages m on m.session_id = :session_id and m.position = f.through_position and m.id = :through_id
    on conflict (session_id, read_hash) do nothing
    returning {segment_columns}
""",
    of_others=_OF_OTHERS,
    segment_columns=SEGMENT_COLUMNS,
)
"""Statement that copies a segment.

One that is being deleted, with its session or by a redaction, is skipped, so neither side waits.
"""


async def is_with_others(tx: Statements, session_id: SessionId, wanted: WantedSegment) -> bool:
    """Whether another session of the owner has a segment made by the same model request.

    This takes one index lookup and no lock.
    """
    return bool(await tx.fetch(_IS_THERE, session_id=session_id, **_parameters(wanted)))


async def copy_segment(
    tx: Statements, session_id: SessionId, wanted: WantedSegment, lease: Lease | None
) -> Segment | None:
    """Copy the segment from another session of the owner; return it, or None if there is none (any more).

    The copy's recorded cost is zero. Raises LeaseLost, NotFound, and SummaryConflict if a message of this session was
    redacted since it was read.
    """
    await hold_unredacted(tx, session_id, wanted.redaction_count, lease)
    rows = await tx.fetch(_COPY, id=new_id(), session_id=session_id, **_parameters(wanted))
    return segment_from(rows[0]) if rows else await find_segment(tx, session_id, wanted.read_hash)


def _parameters(wanted: WantedSegment) -> dict[str, object]:
    return {
        "from_position": wanted.from_position,
        "through_position": wanted.through_position,
        "through_id": wanted.through_id,
        "read_hash": wanted.read_hash,
        "request_hash": wanted.request_hash,
    }
