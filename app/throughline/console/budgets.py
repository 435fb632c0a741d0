"""Daily budgets beside the costs: what a user may spend on an agent in a day of UTC, and how much of it is spent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import UserId
from throughline.domain.usage_report import UsageGroup, UsageKey, UsageQuery, start_of_day
from throughline.http.services import Services

WHOLE = 100.0
MOST_ROWS = 100


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
        return WHOLE * self.spent / self.limit

    @property
    def length(self) -> float:
        """The length of the row's bar, of which 100 is the most."""
        return min(self.percent, WHOLE)

    @property
    def mark(self) -> float:
        """Where in the bar the limit is."""
        return min(WHOLE * WHOLE / self.percent, WHOLE) if self.spent else WHOLE


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
    return sorted(spent, key=lambda row: -row.percent)[:MOST_ROWS]


def _rows_of_user(agents: Mapping[str, AgentDefinition], group: UsageGroup) -> Iterator[BudgetRow]:
    """Yield the rows of a group of one user and one agent: none for erased users, and for agents without a budget."""
    user, name = group.key[UsageKey.USER], group.key[UsageKey.AGENT]
    if user and name and name in agents:
        yield from _rows(user, agents[name], group)


def limits_of(agent: AgentDefinition) -> Mapping[bool, float | None]:
    """Return the agent's daily limit in US dollars by True, the one in tokens by False."""
    return {True: agent.daily_budget.usd, False: agent.daily_budget.tokens}


def _rows(user: str, agent: AgentDefinition, group: UsageGroup | None) -> Iterator[BudgetRow]:
    for is_usd, limit in limits_of(agent).items():
        if limit:
            yield BudgetRow(user, agent.name, size_of(group, is_usd=is_usd), limit, is_usd)


def size_of(group: UsageGroup | None, *, is_usd: bool) -> float:
    """Return what calls have used, in US dollars as far as known or in tokens."""
    if group is None:
        return 0.0
    usage = group.usage
    return float(usage.cost_usd or 0) if is_usd else float((usage.input_tokens or 0) + (usage.output_tokens or 0))


def daily_limit(agents: Sequence[AgentDefinition], used: Sequence[UsageGroup], *, is_usd: bool) -> float | None:
    """Return the budgets of a day of the agents that were used, together; None if one of them has none.

    Calls for no agent, such as those that embed texts, have no budget and are left out.
    """
    limits = {agent.name: limits_of(agent)[is_usd] for agent in agents}
    found = [limits.get(name) for group in used if (name := group.key[UsageKey.AGENT])]
    known = [limit for limit in found if limit]
    return sum(known) if known and len(known) == len(found) else None
