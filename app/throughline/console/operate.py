"""The pages for operators, whose keys have the scope `operate`: processes and queues, runs, keys; and costs for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from throughline.console.budgets import WHOLE, daily_limit, read_budgets, size_of
from throughline.console.page import PageOperator, PageReader, PageRoute, may_operate, show
from throughline.db.runs.all_runs import LAST_SEQ, AllRunsQuery
from throughline.domain.basic_types import UserId
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import DEFAULT_SCOPES, Scope
from throughline.domain.run import RunStatus
from throughline.domain.usage_report import UsageGroup, UsageKey, UsageQuery, start_of_day
from throughline.http.call import PAGES, Call
from throughline.http.route_errors import PROBLEM_KINDS
from throughline.http.services import Services

LISTED, MOST_DAYS, USUAL_DAYS = 50, 366, 7
router = APIRouter(prefix=PAGES, include_in_schema=False, route_class=PageRoute)


@router.get("/operate")
async def get_state(request: Request, call: PageOperator) -> Response:
    """Return the page of the service's state: processes, queues, side jobs, circuit breakers and agents."""
    state = await call.services.read_status()
    agents, files = call.services.agents.all(), call.services.agents.describe_files()
    values = {"state": state, "agents": zip(agents, files.agents, strict=True), "refused": files.refused}
    return show(request, "operate.html", call, values)


class Period(StrEnum):
    """The times of submission among which an operator chooses."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


PERIODS = {
    Period.HOUR: ("last hour", timedelta(hours=1)),
    Period.DAY: ("last 24 hours", timedelta(days=1)),
    Period.WEEK: ("last 7 days", timedelta(days=7)),
}


@router.get("/operate/runs")
async def get_runs(
    request: Request,
    call: PageOperator,
    status: RunStatus | None = None,
    last: Period | None = None,
    cursor: Annotated[int | None, Query(ge=1, le=LAST_SEQ)] = None,
) -> Response:
    """Return the page of the runs of all users, the newest first; with `last` those that were submitted since then."""
    since = None if last is None else call.services.clock.now() - PERIODS[last][1]
    page = await call.services.database.all_runs.list(AllRunsQuery(LISTED, cursor, status, since=since))
    values = {"page": page, "status": status, "last": last, "kinds": PROBLEM_KINDS}
    choices = {"statuses": list(RunStatus), "periods": PERIODS, "address": runs_address}
    return show(request, "runs.html", call, {**values, **choices})


def runs_address(**asked: object) -> str:
    """Return the relative address of the page of runs with these filters; those that are None or empty are left out."""
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"operate/runs?{query}" if query else "operate/runs"


@router.get("/operate/keys")
async def get_keys(request: Request, call: PageOperator) -> Response:
    """Return the page of the API keys, the valid ones first."""
    keys = sorted(
        await call.services.database.keys.list(), key=lambda key: (key.revoked_at is not None, key.created_at)
    )
    values = {"keys": keys, "scopes": [scope for scope in Scope if scope in call.principal.scopes]}
    return show(request, "keys.html", call, {**values, "usual": DEFAULT_SCOPES})


@dataclass(frozen=True, slots=True)
class CostRow:
    """The calls of one group, and the length of its bar: 100 for the most. `mark` is where a day's budget is in it."""

    name: str
    group: UsageGroup
    length: float
    mark: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens read and written, as far as they are known."""
        return int(size_of(self.group, is_usd=False))


@router.get("/costs")
async def get_costs(
    request: Request,
    call: PageReader,
    by: UsageKey = UsageKey.DAY,
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = USUAL_DAYS,
) -> Response:
    """Return the page of what model calls have cost: the reader's, for operators those of all users; and of budgets."""
    until = call.services.clock.now()
    since = start_of_day(until) - timedelta(days=days - 1)
    is_all, own_id = may_operate(call), call.principal.user_id
    is_by_user = is_all and by is UsageKey.USER
    query = UsageQuery(None if is_all else own_id, since, until, (by,))
    groups = await call.services.database.usage.report(query)
    is_usd = any(group.usage.cost_usd for group in groups)
    limit = None if is_all or by is not UsageKey.DAY else await _daily_limit(call.services, query, is_usd=is_usd)
    values = {
        "rows": cost_rows(groups, by, limit),
        "by": by,
        "keys": list(UsageKey),
        "days": days,
        "is_all": is_all,
        "limit": limit,
        "is_usd": is_usd,
        "is_by_user": is_by_user,
        **await _budgets(call, None if is_by_user else own_id),
    }
    return show(request, "costs.html", call, values)


async def _daily_limit(services: Services, query: UsageQuery, *, is_usd: bool) -> float | None:
    used = await services.database.usage.report(replace(query, group_by=(UsageKey.AGENT,)))
    return daily_limit(services.agents.all(), used, is_usd=is_usd)


async def _budgets(call: Call, owner_id: UserId | None) -> Mapping[str, object]:
    try:
        return {"budgets": await read_budgets(call.services, owner_id), "has_too_many": False}
    except InvalidInput:
        return {"budgets": (), "has_too_many": True}


def cost_rows(groups: Sequence[UsageGroup], by: UsageKey, limit: float | None = None) -> list[CostRow]:
    """Return a row for each group: days in their order, others by cost, or by tokens if no cost is known.

    `limit` is the budget of a day, in US dollars if a cost is known, else in tokens.
    """
    is_usd = any(group.usage.cost_usd for group in groups)
    sizes = [size_of(group, is_usd=is_usd) for group in groups]
    most = max([*sizes, limit or 0.0]) or 1.0
    mark = None if limit is None else WHOLE * limit / most
    rows = [
        CostRow(group.key.get(by) or "", group, WHOLE * size / most, mark)
        for group, size in zip(groups, sizes, strict=True)
    ]
    return sorted(rows, key=lambda row: row.name) if by is UsageKey.DAY else sorted(rows, key=lambda row: -row.length)
