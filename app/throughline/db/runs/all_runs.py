"""The runs of all users, for operators: newest first, page by page, and whose run one is.

The only statements on runs that name no owner on behalf of a request. Routes check the scope before they call them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.statements.rows import error_from, fields_from, run_not_found, wait_from
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import Page, RunId, SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.run import ListedRun, RunStatus, open_wait

LAST_SEQ = 2**63 - 1
FIRST_TIME, LAST_TIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
MOST_SKEW = timedelta(minutes=10)
"""Most time by which the id of a run and `created_at` may differ: processes make ids before they store the run."""

_COLUMNS = """
    r.id, r.session_id, r.owner_id, r.agent, r.seq, r.status, r.source, r.attempt, r.cancel_requested, r.created_at,
    r.started_at, r.finished_at, r.error_type, r.error_detail, r.provider_message, r.wait, r.waits_until,
    case when r.status = 'running' then r.worker end as worker,
    extract(epoch from r.lease_until - now())::float8 as lease_seconds"""
# No index has the time of submission, but the ids of runs begin with it. The primary key finds the number of the last
# run before the time, and of the first one after it, so that only runs in between are read. A run whose id was made by
# a wrong clock ends nothing: its time of submission must be there, too.
_ENDS = """
    select
        coalesce((
            select a.seq from runs a where a.id < :first_id and a.created_at < cast(:since as timestamptz)
            order by a.id desc limit 1
        ), 0) as after,
        least(:before, (
            select b.seq from runs b where b.id > :last_id and b.created_at >= cast(:until as timestamptz)
            order by b.id limit 1
        )) as before
"""
_WITHIN = """
    r.seq > e.after and r.seq < e.before
    and r.created_at >= cast(:since as timestamptz) and r.created_at < cast(:until as timestamptz)
"""
# Each status is read from the end of its part of the index `runs_by_status`, so that no page sorts more than the
# newest runs of each.
_OF_ALL = sql(
    """
    with ends as materialized ({ends}), page as (
        select f.* from ends e, unnest(cast(:statuses as text[])) as s (status) cross join lateral (
            select {columns} from runs r where r.status = s.status and {within} order by r.seq desc limit :limit
        ) f order by f.seq desc limit :limit
    )
    select p.*, u.name as owner from page p join users u on u.id = p.owner_id order by p.seq desc
""",
    columns=_COLUMNS,
    ends=_ENDS,
    within=_WITHIN,
)
_OF_SESSION = sql(
    """
    with ends as materialized ({ends}), page as (
        select {columns} from ends e, runs r
        where r.session_id = :session_id and r.status = any(cast(:statuses as text[])) and {within}
        order by r.seq desc limit :limit
    )
    select p.*, u.name as owner from page p join users u on u.id = p.owner_id order by p.seq desc
""",
    columns=_COLUMNS,
    ends=_ENDS,
    within=_WITHIN,
)
_OWNER = sql("select r.owner_id from runs r where r.id = :run_id")


@dataclass(frozen=True, slots=True)
class AllRunsQuery:
    """The runs to list: those submitted before the run with the number `before`; None leaves a filter out.

    They were submitted at `since` or later, and before `until`.
    """

    limit: int = 50
    before: int | None = None
    status: RunStatus | None = None
    session_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


def select_runs(query: AllRunsQuery) -> tuple[Statement, Mapping[str, object]]:
    """Return the statement that reads the runs of a page and the next one, with its parameters."""
    statuses = list(RunStatus) if query.status is None else [query.status]
    parameters: dict[str, object] = {
        "statuses": [status.value for status in statuses],
        "before": LAST_SEQ if query.before is None else query.before,
        "limit": query.limit + 1,
        "since": query.since or FIRST_TIME,
        "until": query.until or LAST_TIME,
        "first_id": None if query.since is None else _id_at(query.since, -MOST_SKEW),
        "last_id": None if query.until is None else _id_at(query.until, MOST_SKEW),
    }
    if query.session_id is None:
        return _OF_ALL, parameters
    return _OF_SESSION, {**parameters, "session_id": SessionId(query.session_id)}


def _id_at(time: datetime, offset: timedelta) -> UUID:
    """Return the smallest id of version 7 that is made at `time` plus `offset`."""
    milliseconds = round((time.timestamp() + offset.total_seconds()) * 1000)
    return UUID(int=max(milliseconds, 0) << 80)


class AllRunsRepository:
    """The runs of all users, for operators."""

    def __init__(self, transactions: Transactions) -> None:
        """Use `transactions`."""
        self._transactions = transactions

    async def list(self, query: AllRunsQuery) -> Page[ListedRun]:
        """Return one page of the runs, the last submitted first. The cursor is the number of the page's last run."""
        statement, parameters = select_runs(query)
        rows = await self._transactions.fetch(statement, **parameters)
        runs = tuple(map(_listed_from, rows[: query.limit]))
        return Page(runs, str(runs[-1].seq) if len(rows) > query.limit else None)

    async def owner_of(self, run_id: RunId) -> UserId:
        """Return the owner of a run. Raises NotFound."""
        rows = await self._transactions.fetch(_OWNER, run_id=run_id)
        if not rows:
            raise run_not_found(run_id)
        return UserId(rows[0]["owner_id"])


def _listed_from(row: Row) -> ListedRun:
    status = RunStatus(row["status"])
    read = {
        "status": status,
        "source": Source(row["source"]),
        "error": error_from(row),
        "waiting_for": open_wait(status, wait_from(row["wait"], row["waits_until"])),
    }
    return ListedRun(**fields_from(ListedRun, {**row, **read}))
