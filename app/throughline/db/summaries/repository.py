"""The summary repository: writes by turns (the interface SummaryStore), and reads and restores by users."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Repository, Statements, Transactions
from throughline.db.side_jobs import ENQUEUE_SUMMARY
from throughline.db.statements.locks import lock_session
from throughline.db.statements.rows import columns_of, fields_from, lease_lost, session_not_found, to_json
from throughline.db.statements.sql import new_id, sql
from throughline.db.summaries.adopt import (
    adopt_prepared,
    adopt_summary,
    is_adopted,
    prepare_summary,
    restore,
    restore_none,
)
from throughline.db.summaries.copy_summary import copy_segment, is_copyable
from throughline.db.summaries.segments import (
    VERSION_COLUMNS,
    chain_of_segments,
    find_segment,
    load_segments,
    save_segment,
    version_from,
)
from throughline.domain.basic_types import JsonObject, Page, SegmentId, SessionId, SummaryId, UserId
from throughline.domain.errors import NotFound, SummaryInProgress
from throughline.domain.run import Lease, LeaseRenewal
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    NewSegment,
    Segment,
    SegmentCost,
    SummaryLease,
    SummaryState,
    SummaryVersion,
)

# The lease for summaries on demand: at most one is written per session, across all processes.
#
# The lease is stored in columns of the session, so that no lock and no connection is held during the model call. It
# expires by the database's clock unless renewed, as after a crash.

_HOLDER = sql("""
    select s.summarizing_id, s.summarizing_since from sessions s
    where s.id = :session_id and s.summarizing_id <> :lease_id and s.summarizing_until > now()
""")
_TAKE = sql("""
    update sessions set summarizing_id = :lease_id, summarizing_since = now(),
        summarizing_until = now() + make_interval(secs => :seconds)
    where id = :session_id
""")
_RENEW = sql("""
    update sessions set summarizing_until = now() + make_interval(secs => :seconds)
    where id = :session_id and summarizing_id = :lease_id returning id
""")
_RELEASE = sql("""
    update sessions set summarizing_id = null, summarizing_since = null, summarizing_until = null
    where id = :session_id and summarizing_id = :lease_id
""")


async def take_lease(tx: Statements, session_id: SessionId, lease_id: UUID, seconds: float) -> SummaryLease:
    """Take the session's lease for `seconds`, if it is free, expired or already held as `lease_id`.

    Raises SummaryInProgress if another request holds it, and NotFound.
    """
    await lock_session(tx, session_id)
    await check_lease_free(tx, session_id, lease_id)
    await tx.fetch(_TAKE, session_id=session_id, lease_id=lease_id, seconds=seconds)
    return SummaryLease(id=lease_id, session_id=session_id)


async def check_lease_free(tx: Statements, session_id: SessionId, lease_id: UUID) -> None:
    """Raise SummaryInProgress if the session's lease is held, and not as `lease_id`."""
    holders = await tx.fetch(_HOLDER, session_id=session_id, lease_id=lease_id)
    if holders:
        request_id, since = holders[0]["summarizing_id"], holders[0]["summarizing_since"]
        raise SummaryInProgress(
            f"A summary of session {session_id} is being written already: {request_id}, asked for at "
            f"{since.isoformat()}. Wait for it: GET /v1/sessions/{session_id}/summaries will show it.",
            summary_request_id=str(request_id),
        )


NO_LEASE = UUID(int=0)
HELD = LeaseRenewal(is_cancel_requested=False)
_ASK_FOR_NEXT = sql(
    "with due as (select id as session_id, owner_id from sessions where id = :session_id) {enqueue}",
    enqueue=ENQUEUE_SUMMARY,
)

_SAVE_VIEW = sql("""
    with held as (
        select r.id from runs r
        where r.id = :run_id and r.session_id = :session_id and r.fence = :fence and r.status = 'running' for share
    ), saved as (
        update sessions s set view_state = cast(:view_state as jsonb)
        where s.id = :session_id and s.summary_version = :expected_version
            and (not :is_leased or exists (select 1 from held))
        returning s.id
    )
    select (select count(*) from held) as held, (select count(*) from saved) as saved
""")

_SAVE_SKIPPED = sql("""
    update sessions s
    set view_state = s.view_state || jsonb_build_object('skipped_through_position', cast(:through_position as bigint))
    where s.id = :session_id and s.summary_version = :expected_version
""")
_SAVE_FAILURE = sql("""
    update sessions set summary_failure = :reason, summary_failed_at = now() where id = :session_id
    returning summary_failed_at as failed_at
""")
_USUAL_SECONDS = sql("""
    select avg(t.duration_seconds) as seconds from (
        select duration_seconds from summaries
        where session_id = :session_id and output_tokens > 0 and level >= 0 order by id desc limit 20
    ) t
""")
_LIST = sql(
    """
    select {version_columns} from sessions s left join summary_versions v on v.session_id = s.id
        and (cast(:newest as integer) is null or v.version <= cast(:newest as integer))
    where s.id = :session_id and s.owner_id = :owner_id order by v.version desc nulls first limit :limit
""",
    version_columns=VERSION_COLUMNS,
)
_ONE = sql(
    """
    select {version_columns} from sessions s left join summary_versions v on v.session_id = s.id
        and (v.id = cast(:summary_id as uuid) or v.version = cast(:version as integer))
    where s.id = :session_id and s.owner_id = :owner_id
""",
    version_columns=VERSION_COLUMNS,
)
_COSTS = sql(
    """
    select {cost_columns} from unnest(cast(:ids as uuid[])) with ordinality as asked (id, place)
        join summaries t on t.id = asked.id and t.session_id = :session_id
        join sessions s on s.id = t.session_id and s.owner_id = :owner_id
    order by asked.place
""",
    cost_columns=columns_of(SegmentCost, "t"),
)
_LATEST = sql(
    "select {version_columns} from summary_versions v where v.session_id = :session_id and v.state = 'adopted'",
    version_columns=VERSION_COLUMNS,
)
_PREPARED = sql(
    """
    select {version_columns} from sessions s
        join summary_versions v on v.session_id = s.id and v.base_version = s.summary_version
    where s.id = :session_id and v.state = 'prepared'
""",
    version_columns=VERSION_COLUMNS,
)
_OF_STATE: Mapping[SummaryState, Statement] = {SummaryState.ADOPTED: _LATEST, SummaryState.PREPARED: _PREPARED}


class SummaryRepository(Repository):
    """Storage of segments and versions; each change of a cursor is a compare-and-set on `summary_version`.

    An adoption may queue a job that indexes messages.
    """

    def __init__(self, transactions: Transactions, notifier: Notifier) -> None:
        """Use `transactions`; notify the processes that claim side jobs through `notifier`."""
        super().__init__(transactions)
        self._notifier = notifier

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        return await find_segment(self._transactions, session_id, read_hash)

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        return await self._transactions.run(lambda tx: save_segment(tx, session_id, segment, lease))

    async def usual_seconds(self, session_id: SessionId) -> float | None:
        seconds = (await self._transactions.fetch(_USUAL_SECONDS, session_id=session_id))[0]["seconds"]
        return None if seconds is None else float(seconds)

    async def chain_of_segments(self, session_id: SessionId, first: int, before: int) -> tuple[Segment, ...]:
        return await chain_of_segments(self._transactions, session_id, first, before)

    async def copy_segment(
        self, session_id: SessionId, wanted: NewSegment, lease: Lease | None = None
    ) -> Segment | None:
        if not await is_copyable(self._transactions, session_id, wanted):
            return None
        return await self._transactions.run(lambda tx: copy_segment(tx, session_id, wanted, lease))

    async def load_parts(
        self, session_id: SessionId, state: SummaryState
    ) -> tuple[SummaryVersion, tuple[Segment, ...]] | None:
        if state not in _OF_STATE:
            raise ValueError(f"a session has many versions that are {state.value}: there are no parts of the one")
        version = await self._find(_OF_STATE[state], session_id)
        if version is None:
            return None
        return version, await load_segments(self._transactions, session_id, version.segment_ids)

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        version_id = SummaryId(new_id())
        adopted = await self._transactions.run(lambda tx: adopt_summary(tx, adoption, version_id, lease))
        self._notifier.announce_jobs()
        return adopted

    async def prepare_summary(self, adoption: Adoption) -> SummaryVersion:
        version_id = SummaryId(new_id())
        return await self._transactions.run(lambda tx: prepare_summary(tx, adoption, version_id))

    async def adopt_prepared(
        self, session_id: SessionId, summary_id: SummaryId, expected_version: int, lease: Lease | None = None
    ) -> Session:
        is_repeated = False

        async def adopt(tx: Statements) -> Session:
            nonlocal is_repeated
            was_tried, is_repeated = is_repeated, True
            if was_tried and await is_adopted(tx, summary_id):
                return await lock_session(tx, session_id)
            return await adopt_prepared(tx, session_id, summary_id, expected_version, lease)

        adopted = await self._transactions.run(adopt)
        self._notifier.announce_jobs()
        return adopted

    async def save_view(
        self, session_id: SessionId, view_state: JsonObject, expected_version: int, lease: Lease | None = None
    ) -> bool:
        rows = await self._transactions.fetch(
            _SAVE_VIEW,
            run_id=None if lease is None else lease.run_id,
            fence=None if lease is None else lease.fence,
            is_leased=lease is not None,
            session_id=session_id,
            view_state=to_json(view_state),
            expected_version=expected_version,
        )
        if lease is not None and rows[0]["held"] == 0:
            raise lease_lost(lease)
        return bool(rows[0]["saved"])

    async def save_skipped(self, session_id: SessionId, through_position: int, expected_version: int) -> None:
        await self._transactions.fetch(
            _SAVE_SKIPPED, session_id=session_id, through_position=through_position, expected_version=expected_version
        )

    async def save_failure(self, session: Session, reason: str) -> Session:
        rows = await self._transactions.fetch(_SAVE_FAILURE, session_id=session.id, reason=reason)
        return replace(session, summary_failure=reason, summary_failed_at=rows[0]["failed_at"]) if rows else session

    async def ask_for_next(self, session_id: SessionId) -> None:
        await self._transactions.fetch(_ASK_FOR_NEXT, session_id=session_id)
        self._notifier.announce_jobs()

    async def check_lease_free(self, session_id: SessionId) -> None:
        await check_lease_free(self._transactions, session_id, NO_LEASE)

    async def take_lease(self, session_id: SessionId, seconds: float) -> SummaryLease:
        lease_id = new_id()
        return await self._transactions.run(lambda tx: take_lease(tx, session_id, lease_id, seconds))

    async def renew_leases(
        self, leases: Collection[SummaryLease], seconds: float
    ) -> Mapping[SummaryLease, LeaseRenewal]:
        return {
            lease: HELD
            for lease in leases
            if await self._transactions.fetch(_RENEW, session_id=lease.session_id, lease_id=lease.id, seconds=seconds)
        }

    async def release_lease(self, lease: SummaryLease) -> None:
        await self._transactions.fetch(_RELEASE, session_id=lease.session_id, lease_id=lease.id)

    async def latest(self, session_id: SessionId) -> SummaryVersion | None:
        return await self._find(_LATEST, session_id)

    async def list(
        self, owner_id: UserId, session_id: SessionId, *, limit: int = 50, newest: int | None = None
    ) -> Page[SummaryVersion]:
        """Return a page of the versions: the prepared one first, then the newest first. Raises NotFound.

        `newest` is the previous page's `next_cursor`: the number of the first version to return. Only the prepared
        version has no number, and it is always first, so every later page begins with a numbered version.
        """
        rows = await self._transactions.fetch(
            _LIST, session_id=session_id, owner_id=owner_id, newest=newest, limit=limit + 1
        )
        if not rows:
            raise session_not_found(session_id)
        found = tuple(version_from(row) for row in rows if row["id"] is not None)
        return Page(found[:limit], str(found[limit].version) if len(found) > limit else None)

    async def get(self, owner_id: UserId, session_id: SessionId, wanted: SummaryId | int) -> SummaryVersion:
        """Return the version with this id or number. Raises NotFound."""
        by_number = isinstance(wanted, int)
        asked = {"summary_id": None if by_number else wanted, "version": wanted if by_number else None}
        rows = await self._transactions.fetch(_ONE, session_id=session_id, owner_id=owner_id, **asked)
        if not rows:
            raise session_not_found(session_id)
        if rows[0]["id"] is None:
            name = f"version {wanted} of the summary" if by_number else f"summary {wanted}"
            raise NotFound(f"There is no {name} of session {session_id}.")
        return version_from(rows[0])

    async def segment_costs(
        self, owner_id: UserId, session_id: SessionId, ids: Sequence[SegmentId]
    ) -> tuple[SegmentCost, ...]:
        """Return what the segments have cost, in the order of `ids`, without those that are not the owner's."""
        rows = await self._transactions.fetch(_COSTS, owner_id=owner_id, session_id=session_id, ids=list(ids))
        return tuple(SegmentCost(**fields_from(SegmentCost, row)) for row in rows)

    async def restore(self, owner_id: UserId, session_id: SessionId, summary_id: SummaryId | None) -> Session:
        """Adopt an earlier version again, as a new version; the cursor may move back. None removes the summary.

        Raises NotFound, InvalidInput. A turn that summarises at the same time finds another `summary_version` than
        expected and stores nothing.
        """
        if summary_id is None:
            return await self._transactions.run(lambda tx: restore_none(tx, owner_id, session_id))
        version_id = SummaryId(new_id())
        restored = await self._transactions.run(lambda tx: restore(tx, owner_id, session_id, summary_id, version_id))
        self._notifier.announce_jobs()
        return restored

    async def _find(self, statement: Statement, session_id: SessionId) -> SummaryVersion | None:
        rows = await self._transactions.fetch(statement, session_id=session_id)
        return version_from(rows[0]) if rows else None
