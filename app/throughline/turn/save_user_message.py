"""Third node of the turn's graph: stores the user's message in the session, once per run."""

from langgraph.runtime import Runtime

from throughline.domain.run import USER_STEP
from throughline.turn.keep_step import keep_step
from throughline.turn.state import Turn, TurnState, present


async def save_user_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Append the user's message under step `user`, unless an earlier attempt of the run has stored it.

    Raises LeaseLost.
    """
    conversation = present(state.conversation)
    if conversation.own:
        return {}
    stored = await keep_step(runtime.context, USER_STEP, present(state.user))
    return {"conversation": conversation.with_own(stored)}
