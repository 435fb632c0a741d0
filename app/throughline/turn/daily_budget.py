"""The check of a user's daily budget for an agent: before turns, model calls after a wait, and summaries on demand.

A call is never stopped in the middle, so the last one may go over the budget. Turns that run at the same time reserve
what they are expected to use. Nothing is stored for it: the reservation is computed from rows of running runs, which
a process that dies leaves behind.
"""

from decimal import Decimal

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import UserId
from throughline.domain.errors import DailyBudgetReserved, DailyBudgetSpent
from throughline.domain.run import Run
from throughline.domain.usage_report import DaySpending, Spending, until_next_day
from throughline.turn.prompting.ready_agent import ReadyAgent
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
    run: Run | None = None,
    answer_tokens: int = 0,
) -> None:
    """Raise DailyBudgetSpent if the user has spent the agent's budget of this day of UTC.

    Raise DailyBudgetReserved if other running turns are expected to use the rest: those claimed before `run`, all
    without it. A run that goes on after a wait is not refused for this: what it was given would be lost to it.

    Before the first turn of the day has ended, a turn is expected to use a fixed share of the budget, and at least
    `answer_tokens`. Later it is what the ended turns used on average. As long as they are few, a part of the share is
    the least, so that one short turn does not let many long ones begin.

    Nothing is read from the database if the agent has no budget. Calls of unknown cost count nothing in dollars.
    """
    budget = agent.daily_budget
    if budget.usd is None and budget.tokens is None:
        return
    day = await dependencies.usage.spent_today(owner_id, agent.name, None if run is None else run.id)
    if not _is_left(day.spent, budget.usd, budget.tokens):
        raise DailyBudgetSpent(
            f"Your budget of {_limits(budget.usd, budget.tokens)} a day for the agent {agent.name} is spent "
            f"({_amount(day.spent)}). It is renewed at 00:00 UTC. Nothing is lost: send it again then, "
            "or choose another agent.",
            delay_seconds=until_next_day(dependencies.clock.now()).total_seconds(),
        )
    if run is None or not run.wait_count:
        _check_reserved(day, agent, answer_tokens)


def _check_reserved(day: DaySpending, agent: AgentDefinition, answer_tokens: int) -> None:
    """Raise DailyBudgetReserved if the running turns are expected to use what is left."""
    budget, reserved = agent.daily_budget, _reserved(day, agent, answer_tokens)
    together = Spending(day.spent.tokens + reserved.tokens, day.spent.cost_usd + reserved.cost_usd)
    if _is_left(together, budget.usd, budget.tokens):
        return
    raise DailyBudgetReserved(
        f"What is left of your budget of {_limits(budget.usd, budget.tokens)} a day for the agent {agent.name} is "
        f"reserved for your turns that are running ({len(day.running)}). Spent are {_amount(day.spent)}. Nothing is "
        "lost: send it again once one of them has ended.",
        delay_seconds=RETRY_SECONDS,
    )


async def check_turn_budget(dependencies: TurnDependencies, agent: ReadyAgent, run: Run) -> None:
    """Check the budget for the next model call of a run. Raises DailyBudgetSpent and DailyBudgetReserved."""
    tokens = agent.budget.reserve_tokens
    await check_daily_budget(dependencies, agent.definition, run.owner_id, run=run, answer_tokens=tokens)


def _reserved(day: DaySpending, agent: AgentDefinition, answer_tokens: int) -> Spending:
    """Return what the running turns are expected to use beyond what each has used."""
    budget, ended = agent.daily_budget, day.ended_turns
    tokens = max(answer_tokens, (budget.tokens or 0) // UNKNOWN_SHARE) // (ended + 1)
    cost = Decimal(str(budget.usd or 0)) / UNKNOWN_SHARE / (ended + 1)
    if ended:
        tokens, cost = max(tokens, day.ended.tokens // ended), max(cost, day.ended.cost_usd / ended)
    return Spending(
        sum(max(tokens - used.tokens, 0) for used in day.running),
        sum((max(cost - used.cost_usd, Decimal()) for used in day.running), Decimal()),
    )


def _is_left(spent: Spending, usd: float | None, tokens: int | None) -> bool:
    is_money_left = usd is None or float(spent.cost_usd) < usd
    return is_money_left and (tokens is None or spent.tokens < tokens)


def _amount(spent: Spending) -> str:
    return f"${spent.cost_usd:.4f}, {spent.tokens:,} tokens"


def _limits(usd: float | None, tokens: int | None) -> str:
    limits = (None if usd is None else f"${usd:g}", None if tokens is None else f"{tokens:,} tokens")
    return " and ".join(limit for limit in limits if limit is not None)
