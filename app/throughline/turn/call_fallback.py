"""Fallback models: if an agent's model is unavailable, the next of its models answers, until the turn ends.

A fallback model is never called after a refusal: no quota, a wrong key and an invalid request are errors to be seen. An
agent's model that failed several times in a row is passed over for a while, so that not every turn waits for it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from throughline.agents.definition import AgentDefinition
from throughline.domain.conversation import Conversation
from throughline.domain.errors import (
    ModelRejected,
    ModelUnavailable,
    PromptCannotFit,
    SettingInvalid,
    ThroughlineError,
    TurnTimeout,
    provider_words,
)
from throughline.prompting.conversation import reload_conversation
from throughline.prompting.ready_agent import ReadyAgent, assemble_agent
from throughline.turn.call_model import reset_shown_text
from throughline.turn.state import Turn

T = TypeVar("T")
Call = Callable[[ReadyAgent, Conversation], Awaitable[T]]

_CANNOT_STAND_IN = (ModelUnavailable, ModelRejected, PromptCannotFit, SettingInvalid)
log = structlog.get_logger(__name__)


async def call_first_available(turn: Turn, agent: ReadyAgent, conversation: Conversation, call: Call[T]) -> T:
    """Return the result of `call` with the agent's model, or with its first fallback model that answers.

    Fallback models are tried only if the agent's model is unavailable. If none answers, the first model's error is
    raised.
    """
    if not agent.definition.fallback_models:
        return await call(agent, conversation)
    first: ThroughlineError = ModelUnavailable(
        f"{agent.model.name}: the model failed several times in a row and is not called for a minute; try again later"
    )
    if turn.dependencies.breakers.acquire(_breaker(agent)):
        try:
            return await _guarded(turn, agent, conversation, call)
        except ModelUnavailable as error:
            first = error
    for definition in agent.definition.fallbacks():
        log.warning(
            "model unavailable, fallback model called",
            run_id=str(turn.lease.run_id),
            model=agent.model.name,
            fallback=definition.model,
        )
        try:
            return await _call_fallback(turn, definition, conversation, call)
        except _CANNOT_STAND_IN as error:
            log.warning(
                "fallback model failed",
                run_id=str(turn.lease.run_id),
                fallback=definition.model,
                error=error.code,
                **provider_words(error),
            )
    raise first


async def _call_fallback(turn: Turn, definition: AgentDefinition, conversation: Conversation, call: Call[T]) -> T:
    """Call with another model. The conversation is loaded again: the failed call may have compacted it."""
    reset_shown_text(turn)
    agent = await assemble_agent(turn.dependencies, definition)
    messages = turn.dependencies.messages
    return await call(agent, await reload_conversation(messages, turn.lease.run_id, agent, conversation))


async def _guarded(turn: Turn, agent: ReadyAgent, conversation: Conversation, call: Call[T]) -> T:
    breakers, name = turn.dependencies.breakers, _breaker(agent)
    try:
        result = await call(agent, conversation)
    except (ModelUnavailable, TurnTimeout):
        breakers.failed(name)
        raise
    except BaseException:
        breakers.released(name)
        raise
    breakers.succeeded(name)
    return result


def _breaker(agent: ReadyAgent) -> str:
    return f"{agent.model.calibration_key} for turns"
