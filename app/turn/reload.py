"""Loading a session's context again in the middle of a turn, where somebody else has changed its summary."""

from dataclasses import replace

from app.domain.ids import RunId
from app.turn.ports import LoadedContext, MessageStore
from app.turn.state import Conversation, ReadyAgent

WINDOWS_LOADED = 2
"""A turn reads at most the newest rows worth so many windows."""


async def reload_conversation(
    messages: MessageStore, run_id: RunId | None, agent: ReadyAgent, conversation: Conversation
) -> Conversation:
    """Return the conversation as it is stored now; what this turn knows of its own calls stays."""
    loaded = await messages.load_context(conversation.session.id, run_id, max_tokens=tokens_loaded(agent))
    return replace(conversation_from(loaded), resumed_calls=conversation.resumed_calls)


def conversation_from(loaded: LoadedContext) -> Conversation:
    """Return what was loaded as a turn works with it."""
    return Conversation(
        session=loaded.session,
        history=loaded.history,
        own=loaded.own,
        pinned=loaded.pinned,
        prepared=loaded.prepared,
    )


def tokens_loaded(agent: ReadyAgent) -> int:
    """Return how many tokens of messages a turn loads."""
    return WINDOWS_LOADED * agent.budget.window_tokens
