"""Stretches: stored once for what was read, found again, and checked before a version is made of them."""

from collections.abc import Sequence

from throughline.db.connection.transactions import Statements
from throughline.db.statements.locks import hold_lease
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.rows import session_not_found
from throughline.db.statements.sql import sql
from throughline.db.statements.summary_rows import STRETCH_COLUMNS, kept_facts_json, stretch_from
from throughline.domain.errors import NotFound, SummaryConflict
from throughline.domain.ids import SessionId, StretchId
from throughline.domain.run import Lease
from throughline.domain.summary import Adoption, NewStretch, Stretch

_FIND = sql(
    """
    select {stretch_columns} from summaries t
    where t.session_id = :session_id and t.read_hash = :read_hash
""",
    stretch_columns=STRETCH_COLUMNS,
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
    returning {stretch_columns}
""",
    stretch_columns=STRETCH_COLUMNS,
)
_IN_ORDER = sql(
    """
    select {stretch_columns} from unnest(cast(:ids as uuid[])) with ordinality as asked (id, place)
        join summaries t on t.id = asked.id and t.session_id = :session_id
    order by asked.place
""",
    stretch_columns=STRETCH_COLUMNS,
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
    select {stretch_columns} from chain t order by t.from_position
""",
    stretch_columns=STRETCH_COLUMNS,
)
_RANGES = sql("""
    select t.from_position, t.through_position, t.through_id
    from unnest(cast(:ids as uuid[])) with ordinality as asked (id, place)
        left join summaries t on t.id = asked.id and t.session_id = :session_id
    order by asked.place
""")


async def find_stretch(tx: Statements, session_id: SessionId, read_hash: str) -> Stretch | None:
    """Return the stretch that was made from exactly this, None where it was never made."""
    rows = await tx.fetch(_FIND, session_id=session_id, read_hash=read_hash)
    return stretch_from(rows[0]) if rows else None


async def save_stretch(tx: Statements, session_id: SessionId, stretch: NewStretch, lease: Lease | None) -> Stretch:
    """Store the stretch, or return the one with its `read_hash`, also one that was being stored at the same time.

    Raises LeaseLost, SummaryConflict where a message was redacted since it was read, and NotFound where session or last
    message are missing.
    """
    await hold_unredacted(tx, session_id, stretch.redaction_count, lease)
    rows = await tx.fetch(_SAVE, id=new_id(), session_id=session_id, **_parameters(stretch))
    if rows:
        return stretch_from(rows[0])
    found = await find_stretch(tx, session_id, stretch.read_hash)
    if found is None:
        raise NotFound(
            f"There is no message {stretch.through_id} at position {stretch.through_position} of session {session_id}."
        )
    return found


async def hold_unredacted(tx: Statements, session_id: SessionId, redaction_count: int, lease: Lease | None) -> None:
    """Keep the session's messages from being redacted until the transaction ends.

    Raises LeaseLost, NotFound, and SummaryConflict where `redaction_count` has changed.
    """
    await hold_lease(tx, session_id, lease)
    kept = await tx.fetch(_KEEP_SESSION, session_id=session_id)
    if not kept:
        raise session_not_found(session_id)
    if kept[0]["redaction_count"] != redaction_count:
        raise SummaryConflict(f"A message of session {session_id} was redacted since it was read. Read it again.")


async def load_stretches(tx: Statements, session_id: SessionId, ids: Sequence[StretchId]) -> tuple[Stretch, ...]:
    """Return the stretches in the order of `ids`; those that are missing, or another session's, are left out."""
    rows = await tx.fetch(_IN_ORDER, session_id=session_id, ids=list(ids))
    return tuple(stretch_from(row) for row in rows)


async def chain_of_stretches(tx: Statements, session_id: SessionId, first: int, before: int) -> tuple[Stretch, ...]:
    """Return stored stretches that follow each other from the position `first` on and end before `before`.

    The longest one is taken at each step, of equal ones the newest; merged ones and those they were made of are there.
    """
    rows = await tx.fetch(_CHAIN, session_id=session_id, first=first, before=before)
    return tuple(stretch_from(row) for row in rows)


async def check_stretches(tx: Statements, adoption: Adoption) -> None:
    """Raise ValueError unless the stretches are the session's and cover 1..through without gap or overlap.

    A mistake of the caller: no race can bring it about, since stretches never change.
    """
    rows = await tx.fetch(_RANGES, session_id=adoption.session_id, ids=list(adoption.stretch_ids))
    reached, last_id = 0, None
    for stretch_id, row in zip(adoption.stretch_ids, rows, strict=True):
        if row["from_position"] != reached + 1:
            what = "is not the session's" if row["from_position"] is None else f"starts at {row['from_position']}"
            raise ValueError(f"stretch {stretch_id} {what}; one that starts at position {reached + 1} must stand there")
        reached, last_id = row["through_position"], row["through_id"]
    if (reached, last_id) != (adoption.through_position, adoption.through_id):
        raise ValueError(
            f"the stretches end with message {last_id} at {reached}, the summary with {adoption.through_id} at "
            f"{adoption.through_position}"
        )


def _parameters(stretch: NewStretch) -> dict[str, object]:
    return {
        "from_position": stretch.from_position,
        "through_position": stretch.through_position,
        "through_id": stretch.through_id,
        "level": stretch.level,
        "text": stretch.text,
        "kept_facts": kept_facts_json(stretch.kept_facts),
        "token_count": stretch.token_count,
        "model": stretch.model,
        "prompt_version": stretch.prompt_version,
        "read_hash": stretch.read_hash,
        "request_hash": stretch.request_hash,
        "input_tokens": stretch.input_tokens,
        "output_tokens": stretch.output_tokens,
        "duration_seconds": stretch.duration_seconds,
    }
