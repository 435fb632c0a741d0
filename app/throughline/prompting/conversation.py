"""Loading of a session's conversation, inside and outside turns, and its change by a new summary."""

from collections.abc import Sequence
from dataclasses import replace

from throughline.context.groups import group_messages
from throughline.domain.conversation import Conversation
from throughline.domain.ids import RunId
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import Prepared
from throughline.ports.storage import MessageStore
from throughline.prompting.ready_agent import PromptDependencies, ReadyAgent, assemble_agent

WINDOWS_LOADED = 2
"""Number of windows' worth of newest messages that a turn loads at most."""


async def at_rest(dependencies: PromptDependencies, session: Session) -> tuple[ReadyAgent, Conversation]:
    """Return agent and conversation of a session outside any turn. Raises NotFound if the agent no longer exists."""
    agent = await assemble_agent(dependencies, dependencies.agents.get(session.agent))
    conversation = await dependencies.messages.load_context(session.id, None, max_tokens=tokens_loaded(agent))
    return agent, conversation


async def reload_conversation(
    messages: MessageStore, run_id: RunId | None, agent: ReadyAgent, conversation: Conversation
) -> Conversation:
    """Return the conversation as it is stored now, after another process has changed its summary during a turn.

    `resumed_calls`, the calls that were open when the turn was resumed, are kept.
    """
    loaded = await messages.load_context(conversation.session.id, run_id, max_tokens=tokens_loaded(agent))
    return replace(loaded, resumed_calls=conversation.resumed_calls)


def tokens_loaded(agent: ReadyAgent) -> int:
    """Return the most tokens of messages that a turn loads."""
    return WINDOWS_LOADED * agent.budget.window_tokens


def with_summary(conversation: Conversation, session: Session) -> Conversation:
    """Return the conversation after its summary became that of `session`.

    Summarised messages leave the history, except pinned groups. A summary prepared on the old one is dropped. The
    stored messages do not change.
    """
    cursor = session.summary_through_position
    pins = _with_pinned_groups([message for message in conversation.history if message.position <= cursor])
    return replace(
        conversation,
        session=session,
        history=tuple(message for message in conversation.history if message.position > cursor),
        pinned=tuple(sorted((*conversation.pinned, *pins), key=lambda message: message.position)),
        prepared=None,
    )


def with_prepared(session: Session, prepared: Prepared) -> Session:
    """Return the session as it will be once the prepared summary is adopted, as far as a prompt depends on it."""
    return replace(
        session,
        conversation_summary=prepared.text,
        summary_tokens=prepared.token_count,
        summary_through_position=prepared.through_position,
    )


def _with_pinned_groups(messages: Sequence[Message]) -> list[Message]:
    """Return the messages whose group contains a pinned one."""
    groups = (group.messages for group in group_messages(messages))
    return [message for group in groups if any(member.pinned for member in group) for message in group]
