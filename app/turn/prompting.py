"""From the state of a turn to the values the context engine works on."""

import asyncio
from dataclasses import replace

from app.context.context_input import ContextInput
from app.context.measure import count_message
from app.context.recall_hints import hints_for
from app.context.view_state import view_state_from
from app.domain.message import Message, NewMessage, text_of
from app.turn.ports import TokenCounter
from app.turn.state import Cast, Conversation

OFF_LOOP_CHARACTERS = 50_000


def context_input(cast: Cast, conversation: Conversation, pending: NewMessage | None) -> ContextInput:
    """Return what the engine needs; `pending` is the user's message while it is not stored yet."""
    session = conversation.session
    return ContextInput(
        policy=cast.agent.context,
        budget=cast.budget,
        factor=cast.factor,
        system_prompt=cast.agent.system_prompt,
        tools_tokens=cast.tools_tokens,
        summary=session.conversation_summary,
        summary_tokens=session.summary_tokens,
        summary_through_position=session.summary_through_position,
        history=conversation.history,
        own=conversation.own,
        user=pending,
        count=cast.counter.count,
        counter_name=cast.counter.name,
        pinned=_pinned(conversation),
        view_state=view_state_from(session.view_state),
        prepared=conversation.prepared,
        model_key=cast.model.calibration_key,
        recall=hints_for(cast.agent.tools),
    )


def _pinned(conversation: Conversation) -> tuple[Message, ...]:
    """Return the pinned messages that are not after the cursor; a compaction may have just moved it past some."""
    cursor = conversation.session.summary_through_position
    known = {row.position for row in conversation.pinned}
    passed = (row for row in (*conversation.history, *conversation.own) if row.pinned and row.position <= cursor)
    return (*conversation.pinned, *(row for row in passed if row.position not in known))


async def count_new(message: NewMessage, counter: TokenCounter) -> NewMessage:
    """Return `message` with its token count, which is stored beside it and never taken again."""
    if _characters(message) > OFF_LOOP_CHARACTERS:
        tokens = await asyncio.to_thread(count_message, message, counter.count)
    else:
        tokens = count_message(message, counter.count)
    return replace(message, token_count=tokens, counter=counter.name)


def _characters(message: NewMessage) -> int:
    return len(text_of(message.content)) + sum(len(call.arguments) for call in message.tool_calls)
