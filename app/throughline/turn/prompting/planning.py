"""Conversion of an agent and a conversation into the context engine's input, and calls of the engine's functions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from throughline.context.compaction.compaction_triggers import WINDOWS_LOADED, CompactionTrigger
from throughline.context.measure import count_message
from throughline.context.plan_context import ContextPlan, plan_context
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import group_messages
from throughline.context.view.placeholder_texts import hints_for
from throughline.context.view.view_state import view_state_from
from throughline.domain.basic_types import RunId
from throughline.domain.message import Message, NewMessage
from throughline.domain.session import Session
from throughline.domain.summary import Conversation, Prepared
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.ports.models import TokenCounter
from throughline.ports.storage import MessageStore
from throughline.turn.prompting.ready_agent import PromptDependencies, ReadyAgent, assemble_unconnected_agent


async def at_rest(dependencies: PromptDependencies, session: Session) -> tuple[ReadyAgent, Conversation]:
    """Return agent and conversation of a session outside any turn. Raises NotFound if the agent no longer exists."""
    agent = await assemble_unconnected_agent(dependencies, dependencies.agents.get(session.agent))
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


T = TypeVar("T")
CHARACTERS_PER_PIECE = 100
"""Characters that are counted in the time that a message, or a call, takes besides its text."""


def make_context_input(agent: ReadyAgent, conversation: Conversation, pending: NewMessage | None) -> ContextInput:
    """Return the context engine's input; `pending` is the user's message while it is not stored yet."""
    session = conversation.session
    return ContextInput(
        policy=agent.definition.context,
        budget=agent.budget,
        factor=agent.factor,
        system_prompt=agent.system_prompt,
        tools_tokens=agent.tools_tokens,
        summary=session.conversation_summary,
        summary_tokens=session.summary_tokens,
        summary_through_position=session.summary_through_position,
        history=conversation.history,
        own=tuple(_returned_to(agent.model.calibration_key, row) for row in conversation.own),
        user=pending,
        count=agent.counter.count,
        counter_name=agent.counter.name,
        pinned=_pinned(conversation),
        view_state=view_state_from(session.view_state),
        prepared=conversation.prepared,
        model_key=agent.model.calibration_key,
        recall=hints_for(agent.definition.tools),
    )


def _returned_to(model_key: str, row: Message) -> Message:
    """Return the row without reasoning that another model wrote: no other than that one may be sent it."""
    if row.reasoning is None or row.reasoning.model == model_key:
        return row
    return replace(row, reasoning=None)


def _pinned(conversation: Conversation) -> tuple[Message, ...]:
    """Return the pinned messages at or before the cursor, including those that a compaction has just passed."""
    cursor = conversation.session.summary_through_position
    known = {row.position for row in conversation.pinned}
    passed = (row for row in (*conversation.history, *conversation.own) if row.pinned and row.position <= cursor)
    return (*conversation.pinned, *(row for row in passed if row.position not in known))


async def count_new(message: NewMessage, counter: TokenCounter) -> NewMessage:
    """Return `message` with its token count, which is stored with it so that it is counted only once.

    Reasoning is not counted: later turns do not send it back.
    """
    return (await count_all_new([message], counter))[0]


async def count_all_new(messages: Sequence[NewMessage], counter: TokenCounter) -> tuple[NewMessage, ...]:
    """Return the messages with their token counts, as `count_new` does; many are counted in a thread together."""
    plain = [replace(message, reasoning=None) for message in messages]
    counts = await run_off_loop_if_large(
        _estimated_work(plain), lambda: [count_message(message, counter.count) for message in plain]
    )
    return tuple(
        replace(message, token_count=tokens, counter=counter.name)
        for message, tokens in zip(messages, counts, strict=True)
    )


async def compute_context(context_input: ContextInput, compute: Callable[[ContextInput], T]) -> T:
    """Return the result of the engine's function `compute`, run in a thread if the conversation is long."""
    pending = () if context_input.user is None else (context_input.user,)
    characters = (
        _estimated_work((*context_input.rows, *context_input.pinned, *pending))
        + len(context_input.system_prompt)
        + len(context_input.summary)
    )
    return await run_off_loop_if_large(characters, lambda: compute(context_input))


def _estimated_work(messages: Sequence[Message | NewMessage]) -> int:
    """Return the characters of the messages, with those that messages and calls take besides."""
    return characters_of(messages) + CHARACTERS_PER_PIECE * sum(1 + len(message.tool_calls) for message in messages)


async def plan_call(
    agent: ReadyAgent,
    conversation: Conversation,
    pending: NewMessage | None = None,
    *,
    cap_tokens: int | None = None,
    forced: CompactionTrigger | None = None,
) -> ContextPlan:
    """Return the context engine's plan for the next model call.

    `pending` is the user's message while it is not stored. If the provider refused the call's prompt before, the next
    one stays below `cap_tokens` (our count), and the plan compacts regardless of the triggers.
    """
    context_input = replace(make_context_input(agent, conversation, pending), cap_tokens=cap_tokens)
    forced = forced if cap_tokens is None else CompactionTrigger.OVERFLOW
    return await compute_context(context_input, partial(plan_context, forced=forced))
