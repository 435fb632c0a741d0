"""Second node of the turn's graph: loads the messages after the cursor and reduces them to fit the threshold.

The cursor is the last position that the summary covers.
"""

import asyncio
from dataclasses import replace

from langgraph.runtime import Runtime

from throughline.domain.conversation import Conversation
from throughline.domain.message import text_of
from throughline.prompting.conversation import tokens_loaded
from throughline.prompting.planning import count_new
from throughline.prompting.ready_agent import ReadyAgent
from throughline.turn.recall_history import Asked, recall_history
from throughline.turn.reduce_context import reduce_context
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.tool_node import open_calls


async def retrieve_context(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Load the session and its newest messages in one query, plan the prompt, and compact if the plan says so.

    At the same time, the history is searched for what the user's message asks.

    A failed summary does not fail the turn. The prompt is then trimmed instead; the stored messages do not change.
    """
    turn, agent = runtime.context, present(state.agent)
    user = await count_new(present(state.user), agent.counter)
    run, recall = state.claimed.run, agent.definition.context.recall
    asked = Asked(run.owner_id, run.session_id, text_of(user.content))
    conversation, quotations = await asyncio.gather(
        _load(turn, state, agent), recall_history(turn.dependencies, recall, asked)
    )
    reduced = await reduce_context(turn, agent, conversation, pending=None if conversation.own else user)
    return {"user": user, "conversation": reduced.conversation, "stages": reduced.stages, "quotations": quotations}


async def _load(turn: Turn, state: TurnState, agent: ReadyAgent) -> Conversation:
    run = state.claimed.run
    loaded = await turn.dependencies.messages.load_context(run.session_id, run.id, max_tokens=tokens_loaded(agent))
    if state.claimed.is_first_after_wait:  # whatever was begun before the wait is stored
        return loaded
    return replace(loaded, resumed_calls=frozenset(open_call.step for open_call in open_calls(loaded)))
