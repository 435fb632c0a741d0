"""The page of costs: what model calls have cost, and how much of daily budgets is spent today."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import Query, Request, Response

from throughline.agents.definition import AgentDefinition
from throughline.console.page import PageReader, PageRoute, show
from throughline.domain.basic_types import UserId
from throughline.domain.errors import InvalidInput
from throughline.domain.usage_report import UsageGroup, UsageKey, UsageQuery, start_of_day
from throughline.http.call import PAGES, Call
from throughline.http.prefix_router import PrefixRouter
from throughline.http.services import Services

PERCENT = 100.0
MOST_DAYS, USUAL_DAYS = 366, 7
MOST_BUDGETS = 100
router = PrefixRouter(prefix=f"{PAGES}/costs", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class CostRow:
    """The calls of one group. `length` is that of its bar, in percent of the longest bar."""

    name: str
    group: UsageGroup
    length: float

    @property
    def tokens(self) -> int:
        """Tokens read and written, as far as they are known."""
        return int(used_amount(self.group, is_usd=False))


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """What a user has spent today of one limit of an agent's budget: in US dollars, or in tokens."""

    user: str
    agent: str
    spent: float
    limit: float
    is_usd: bool

    @property
    def percent(self) -> float:
        """The spent part of the limit, above 100 if more was spent."""
        return PERCENT * self.spent / self.limit

    @property
    def length(self) -> float:
        """The length of the row's bar in percent of the limit, at most 100."""
        return min(self.percent, PERCENT)


@router.get("")
async def get_costs(
    request: Request,
    call: PageReader,
    by: UsageKey = UsageKey.DAY,
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = USUAL_DAYS,
) -> Response:
    """Return the page of what model calls have cost: the reader's, for operators those of all users; and of budgets."""
    until = call.services.clock.now()
    since = start_of_day(until) - timedelta(days=days - 1)
    is_all, own_id = call.reaches_all_runs, call.principal.user_id
    is_by_user = is_all and by is UsageKey.USER
    query = UsageQuery(None if is_all else own_id, since, until, (by,))
    reading = call.services.database.reads.begin()
    groups = await reading.run(lambda each: each.usage.report(query))
    choice = {"by": by, "keys": list(UsageKey), "days": days, "is_all": is_all, "is_by_user": is_by_user}
    budgets = await _budgets(call, None if is_by_user else own_id)
    values = {**choice, **budgets, "rows": cost_rows(groups, by), "age": reading.tell_age()}
    return show(request, "costs.html", call, values)


def cost_rows(groups: Sequence[UsageGroup], by: UsageKey) -> list[CostRow]:
    """Return a row for each group: days in their order, others by cost, or by tokens if no cost is known."""
    is_usd = any(group.usage.cost_usd for group in groups)
    sizes = [used_amount(group, is_usd=is_usd) for group in groups]
    most = max(sizes, default=0.0) or 1.0
    rows = [
        CostRow(group.key.get(by) or "", group, PERCENT * size / most)
        for group, size in zip(groups, sizes, strict=True)
    ]
    return sorted(rows, key=lambda row: row.name) if by is UsageKey.DAY else sorted(rows, key=lambda row: -row.length)


def used_amount(group: UsageGroup | None, *, is_usd: bool) -> float:
    """Return what the calls of a group have used: US dollars, unknown costs as 0, or tokens read and written."""
    if group is None:
        return 0.0
    usage = group.usage
    return float(usage.cost_usd or 0) if is_usd else float((usage.input_tokens or 0) + (usage.output_tokens or 0))


async def _budgets(call: Call, owner_id: UserId | None) -> Mapping[str, object]:
    try:
        return {"budgets": await read_budgets(call.services, owner_id), "has_too_many": False}
    except InvalidInput:
        return {"budgets": (), "has_too_many": True}


async def read_budgets(services: Services, owner_id: UserId | None) -> list[BudgetRow]:
    """Return what the user has spent today of each budget; for None what all users have, the largest parts first.

    Nothing is read from the database if no agent has a budget. Raises InvalidInput if too many users have spent.
    """
    agents = {agent.name: agent for agent in services.agents.all() if any(limits_of(agent).values())}
    if not agents:
        return []
    now = services.clock.now()
    keys = (UsageKey.USER, UsageKey.AGENT)
    groups = await services.database.usage.report(UsageQuery(owner_id, start_of_day(now), now, keys))
    if owner_id is not None:
        used = {group.key[UsageKey.AGENT]: group for group in groups}
        return [row for agent in agents.values() for row in _rows("", agent, used.get(agent.name))]
    spent = [row for group in groups for row in _rows_of_user(agents, group)]
    return sorted(spent, key=lambda row: -row.percent)[:MOST_BUDGETS]


def _rows_of_user(agents: Mapping[str, AgentDefinition], group: UsageGroup) -> Iterator[BudgetRow]:
    """Yield the rows of a group of one user and one agent: none for erased users, and for agents without a budget."""
    user, name = group.key[UsageKey.USER], group.key[UsageKey.AGENT]
    if user and name and name in agents:
        yield from _rows(user, agents[name], group)


def limits_of(agent: AgentDefinition) -> Mapping[bool, float | None]:
    """Return the agent's two daily limits, by `is_usd`: True in US dollars, False in tokens. None is no limit."""
    return {True: agent.daily_budget.usd, False: agent.daily_budget.tokens}


def _rows(user: str, agent: AgentDefinition, group: UsageGroup | None) -> Iterator[BudgetRow]:
    for is_usd, limit in limits_of(agent).items():
        if limit:
            yield BudgetRow(user, agent.name, used_amount(group, is_usd=is_usd), limit, is_usd)
