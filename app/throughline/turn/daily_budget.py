"""The check of a user's daily budget for an agent, before a turn or a summary on demand.

A turn is never stopped in the middle, so the last one may go over the budget.
"""

from throughline.agents.definition import AgentDefinition
from throughline.domain.errors import DailyBudgetSpent
from throughline.domain.ids import UserId
from throughline.domain.usage_report import Spending, until_next_day
from throughline.turn.state import TurnDependencies


async def check_daily_budget(dependencies: TurnDependencies, agent: AgentDefinition, owner_id: UserId) -> None:
    """Raise DailyBudgetSpent if the user has spent the agent's budget of this day of UTC.

    Nothing is read from the database if the agent has no budget. Calls of unknown cost count nothing in dollars.
    """
    budget = agent.daily_budget
    if budget.usd is None and budget.tokens is None:
        return
    spent = await dependencies.usage.spent_today(owner_id, agent.name)
    if _is_left(spent, budget.usd, budget.tokens):
        return
    raise DailyBudgetSpent(
        f"Your budget of {_limits(budget.usd, budget.tokens)} a day for the agent {agent.name} is spent "
        f"(${spent.cost_usd:.4f}, {spent.tokens:,} tokens). It is renewed at 00:00 UTC. Nothing is lost: send it again "
        "then, or choose another agent.",
        delay_seconds=until_next_day(dependencies.clock.now()).total_seconds(),
    )


def _is_left(spent: Spending, usd: float | None, tokens: int | None) -> bool:
    is_money_left = usd is None or float(spent.cost_usd) < usd
    return is_money_left and (tokens is None or spent.tokens < tokens)


def _limits(usd: float | None, tokens: int | None) -> str:
    limits = (None if usd is None else f"${usd:g}", None if tokens is None else f"{tokens:,} tokens")
    return " and ".join(limit for limit in limits if limit is not None)
