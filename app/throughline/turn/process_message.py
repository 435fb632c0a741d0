"""First node: checks the run, finds its agent and makes it ready for the turn."""

from langgraph.runtime import Runtime

from throughline.domain.errors import RunAbandoned
from throughline.domain.events import AnswerReset, RunStarted
from throughline.domain.run import Run, user_message
from throughline.prompting.ready_agent import assemble_agent
from throughline.turn.state import Turn, TurnState


async def process_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Announce the run, refuse one that keeps killing its workers, and set `agent` and `user`.

    Raises RunAbandoned, NotFound (the agent is gone), SettingInvalid (its model).
    """
    turn, run = runtime.context, state.claimed.run
    _announce(turn, run)
    if run.attempt > turn.dependencies.config.max_attempts:
        raise RunAbandoned(
            f"This message was tried {run.attempt - 1} times and no worker lived to finish it. "
            "Send it again, perhaps changed; the conversation itself goes on."
        )
    agent = await assemble_agent(turn.dependencies, turn.dependencies.agents.get(run.agent))
    return {"agent": agent, "user": user_message(run)}


def _announce(turn: Turn, run: Run) -> None:
    """A further attempt resets what readers were shown by the one that died."""
    if run.attempt > 1:
        turn.events.emit(AnswerReset(run.attempt))
    turn.events.emit(RunStarted(run))
