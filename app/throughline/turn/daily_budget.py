"""The check of a user's daily budget for an agent: before turns, model calls after a wait, and summaries on demand.

A call is never stopped in the middle, so the last one may go over the budget. Turns that run at the same time reserve
what they are expected to use. Nothing is stored for it: the reservation is computed from rows of running runs, which
a process that dies leaves behind.
"""

from decimal import Decimal

from throughline.agents.definition import AgentDefinition
from throughline.domain.errors import DailyBudgetReserved, DailyBudgetSpent
from throughline.domain.ids import RunId, UserId
from throughline.domain.run import Run
from throughline.domain.usage_report import DaySpending, Spending, until_next_day
from throughline.prompting.ready_agent import ReadyAgent
from throughline.turn.state import TurnDependencies

UNKNOWN_SHARE = 10
"""Until a turn of the day has ended, a turn is expected to use the budget divided by this number."""

RETRY_SECONDS = 5.0
"""Delay after which a turn may be sent again that other turns left no budget for."""


async def check_daily_budget(
    dependencies: TurnDependencies,
    agent: AgentDefinition,
    owner_id: UserId,
    *,
    run_id: RunId | None = None,
    answer_tokens: int = 0,
) -> None:
    """Raise DailyBudgetSpent if the user has spent the agent's budget of this day of UTC.

    Raise DailyBudgetReserved if running turns are expected to use the rest: those claimed before `run_id`.
    A turn is expected to use as much as the day's ended turns did on average; before the first has ended, a fixed share
    of the budget, and at least `answer_tokens`.

    Nothing is read from the database if the agent has no budget. Calls of unknown cost count nothing in dollars.
    """
    budget = agent.daily_budget
    if budget.usd is None and budget.tokens is None:
        return
    day = await dependencies.usage.spent_today(owner_id, agent.name, run_id)
    limits = _limits(budget.usd, budget.tokens)
    if not _is_left(day.spent, budget.usd, budget.tokens):
        raise DailyBudgetSpent(
            f"Your budget of {limits} a day for the agent {agent.name} is spent ({_amount(day.spent)}). It is renewed "
            "at 00:00 UTC. Nothing is lost: send it again then, or choose another agent.",
            delay_seconds=until_next_day(dependencies.clock.now()).total_seconds(),
        )
    reserved = _reserved(day, agent, answer_tokens)
    together = Spending(day.spent.tokens + reserved.tokens, day.spent.cost_usd + reserved.cost_usd)
    if _is_left(together, budget.usd, budget.tokens):
        return
    raise DailyBudgetReserved(
        f"What is left of your budget of {limits} a day for the agent {agent.name} is reserved for your turns that are "
        f"running ({day.running_turns}). Spent are {_amount(day.spent)}. Nothing is lost: send it again once one of "
        "them has ended.",
        delay_seconds=RETRY_SECONDS,
    )


async def check_turn_budget(dependencies: TurnDependencies, agent: ReadyAgent, run: Run) -> None:
    """Check the budget for the next model call of a run. Raises DailyBudgetSpent and DailyBudgetReserved."""
    tokens = agent.budget.reserve_tokens
    await check_daily_budget(dependencies, agent.definition, run.owner_id, run_id=run.id, answer_tokens=tokens)


def _reserved(day: DaySpending, agent: AgentDefinition, answer_tokens: int) -> Spending:
    """Return what the running turns are expected to use beyond what they have used."""
    budget, turns = agent.daily_budget, day.running_turns
    if day.ended_turns:
        tokens, cost = day.ended.tokens // day.ended_turns, day.ended.cost_usd / day.ended_turns
    else:
        tokens = max(answer_tokens, (budget.tokens or 0) // UNKNOWN_SHARE)
        cost = Decimal(str(budget.usd or 0)) / UNKNOWN_SHARE
    return Spending(max(turns * tokens - day.running.tokens, 0), max(turns * cost - day.running.cost_usd, Decimal()))


def _is_left(spent: Spending, usd: float | None, tokens: int | None) -> bool:
    is_money_left = usd is None or float(spent.cost_usd) < usd
    return is_money_left and (tokens is None or spent.tokens < tokens)


def _amount(spent: Spending) -> str:
    return f"${spent.cost_usd:.4f}, {spent.tokens:,} tokens"


def _limits(usd: float | None, tokens: int | None) -> str:
    limits = (None if usd is None else f"${usd:g}", None if tokens is None else f"{tokens:,} tokens")
    return " and ".join(limit for limit in limits if limit is not None)
