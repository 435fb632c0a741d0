"""Fourth node of the turn's graph: reduces the context, calls the model, and stores a step or returns the answer."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog
from langgraph.runtime import Runtime

from throughline.agents.definition import AgentDefinition, ReasoningUse
from throughline.context.fit_prompt import FittedPrompt
from throughline.context.quoted_memories import tokens_of_notes
from throughline.domain.basic_types import JsonValue, MessageId
from throughline.domain.errors import (
    AnswerNotInFormat,
    ContextOverflow,
    InvalidInput,
    ModelRejected,
    ModelUnavailable,
    PromptCannotFit,
    SettingInvalid,
    TemporaryError,
    ThroughlineError,
    TurnTimeout,
    provider_words,
)
from throughline.domain.message import NewMessage, Role, clean_text, is_blank
from throughline.domain.prompt import MAX_ANSWER_BYTES, NO_TOOLS, AnswerComplete, ModelRequest, ResponseFormat
from throughline.domain.reasoning import Reasoning, bounded_reasoning
from throughline.domain.run import RunError
from throughline.domain.summary import Conversation
from throughline.domain.tool import is_json_object
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import SchemaInvalid, check_schema, find_misfit
from throughline.turn.call_model import WHOLE_TURN, call_model, patience_before_fallback, reset_shown_text
from throughline.turn.daily_budget import check_turn_budget
from throughline.turn.prompting.calibrate import learn_from_overflow, learn_from_usage
from throughline.turn.prompting.planning import count_new, reload_conversation
from throughline.turn.prompting.ready_agent import ReadyAgent, assemble_agent, correction_of, turns_key
from throughline.turn.recall_history import quote_history
from throughline.turn.recall_memories import quote_memories
from throughline.turn.reduce_context import FittedContext, fit_context, reduce_context
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.store_step import store_model_step

OUT_OF_ROUNDS = "I have used all the tool calls I may make for one message and still wanted more. Ask me to go on."
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelCallResult:
    """A successful model call: the agent and the context it was made with, and the step that the model answered."""

    agent: ReadyAgent
    context: FittedContext
    step: AnswerComplete


async def llm_node(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Make one model call. An answer without tool calls ends the turn; a step with tool calls is stored at once.

    The context is reduced before every call, so that no prompt exceeds the budget. If the provider still refuses the
    prompt as too long, its error is used to correct our token counts, the conversation is compacted harder, and one
    smaller prompt is sent.
    """
    turn, conversation = runtime.context, present(state.conversation)
    if _is_budget_asked(state):
        await check_turn_budget(turn.dependencies, present(state.agent), state.claimed.run)

    async def call(agent: ReadyAgent, conversation: Conversation) -> ModelCallResult:
        corrected = replace(_with_tool_choice(agent, state), correction=state.correction)
        return await _call_with_retries(turn, corrected, conversation, state)

    result = await call_first_available(turn, present(state.agent), conversation, call)
    agent, conversation = result.agent, result.context.conversation
    step = result.step if _may_use_tools(agent, conversation) else without_calls(result.step)
    message = await count_new(_as_message(step, state, agent, turn.events.message_id), agent.counter)
    found: dict[str, object] = {
        "agent": agent,
        "conversation": conversation,
        "stages": (*state.stages, *result.context.stages),
    }
    note_prompt(turn, result, (*state.stages, *result.context.stages))
    if not step.tool_calls:
        return {**found, **await _ended(turn, state, replace(result, step=step), message)}
    stored = await store_model_step(turn, f"assistant:{steps_stored(conversation)}", message)
    return {**found, "conversation": conversation.with_own(replace(stored, reasoning=message.reasoning))}


def _is_budget_asked(state: TurnState) -> bool:
    """Return whether the next call needs budget left: a turn's first one, and every one after a wait.

    A turn that never waits is finished, as is one that another process began; a turn may wait any number of times.
    """
    run = state.claimed.run
    is_first = run.attempt == 1 and not state.correction and not steps_taken(state)
    return bool(run.wait_count) or is_first


async def _ended(turn: Turn, state: TurnState, result: ModelCallResult, message: NewMessage) -> dict[str, object]:
    """Return the answer; or, after a first one that does not fit the response format, what the model is told of it."""
    misfit = await misfit_of(result.agent, result.step)
    if misfit and not state.correction:
        log.info(
            "answer not in format, model asked again", run_id=str(turn.lease.run_id), model=result.agent.model.name
        )
        reset_shown_text(turn)
        return {"correction": correction_of(misfit, result.step.text)}
    if misfit:
        message = replace(message, metadata={**message.metadata, "rejected": True})
    return {"answer": message, "misfit": misfit}


def note_prompt(turn: Turn, result: ModelCallResult, stages: Sequence[str]) -> None:
    """Keep the size of the prompt and the stages of the turn for the log line of the turn's end."""
    noted, fitted = turn.last_prompt, result.context.fitted
    noted.tokens, noted.unreduced_tokens = fitted.tokens, fitted.unreduced_tokens
    noted.window_tokens = result.agent.budget.window_tokens
    noted.stages = tuple(dict.fromkeys(stages))


def steps_stored(conversation: Conversation) -> int:
    """Return how many steps with tool calls this run has stored."""
    return sum(1 for message in conversation.own if message.tool_calls)


def rounds(agent: ReadyAgent, conversation: Conversation) -> tuple[int, int]:
    """Return how many of this run's steps went on by themselves, and how many waited for the client.

    The latter called only tools of the client. They have a limit of their own, which is higher: each one needs the
    client to go on. A step whose arguments are all no JSON object is never sent to it.
    """
    of_client = {tool.name for tool in agent.definition.request_tools}
    steps = [message.tool_calls for message in conversation.own if message.tool_calls]
    waited = sum(
        1
        for calls in steps
        if all(call.name in of_client for call in calls) and any(is_json_object(call.arguments) for call in calls)
    )
    return len(steps) - waited, waited


def without_calls(step: AnswerComplete) -> AnswerComplete:
    """Return the step as an answer without its tool calls, for a model that called tools although none were allowed.

    An empty text is replaced by OUT_OF_ROUNDS.
    """
    if not step.tool_calls:
        return step
    return replace(step, tool_calls=(), text=step.text if not is_blank(step.text) else OUT_OF_ROUNDS)


async def _call_with_retries(
    turn: Turn, agent: ReadyAgent, conversation: Conversation, state: TurnState
) -> ModelCallResult:
    """Reduce the context and call the model; after a refusal as too long, try once with a smaller prompt.

    The smaller prompt has no quotations of messages or memories.
    """

    async def fit(agent: ReadyAgent, refused: FittedContext | None) -> FittedContext:
        if refused is None:
            reduced = await reduce_context(turn, agent, conversation)
            context = await fit_context(turn, reduced, tokens_of_notes(reduced.view, state.quotations, state.memories))
            return quote_memories(turn, quote_history(turn, context, state.quotations), state.memories)
        reduced = await reduce_context(turn, agent, refused.conversation, refused_tokens=refused.fitted.raw_tokens)
        return await fit_context(turn, replace(reduced, stages=(*refused.stages, "refused", *reduced.stages)))

    return await call_fitted(turn, agent, fit)


Fit = Callable[[ReadyAgent, FittedContext | None], Awaitable[FittedContext]]


async def call_fitted(turn: Turn, agent: ReadyAgent, fit: Fit, *, is_shown: bool = True) -> ModelCallResult:
    """Call the model with the prompt that `fit` makes; after a refusal as too long, once with a smaller one.

    `fit` is given the refused prompt, None at first. Readers see the answer while it is written if it `is_shown`.
    Raises the provider's ContextOverflow if no smaller prompt is possible.
    """
    context = await fit(agent, None)
    try:
        return await _call(turn, agent, context, is_shown=is_shown)
    except ContextOverflow as overflow:
        turn.dependencies.metrics.overflow_met(model=agent.model.name)
        if is_shown:
            reset_shown_text(turn)
        agent = await learn_from_overflow(turn.dependencies, agent, overflow, context.fitted)
        try:
            smaller = await fit(agent, context)
        except PromptCannotFit:
            raise overflow from None
    return await _call(turn, agent, smaller, is_shown=is_shown)


async def _call(turn: Turn, agent: ReadyAgent, context: FittedContext, *, is_shown: bool) -> ModelCallResult:
    """Call the model, without tools after the last tool round, and learn from its report of the prompt's tokens.

    Nothing is learned while tools are forbidden, or only some are sent: our count includes all, but not every provider
    receives or counts them.
    """
    fitted = context.fitted
    allowed = agent.definition.allowed_tools
    request = ModelRequest(
        prompt=fitted.prompt,
        tools=tuple(tool for tool in agent.tools if allowed is None or tool.name in allowed),
        max_output_tokens=min(agent.budget.reserve_tokens, agent.definition.max_output_tokens or MAX_ANSWER_BYTES),
        may_call_tools=_may_use_tools(agent, context.conversation),
        max_answer_bytes=turn.dependencies.config.max_answer_bytes,
        parameters=agent.definition.parameters,
        response_format=agent.definition.response_format,
        tool_choice=None if agent.definition.tool_choice == NO_TOOLS else agent.definition.tool_choice,
        taken_call_ids=frozenset(call.id for message in context.conversation.own for call in message.tool_calls),
        is_shown=is_shown,
    )
    turn.dependencies.metrics.prompt_sent(
        model=agent.model.name, tokens=fitted.tokens, window_tokens=agent.budget.window_tokens
    )
    definition = agent.definition
    patience = patience_before_fallback(definition.fallback_after_seconds) if definition.fallback_models else WHOLE_TURN
    step = await call_model(turn, agent.model, request, patience=patience)
    is_sent_as_counted = request.tools == agent.tools and (request.may_call_tools or not request.tools)
    if step.usage.input_tokens is not None and is_sent_as_counted:
        agent = await _learned(turn, agent, fitted, reported=step.usage.input_tokens)
    return ModelCallResult(agent, context, step)


async def _learned(turn: Turn, agent: ReadyAgent, fitted: FittedPrompt, *, reported: int) -> ReadyAgent:
    """Return the agent with what the usage report taught; a database error must not discard the finished answer."""
    try:
        return await learn_from_usage(turn.dependencies, agent, fitted, reported=reported)
    except TemporaryError as error:
        log.warning("token calibration not updated by answer", run_id=str(turn.lease.run_id), error=error.code)
        return agent


def steps_taken(state: TurnState) -> int:
    """Return how many steps with tool calls the model of this run has taken; the request may have brought others."""
    return steps_stored(present(state.conversation)) - state.claimed.run.input.steps_brought


def _with_tool_choice(agent: ReadyAgent, state: TurnState) -> ReadyAgent:
    """Return the agent without the request's choice of tools once the run has taken a step of its own.

    Otherwise a model that must call a tool would never answer. A request that forbids tools does so for the whole turn.
    """
    is_first = not state.claimed.run.wait_count and not steps_taken(state)
    if is_first or agent.definition.tool_choice == NO_TOOLS:
        return agent
    return replace(agent, definition=replace(agent.definition, tool_choice=None, allowed_tools=None))


def _may_use_tools(agent: ReadyAgent, conversation: Conversation) -> bool:
    if agent.definition.tool_choice == NO_TOOLS:
        return False
    of_agent, of_client = rounds(agent, conversation)
    return of_agent < agent.definition.max_tool_rounds and of_client < agent.definition.max_client_rounds


def _as_message(step: AnswerComplete, state: TurnState, agent: ReadyAgent, message_id: MessageId) -> NewMessage:
    metadata: dict[str, JsonValue] = {"finish_reason": "length"} if step.finish_reason == "length" else {}
    if agent.definition.is_fallback:
        metadata["fallback_model"] = agent.model.name
    return NewMessage(
        id=message_id,
        role=Role.ASSISTANT,
        content=clean_text(step.text),
        source=state.claimed.run.source,
        tool_calls=step.tool_calls,
        metadata=metadata,
        reasoning=_kept_reasoning(step, agent.definition.reasoning),
    )


def _kept_reasoning(step: AnswerComplete, use: ReasoningUse) -> Reasoning | None:
    """Return what is stored of the step's reasoning, None if nothing is.

    An answer needs no parts: only the steps of the running turn are sent back with theirs.
    """
    if step.reasoning is None:
        return None
    text = "" if use is ReasoningUse.DROP else bounded_reasoning(step.reasoning.text)
    parts = step.reasoning.parts if step.tool_calls else ()
    kept = replace(step.reasoning, text=text, parts=parts, is_shown=use is ReasoningUse.SHOW)
    return kept if text or parts else None


# Fallback models: if an agent's model is unavailable, the next of its models answers, until the turn ends.
#
# A fallback model is never called after a refusal: no quota, a wrong key and an invalid request are errors to be seen.
# An agent's model that failed several times in a row is passed over for a while, so that not every turn waits for it.

T = TypeVar("T")
Call = Callable[[ReadyAgent, Conversation], Awaitable[T]]

_CANNOT_STAND_IN = (ModelUnavailable, ModelRejected, PromptCannotFit, SettingInvalid)


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
    return turns_key(agent.model.calibration_key)


# The response format: its schema, and whether an answer fits it.

SCHEMA_FIELD = "overrides.response_format.json_schema.schema"


async def check_response_format(wanted: ResponseFormat) -> None:
    """Raise InvalidInput unless answers can be checked against the schema."""
    try:
        await run_off_loop_if_large(len(json.dumps(wanted.schema)), lambda: check_schema(wanted.schema), large=2_000)
    except SchemaInvalid as error:
        raise InvalidInput(f"The JSON schema {error}.", field=SCHEMA_FIELD) from error


async def misfit_of(agent: ReadyAgent, step: AnswerComplete) -> str:
    """Return why the answer does not fit the turn's response format; '' if it fits, or the turn has none."""
    wanted = agent.definition.response_format
    if wanted is None:
        return ""
    misfit = await _find_misfit(wanted, step.text)
    if misfit and step.is_cut:
        return f"it was cut off at {agent.budget.reserve_tokens:,} tokens (context.response_reserve); {misfit}"
    return misfit


def not_in_format(misfit: str) -> RunError:
    """Return the error of a run whose second answer does not fit either."""
    return RunError(
        AnswerNotInFormat.code,
        f"The model was asked twice and did not answer in the response format: {misfit}. Its last answer is kept. "
        "Send the message again, perhaps with a simpler schema or another model.",
    )


async def _find_misfit(wanted: ResponseFormat, text: str) -> str:
    """Check the text in a thread, because the time depends on the client's schema, too."""
    return await run_off_loop_if_large(1, lambda: find_misfit(wanted.schema, text), large=0)
