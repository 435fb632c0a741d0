"""Second node: loads what stands after the cursor, and reduces it where it no longer fits under the threshold."""

from dataclasses import replace

from langgraph.runtime import Runtime

from throughline.domain.conversation import Conversation
from throughline.prompting.conversation import tokens_loaded
from throughline.prompting.planning import count_new
from throughline.prompting.ready_agent import ReadyAgent
from throughline.turn.reduce_context import reduce_context
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.tool_node import open_calls


async def retrieve_context(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Load session and newest messages in one query, measure, plan, and adopt a further summary if the plan says so.

    A summariser that fails does not fail the turn: the view is trimmed instead, the stored messages stay.
    """
    turn, agent = runtime.context, present(state.agent)
    user = await count_new(present(state.user), agent.counter)
    conversation = await _load(turn, state, agent)
    reduced = await reduce_context(turn, agent, conversation, pending=None if conversation.own else user)
    return {"user": user, "conversation": reduced.conversation, "stages": reduced.stages}


async def _load(turn: Turn, state: TurnState, agent: ReadyAgent) -> Conversation:
    run = state.claimed.run
    loaded = await turn.dependencies.messages.load_context(run.session_id, run.id, max_tokens=tokens_loaded(agent))
    return replace(loaded, resumed_calls=frozenset(open_call.step for open_call in open_calls(loaded)))
