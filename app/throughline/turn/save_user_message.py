"""Third node of the turn's graph: stores the user's message in the session, once per run."""

from langgraph.runtime import Runtime

from throughline.domain.run import USER_STEP
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.store_step import store_step


async def save_user_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Append the user's message under step `user`, unless an earlier attempt of the run has stored it.

    Raises LeaseLost.
    """
    conversation = present(state.conversation)
    if conversation.own:
        return {}
    stored = await store_step(runtime.context, USER_STEP, present(state.user))
    return {"conversation": conversation.with_own(stored)}
