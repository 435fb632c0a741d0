"""Storage of model calls, and reports of what they used."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache

from throughline.context.calibration import Calibration
from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Repository
from throughline.db.statements.rows import INSERT_CALLS, USAGE_COLUMNS, call_parameters, usage_from
from throughline.db.statements.sql import new_id, sql
from throughline.db.tables.partitions import earlier_id, first_id
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import InvalidInput
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import DaySpending, ModelCall, Payer, Spending, UsageGroup, UsageKey, UsageQuery

_LOAD = sql("select ratio, samples, learned_window from token_calibration where model = :model")
_SAVE = sql("""
    insert into token_calibration (model, ratio, samples, learned_window)
    values (:model, :ratio, :samples, :learned_window)
    on conflict (model) do update set ratio = excluded.ratio, samples = excluded.samples,
        learned_window = excluded.learned_window, updated_at = now()
""")


class CalibrationRepository(Repository):
    """Storage of calibrations; implements the interface CalibrationStore (ports/storage.py)."""

    async def load(self, model: str) -> Calibration | None:
        rows = await self._transactions.fetch(_LOAD, model=model)
        return Calibration(**rows[0]) if rows else None

    async def save(self, model: str, calibration: Calibration) -> None:
        await self._transactions.fetch(
            _SAVE,
            model=model,
            ratio=calibration.ratio,
            samples=calibration.samples,
            learned_window=calibration.learned_window,
        )


MOST_GROUPS = 10_000
"""Most groups of one report."""

CLOCK_DIFFERENCE = timedelta(days=1)
"""Most by which an id's time, of a process's clock, differs from its row's, of the database's.

Ids choose the partitions to read, and times the rows.
"""

SESSION_CLOCK_DIFFERENCE = timedelta(hours=1)
"""Most by which the id of a session's call is of an earlier time than the session's: each process has its own clock."""

_STORE = sql(
    INSERT_CALLS,
    payer="cast(:owner_id as uuid), cast(:session_id as uuid), cast(:run_id as uuid), cast(:agent as text)",
    source="(values (1)) as one",
)
# Both a claim's id and the id of a run that its submission claimed grow with the time of the claim.
_SPENT = sql("""
    with calls as materialized (
        select c.run_id, coalesce(c.input_tokens, 0) + coalesce(c.output_tokens, 0) as tokens,
            coalesce(c.cost_usd, 0) as cost_usd
        from model_calls c
        where c.owner_id = :owner_id and c.agent = :agent and c.id >= :first_id
            and c.created_at >= date_trunc('day', now() at time zone 'utc') at time zone 'utc'
    ), open as materialized (
        select r.id, coalesce(r.claim_id, r.id) as claimed from runs r
        where r.owner_id = :owner_id and r.agent = :agent and r.status = 'running'
    ), earlier as materialized (
        select o.id from open o where o.id is distinct from cast(:run_id as uuid)
            and o.claimed < coalesce((select mine.claimed from open mine where mine.id = :run_id),
                'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ), used as (
        select coalesce(sum(c.tokens), 0) as tokens, coalesce(sum(c.cost_usd), 0) as cost_usd
        from earlier e left join calls c on c.run_id = e.id group by e.id
    ), marked as (
        select c.*, c.run_id is not null and c.run_id not in (select id from open) as is_ended from calls c
    )
    select coalesce(sum(tokens), 0) as tokens, coalesce(sum(cost_usd), 0) as cost_usd,
        coalesce(sum(tokens) filter (where is_ended), 0) as ended_tokens,
        coalesce(sum(cost_usd) filter (where is_ended), 0) as ended_cost_usd,
        count(distinct run_id) filter (where is_ended) as ended_turns,
        (select coalesce(array_agg(array[u.tokens, u.cost_usd]), '{}') from used u) as running
    from marked
""")
_KEYS: Mapping[UsageKey, str] = {
    UsageKey.DAY: "to_char(c.created_at at time zone 'utc', 'YYYY-MM-DD')",
    UsageKey.USER: "u.name",
    UsageKey.AGENT: "nullif(c.agent, '')",
    UsageKey.MODEL: "c.model",
    UsageKey.PURPOSE: "c.purpose",
}
"""SQL expressions over `model_calls c` and its owner `u`."""

_SUMS = ", ".join(f"sum(c.{name}) as {name}" for name in USAGE_COLUMNS.split(", "))
_REPORT = """
    select {keys} count(*) as calls, count(*) filter (where c.cost_usd is null) as unpriced_calls, {sums}
    from model_calls c left join users u on u.id = c.owner_id
    where c.created_at >= :since and c.created_at < :until and c.id >= :first_id and c.id < :end_id
        {and_is_theirs}
    group by {groups} order by {order} limit :limit
"""


_OF_SESSION = sql(
    """
    select {sums} from model_calls c
    where c.owner_id = :owner_id and c.session_id = :session_id and c.id >= :first_id
""",
    sums=_SUMS,
)


class UsageRepository(Repository):
    """Implements the interface UsageStore, and reports what calls used."""

    async def store_calls(self, payer: Payer, calls: Sequence[ModelCall]) -> None:
        if calls:
            await self._transactions.fetch(
                _STORE,
                owner_id=payer.owner_id,
                session_id=payer.session_id,
                run_id=payer.run_id,
                agent=payer.agent,
                **call_parameters(calls),
            )

    async def spent_today(self, owner_id: UserId, agent: str, run_id: RunId | None = None) -> DaySpending:
        first = earlier_id(new_id(), timedelta(days=1) + CLOCK_DIFFERENCE)
        (row,) = await self._transactions.fetch(_SPENT, owner_id=owner_id, agent=agent, run_id=run_id, first_id=first)
        return DaySpending(
            spent=Spending(int(row["tokens"]), row["cost_usd"]),
            ended=Spending(int(row["ended_tokens"]), row["ended_cost_usd"]),
            ended_turns=row["ended_turns"],
            running=tuple(Spending(int(tokens), cost_usd) for tokens, cost_usd in row["running"]),
        )

    async def of_session(self, owner_id: UserId, session_id: SessionId) -> Usage:
        """Return what the calls that the owner pays for the session have used together; all None without calls.

        All calls since the session's id was made are read, so the session should be new.
        """
        first = earlier_id(session_id, SESSION_CLOCK_DIFFERENCE)
        rows = await self._transactions.fetch(_OF_SESSION, owner_id=owner_id, session_id=session_id, first_id=first)
        return usage_from(rows[0])

    async def report(self, query: UsageQuery) -> tuple[UsageGroup, ...]:
        """Return the groups, by day and then by cost. Raises InvalidInput for a report of more than MOST_GROUPS."""
        rows = await self._transactions.fetch(
            _report(query.group_by, is_of_owner=query.owner_id is not None),
            owner_id=query.owner_id,
            since=query.since,
            until=query.until,
            first_id=first_id(query.since, -CLOCK_DIFFERENCE),
            end_id=first_id(query.until, CLOCK_DIFFERENCE),
            limit=MOST_GROUPS + 1,
        )
        if len(rows) > MOST_GROUPS:
            raise InvalidInput(
                f"The report has more than {MOST_GROUPS:,} groups: choose a shorter time or fewer fields.",
                field="group_by",
            )
        return tuple(_group(row, query.group_by) for row in rows if row["calls"])


@cache
def _report(group_by: tuple[UsageKey, ...], *, is_of_owner: bool) -> Statement:
    """Return the statement for these fields. They are named by their numbers, because `user` is a word of SQL.

    One statement for both kinds of report could not use the index by owner in the plan that a connection keeps.
    """
    keys = "".join(f'{_KEYS[key]} as "{key.value}", ' for key in group_by)
    numbers = [str(number) for number in range(1, len(group_by) + 1)]
    days = [number for number, key in zip(numbers, group_by, strict=True) if key is UsageKey.DAY]
    order = ", ".join([*days, "sum(c.cost_usd) desc nulls last", "count(*) desc", *numbers])
    and_is_theirs = "and c.owner_id = :owner_id" if is_of_owner else ""
    groups = ", ".join(numbers) or "()"
    return sql(_REPORT, keys=keys, sums=_SUMS, and_is_theirs=and_is_theirs, groups=groups, order=order)


def _group(row: Row, group_by: tuple[UsageKey, ...]) -> UsageGroup:
    return UsageGroup({key: row[key.value] for key in group_by}, row["calls"], row["unpriced_calls"], usage_from(row))
