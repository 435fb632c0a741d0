"""Copies of summaries in other sessions of their owner, so that equal messages are paid for once.

A turn copies one segment, found by its request. A branch copies all segments of the messages that it begins with, and
its summary. A copy's recorded cost is zero.
"""

from collections.abc import Mapping

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import new_id, sql
from throughline.db.summaries.adopt import adopt_summary
from throughline.db.summaries.segments import (
    SEGMENT_COLUMNS,
    VERSION_COLUMNS,
    find_segment,
    hold_unredacted,
    segment_from,
    version_from,
)
from throughline.domain.basic_types import MessageId, SegmentId, SessionId, SummaryId
from throughline.domain.run import CopiedMessages, Lease
from throughline.domain.summary import Adoption, NewSegment, Segment, SummaryVersion

_OF_OTHERS = """
    from sessions here
        join summaries o on o.request_hash = :request_hash and o.session_id <> here.id
        join sessions there on there.id = o.session_id and there.owner_id = here.owner_id
    where here.id = :session_id and o.from_position = :from_position and o.through_position = :through_position
    limit 1
"""
_IS_THERE = sql(f"select 1 as found {_OF_OTHERS}")
_INSERT = """
    insert into summaries as t (id, session_id, from_position, through_position, through_id, level, text, kept_facts,
        token_count, model, prompt_version, read_hash, request_hash, input_tokens, output_tokens, duration_seconds)
    select {new_id}, m.session_id, f.from_position, m.position, m.id, f.level, f.text, f.kept_facts, f.token_count,
        f.model, f.prompt_version, {read_hash}, f.request_hash, 0, 0, 0
    from found f join messages m on m.session_id = :session_id and m.position = f.through_position
"""
_COPY = sql(
    """
    with found as materialized (select o.* {of_others} for key share of o skip locked)
    {insert} and m.id = :through_id
    on conflict (session_id, read_hash) do nothing
    returning {segment_columns}
""",
    of_others=_OF_OTHERS,
    insert=_INSERT.format(new_id=":id", read_hash=":read_hash"),
    segment_columns=SEGMENT_COLUMNS,
)
"""Statement that copies a segment.

One that is being deleted, with its session or by a redaction, is skipped, so neither side waits.
"""

_IDS = sql("""
    select t.id from summaries t join sessions s on s.id = t.session_id
    where s.id = :original_id and s.owner_id = (select c.owner_id from sessions c where c.id = :session_id)
        and t.through_position <= :through
    order by t.id
""")
_COPY_ALL = sql(
    """
    with found as (
        select o.*, g.new_id from unnest(cast(:ids as uuid[]), cast(:new_ids as uuid[])) as g (id, new_id)
            join summaries o on o.id = g.id
    )
    {insert}
    returning t.id, t.through_id
""",
    insert=_INSERT.format(new_id="f.new_id", read_hash="f.read_hash"),
)
_VERSION = sql(
    """
    select {version_columns} from summary_versions v join sessions s on s.id = v.session_id
    where s.id = :original_id and s.owner_id = (select c.owner_id from sessions c where c.id = :session_id)
        and s.summary_through_position > 0 and v.version is not null and v.through_position <= :through
    order by v.state = 'adopted' desc, v.through_position desc, v.version desc limit 1
""",
    version_columns=VERSION_COLUMNS,
)


async def is_copyable(tx: Statements, session_id: SessionId, wanted: NewSegment) -> bool:
    """Return whether another session of the owner has a segment made by the same request: one lookup, no lock."""
    return bool(await tx.fetch(_IS_THERE, session_id=session_id, **_parameters(wanted)))


async def copy_segment(
    tx: Statements, session_id: SessionId, wanted: NewSegment, lease: Lease | None
) -> Segment | None:
    """Copy the segment from another session of the owner; return it, or None if there is none (any more).

    Raises LeaseLost, NotFound, and SummaryConflict if a message of this session was redacted since it was read.
    """
    await hold_unredacted(tx, session_id, wanted.redaction_count, lease)
    names = {"read_hash": wanted.read_hash, "through_id": wanted.through_id}
    rows = await tx.fetch(_COPY, id=new_id(), session_id=session_id, **_parameters(wanted), **names)
    return segment_from(rows[0]) if rows else await find_segment(tx, session_id, wanted.read_hash)


def _parameters(wanted: NewSegment) -> dict[str, object]:
    return {
        "from_position": wanted.from_position,
        "through_position": wanted.through_position,
        "request_hash": wanted.request_hash,
    }


async def copy_summary(tx: Statements, session_id: SessionId, copied: CopiedMessages, version_id: SummaryId) -> None:
    """Adopt a copy of the newest summary of `copied`, as the version `version_id` of a session that has none.

    The session is the same owner's and begins with copies of these messages; it gets all their segments. Nothing is
    adopted if no summary covers these messages alone, or if the original session has none in use. The caller has locked
    the owner's row, so that no message is redacted meanwhile.
    """
    original = {"session_id": session_id, "original_id": copied.session_id, "through": copied.through_position}
    new_ids = {row["id"]: new_id() for row in await tx.fetch(_IDS, **original)}
    if not new_ids:
        return
    rows = await tx.fetch(_COPY_ALL, session_id=session_id, ids=list(new_ids), new_ids=list(new_ids.values()))
    by_id = {row["id"]: row for row in rows}
    copies = {SegmentId(old): by_id[new] for old, new in new_ids.items() if new in by_id}
    versions = [version_from(row) for row in await tx.fetch(_VERSION, **original)]
    for version in versions:
        if copies.keys() >= set(version.segment_ids):
            await adopt_summary(tx, _adoption(session_id, version, copies), version_id, None)


def _adoption(session_id: SessionId, version: SummaryVersion, copies: Mapping[SegmentId, Row]) -> Adoption:
    """Return what is to be adopted in the session; `copies` are rows of its segments by the ids of their originals."""
    return Adoption(
        session_id=session_id,
        expected_version=0,
        segment_ids=tuple(SegmentId(copies[one]["id"]) for one in version.segment_ids),
        text=version.text,
        token_count=version.token_count,
        kept_facts=version.kept_facts,
        through_id=MessageId(copies[version.segment_ids[-1]]["through_id"]),
        through_position=version.through_position,
        model=version.model,
    )
