"""Fourth node: fits the prompt, calls the model, and stores the step or hands over the answer."""

from dataclasses import replace

from langgraph.runtime import Runtime

from app.context.fit import FittedPrompt, fit_prompt
from app.domain.errors import ContextOverflow
from app.domain.events import EventType
from app.domain.message import NewMessage, Role
from app.domain.prompt import AnswerComplete, Usage
from app.domain.text import clean_text, is_blank
from app.domain.wire import message_json, tool_call_json
from app.turn.calibrate import learn_from_overflow, learn_from_usage
from app.turn.call_model import call_model
from app.turn.ports import ModelRequest
from app.turn.prompting import context_input, count_new
from app.turn.state import Cast, Conversation, Turn, TurnState, present

OUT_OF_ROUNDS = "I have used all the tool calls I may make for one message and still wanted more. Ask me to go on."


async def llm_node(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Make one model call. An answer without tool calls ends the turn; a step with calls is stored at once.

    Every prompt is fitted here, so none is sent that is over the budget; if the provider still calls it too long,
    what it says is learned and a smaller prompt is sent once.
    """
    turn, cast, conversation = runtime.context, present(state.cast), present(state.conversation)
    try:
        step = await _ask(turn, cast, conversation)
    except ContextOverflow as overflow:
        ours = fit_prompt(context_input(cast, conversation, None)).raw_tokens
        cast = await learn_from_overflow(turn.parts, cast, overflow, ours=ours)
        step = await _ask(turn, cast, conversation)
    if not _may_use_tools(cast, conversation):
        step = without_calls(step)
    message = await count_new(_as_message(step, state), cast.counter)
    usage = _add(state.usage, step.usage)
    if not step.tool_calls:
        return {"cast": cast, "answer": message, "usage": usage}
    stored = await turn.parts.store.append_message(turn.lease, f"assistant:{rounds(conversation)}", message)
    turn.events.emit(EventType.MESSAGE_COMPLETED, {"message": message_json(stored)})
    for call in step.tool_calls:
        turn.events.emit(EventType.TOOL_CALL, tool_call_json(call))
    return {"cast": cast, "conversation": conversation.with_own(stored), "usage": usage}


def rounds(conversation: Conversation) -> int:
    """Return how many steps with tool calls this run has stored."""
    return sum(1 for message in conversation.own if message.tool_calls)


def without_calls(step: AnswerComplete) -> AnswerComplete:
    """Make an answer of a step that calls tools although none were offered: its text, or a sentence that says so."""
    if not step.tool_calls:
        return step
    return replace(step, tool_calls=(), text=step.text if not is_blank(step.text) else OUT_OF_ROUNDS)


def _may_use_tools(cast: Cast, conversation: Conversation) -> bool:
    return rounds(conversation) < cast.agent.max_tool_rounds


async def _ask(turn: Turn, cast: Cast, conversation: Conversation) -> AnswerComplete:
    """Fit the prompt and call the model; after the last tool round it is called without tools."""
    fitted = fit_prompt(context_input(cast, conversation, None))
    request = ModelRequest(
        prompt=fitted.prompt,
        tools=cast.tools,
        max_output_tokens=cast.budget.reserve_tokens,
        may_call_tools=_may_use_tools(cast, conversation),
    )
    turn.parts.metrics.prompt_sent(model=cast.model.name, tokens=fitted.tokens, window_tokens=cast.budget.window_tokens)
    step = await call_model(turn, cast.model, request)
    await _learn(turn, cast, fitted, step)
    return step


async def _learn(turn: Turn, cast: Cast, fitted: FittedPrompt, step: AnswerComplete) -> None:
    if step.usage.input_tokens is not None:
        await learn_from_usage(turn.parts, cast, ours=fitted.raw_tokens, provider=step.usage.input_tokens)


def _as_message(step: AnswerComplete, state: TurnState) -> NewMessage:
    return NewMessage(
        role=Role.ASSISTANT,
        content=clean_text(step.text),
        source=state.claimed.run.source,
        tool_calls=step.tool_calls,
        metadata={"finish_reason": step.finish_reason} if step.finish_reason == "length" else {},
    )


def _add(total: Usage, step: Usage) -> Usage:
    """Sum what was reported; None stays None where nothing was."""
    return Usage(
        input_tokens=_sum(total.input_tokens, step.input_tokens),
        output_tokens=_sum(total.output_tokens, step.output_tokens),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second
