"""First node of the turn's graph: emits the run's start event and prepares the agent that answers."""

from langgraph.runtime import Runtime

from throughline.agents.definition import ReasoningUse
from throughline.domain.errors import RunAbandoned
from throughline.domain.events import AnswerReset, RunStarted
from throughline.domain.run import Run, user_message
from throughline.prompting.ready_agent import assemble_agent
from throughline.turn.daily_budget import check_turn_budget
from throughline.turn.state import Turn, TurnState


async def process_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Emit `RunStarted`, refuse a run with too many attempts, and set `agent` and `user` in the state.

    Raises RunAbandoned after `max_attempts` attempts, DailyBudgetSpent, DailyBudgetReserved, and SettingInvalid
    if the agent's model is not configured.
    """
    turn, run = runtime.context, state.claimed.run
    _announce(turn, run)
    if run.attempt > turn.dependencies.config.max_attempts:
        raise RunAbandoned(
            f"This message was tried {run.attempt - 1} times, and each time its worker ended before the answer was "
            "complete. Send it again, perhaps changed. The conversation can continue."
        )
    agent = await assemble_agent(turn.dependencies, state.definition)
    if run.attempt == 1 and not run.wait_count:  # after a wait the results are stored first: llm_node checks
        await check_turn_budget(turn.dependencies, agent, run)
    turn.events.shows_reasoning = agent.definition.reasoning is ReasoningUse.SHOW
    return {"agent": agent, "user": user_message(run)}


def _announce(turn: Turn, run: Run) -> None:
    """Emit `RunStarted`; before it, `AnswerReset` if this is not the run's first attempt.

    The reset makes readers discard the text of the attempt that died.
    """
    if run.attempt > 1:
        turn.events.emit(AnswerReset(run.attempt))
    turn.events.emit(RunStarted(run))
