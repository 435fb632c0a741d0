"""Fifth node of the turn's graph: runs the tool calls that have no result yet, and stores each result at once.

Calls that need something from outside are left open, and the turn waits for it.
"""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial

from langgraph.runtime import Runtime

from throughline.agents.definition import RecallReach
from throughline.context.budget import result_limit
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.elicitation import (
    ASK_USER,
    MAX_QUESTIONS,
    NO_ELICITATION,
    QUESTION_COUNT_KEY,
    QUESTIONS_KEY,
    Elicitation,
    PausedCall,
    read_input,
)
from throughline.domain.errors import InvalidInput
from throughline.domain.events import ToolAnswered, ToolProgress
from throughline.domain.message import Content, ImageBlock, Message, NewMessage, Role, TextBlock, ToolCall, text_of
from throughline.domain.summary import Conversation
from throughline.domain.tool import (
    OUTSIDE,
    ApprovalDecision,
    AwaitedCall,
    Resolution,
    ResultRoom,
    ToolContext,
    ToolOutcome,
    WaitKind,
    is_json_object,
)
from throughline.domain.tool_server import CallProgress, ServedCall
from throughline.ports.tracing import ToolCallPart, traced
from throughline.turn.prompting.planning import count_new
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.store_step import store_step


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call of the running turn that has no result yet.

    `step` names the call's position in the run, so that its result is stored only once. `index` is the call's position
    among the calls of its assistant message, counted from 0.
    """

    call: ToolCall
    step: str
    index: int


ALWAYS_ADMITTED_BYTES = 1000
"""Size in bytes up to which a result is always kept: the error that would replace it is no shorter."""


@dataclass(slots=True)
class ResultByteBudget:
    """Byte budget (UTF-8) for all tool results of one step: `most_bytes` in total, of which `left_bytes` remain."""

    most_bytes: int
    left_bytes: int

    def admit(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome, or an error in its place if its text is larger than what is left of the byte budget.

        A text of up to ALWAYS_ADMITTED_BYTES is always admitted.
        """
        size = len(outcome.text.encode()) + sum(len(image.url) for image in outcome.images)
        if size <= max(self.left_bytes, ALWAYS_ADMITTED_BYTES):
            self.left_bytes -= size
            return outcome
        return ToolOutcome(
            f"The result was left out: it has {size} bytes, and of the {self.most_bytes} bytes the results of one step "
            f"may have together {max(self.left_bytes, 0)} are left. Whatever the call does is done. "
            "Ask for less, or for it alone.",
            is_error=True,
        )


async def tool_node(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Run the open tool calls concurrently; a call that fails gets an error result for the model to read.

    The calls that wait for something from outside are returned as `waiting`. Raises LeaseLost.
    """
    turn, conversation = runtime.context, present(state.conversation)
    slots, room = asyncio.Semaphore(turn.dependencies.config.max_parallel_tools), _step_room(turn, conversation)

    async def answer(open_call: OpenCall) -> Message | AwaitedCall:
        async with slots:
            return await _answer(turn, state, open_call, room)

    calls = open_calls(conversation)
    most = turn.dependencies.config.max_calls_per_step
    kinds = {
        open_call.step: None if open_call.index >= most else wait_kind(state, open_call.call) for open_call in calls
    }
    answered = await _side_by_side([answer(open_call) for open_call in calls if kinds[open_call.step] is None])
    results = [one for one in answered if isinstance(one, Message)]
    waiting = [AwaitedCall(open_call.call, kind) for open_call in calls if (kind := kinds[open_call.step]) is not None]
    questions = [one for one in answered if isinstance(one, AwaitedCall)]
    return {
        "conversation": conversation.with_own(*sorted(results, key=lambda message: message.position)),
        "waiting": (*waiting, *questions),
    }


async def _side_by_side(
    answers: Sequence[Coroutine[None, None, Message | AwaitedCall]],
) -> list[Message | AwaitedCall]:
    """Run the coroutines concurrently and return all results.

    The first exception cancels the other coroutines and is raised itself, not inside an ExceptionGroup.
    """
    tasks = [asyncio.create_task(answer) for answer in answers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def has_open_calls(conversation: Conversation) -> bool:
    """Return whether a tool call of this run has no result yet."""
    return bool(open_calls(conversation))


def open_calls(conversation: Conversation) -> tuple[OpenCall, ...]:
    """Return the tool calls of this run's last step that have no result, in the model's order."""
    steps = [message for message in conversation.own if message.tool_calls]
    if not steps:
        return ()
    last = steps[-1]
    answered = {message.tool_call_id for message in conversation.own if message.position > last.position}
    return tuple(
        OpenCall(call=call, step=f"tool:{len(steps) - 1}:{index}", index=index)
        for index, call in enumerate(last.tool_calls)
        if call.id not in answered
    )


def _step_room(turn: Turn, conversation: Conversation) -> ResultByteBudget:
    """Return the byte budget for the step's results, less the results that were stored before a restart."""
    most = turn.dependencies.config.max_step_result_bytes
    last = max((message.position for message in conversation.own if message.tool_calls), default=0)
    stored = (message for message in conversation.own if message.position > last)
    return ResultByteBudget(most, most - sum(_stored_bytes(message.content) for message in stored))


def _stored_bytes(content: Content) -> int:
    images = () if isinstance(content, str) else (block for block in content if isinstance(block, ImageBlock))
    return len(text_of(content).encode()) + sum(len(image.url) for image in images)


async def _answer(turn: Turn, state: TurnState, open_call: OpenCall, room: ResultByteBudget) -> Message | AwaitedCall:
    """Return the stored result of the call, or the question that the server of its tool asks before it has one."""
    resolved = resolve_call(state, open_call.call)
    outcome = resolved.outcome or await _outcome(turn, state, replace(open_call, call=resolved.call), resolved)
    if isinstance(outcome, Elicitation):
        if resolved.questions < MAX_QUESTIONS:
            return _question(state, resolved, outcome)
        outcome = ToolOutcome(TOO_MANY_QUESTIONS, is_error=True)
    if resolved.note:
        outcome = replace(outcome, text=f"{resolved.note}\n\n{outcome.text}")
    return await _store_result(turn, state, open_call, replace(resolved, outcome=room.admit(outcome)))


async def _store_result(turn: Turn, state: TurnState, open_call: OpenCall, resolved: "ResolvedCall") -> Message:
    outcome = present(resolved.outcome)
    message = NewMessage(
        role=Role.TOOL,
        content=(TextBlock(outcome.text), *outcome.images) if outcome.images else outcome.text,
        source=state.claimed.run.source,
        tool_call_id=open_call.call.id,
        name=open_call.call.name,
        metadata={**(resolved.metadata or {}), **({"is_error": True} if outcome.is_error else {})},
    )
    counted = await count_new(message, present(state.agent).counter)
    stored = await store_step(turn, open_call.step, counted)
    turn.events.emit(ToolAnswered(stored))
    return stored


def _question(state: TurnState, resolved: "ResolvedCall", elicitation: Elicitation) -> AwaitedCall:
    served = present(present(state.agent).served.get(resolved.call.name))
    paused = PausedCall(
        resolved.call,
        served.server.name,
        elicitation,
        number=resolved.questions + 1,
        note=resolved.note,
        metadata=resolved.metadata,
        misfit=resolved.misfit,
    )
    return AwaitedCall(paused.as_question(), WaitKind.ANSWER, paused, paused.server)


async def _outcome(
    turn: Turn, state: TurnState, open_call: OpenCall, resolved: "ResolvedCall"
) -> ToolOutcome | Elicitation:
    """Run the call and return its outcome, or what its server asks; an error outcome for a call that is not run."""
    reason = _refusal(turn, state, open_call)
    if reason:
        return ToolOutcome(reason, is_error=True)
    if resolved.elicitation.open_request is not None:  # one of several questions, or its answer did not fit
        return resolved.elicitation
    run, call, agent = state.claimed.run, open_call.call, present(state.agent)
    context = ToolContext(
        session_id=run.session_id,
        owner_id=run.owner_id,
        run_id=run.id,
        idempotency_key=f"{run.id}:{call.id}",
        may_recall_all=_may_recall_all(state),
        is_shared=present(state.conversation).session.is_shared,
        room=result_room(agent),
    )
    served = agent.served.get(call.name)
    with traced(ToolCallPart(call)) as span:
        if served is None:
            outcome: ToolOutcome | Elicitation = await turn.dependencies.tools.run(call, context)
        else:
            on_progress = partial(_emit_progress, turn, call.id)
            asked = ServedCall(served, call.arguments, context, resolved.elicitation, on_progress)
            outcome = await turn.dependencies.tool_servers.call(asked)
        if isinstance(outcome, ToolOutcome):
            span.add_result(outcome)
        return outcome


def _emit_progress(turn: Turn, call_id: str, progress: CallProgress) -> None:
    turn.events.emit(ToolProgress(call_id, progress.done, progress.total, progress.text))


def _refusal(turn: Turn, state: TurnState, open_call: OpenCall) -> str:
    """Return what the model is told of a call that is not run, '' for one that is.

    A call is not run if its step has too many calls, the agent has no such tool, or an earlier attempt of the run may
    have run a tool that must not be repeated.
    """
    call, most, agent = open_call.call, turn.dependencies.config.max_calls_per_step, present(state.agent)
    if open_call.index >= most:
        return (
            f"This call was not run: it is number {open_call.index + 1} of its step, and the first {most} run. "
            "Call it again in a later step if it is still needed."
        )
    served = agent.served.get(call.name)
    is_repeatable = turn.dependencies.tools.is_repeatable(call.name) if served is None else served.is_repeatable
    if open_call.step in present(state.conversation).resumed_calls and not is_repeatable:
        return "This call was interrupted and whether it took effect is unknown. It was not repeated."
    offered = {spec.name for spec in agent.tools}
    if call.name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        return f"There is no tool named {call.name!r}. Tools you can call: {known}."
    return ""


def result_room(agent: ReadyAgent) -> ResultRoom:
    """Return how many tokens a recall tool's result may have."""
    tokens = result_limit(agent.definition.context, agent.budget, factor=agent.factor)
    return ResultRoom(tokens, agent.counter.count)


def _may_recall_all(state: TurnState) -> bool:
    """Return whether the recall tools may search all of the user's sessions.

    They may if the agent's definition allows it and other people do not read the answers.
    """
    is_shared = present(state.conversation).session.is_shared
    return present(state.agent).definition.recall is RecallReach.USER and not is_shared


# Tool calls that need something from outside: which ones wait, and what becomes of a call once it was given something.
#
# The tool node calls both functions for every call of a step.

EXPIRED = "Nothing came from outside in time, so this call was given up. Do not call it again unless you are asked to."
INVALID = "The arguments are not valid: send one JSON object."
TOO_MANY_QUESTIONS = f"The call was given up after {MAX_QUESTIONS} questions to a person, repeated ones included."


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call that does not wait: its outcome, or the call to run if `outcome` is None.

    `note` goes in front of the outcome of the call that is run, '' for nothing. `metadata` is stored with the result.
    `elicitation` has what its server asked before, in `questions` questions, and the answers. `misfit` says why the
    last answer was not taken, so that the question is asked again.
    """

    call: ToolCall
    outcome: ToolOutcome | None
    note: str = ""
    metadata: JsonObject | None = None
    elicitation: Elicitation = NO_ELICITATION
    questions: int = 0
    misfit: str = ""


def wait_kind(state: TurnState, call: ToolCall) -> WaitKind | None:
    """Return what the call has to wait for; None if it can be answered now.

    A call whose arguments are no JSON object does not wait: the model gets an error for it. A call of the run's last
    wait does not wait again.
    """
    agent, wait = present(state.agent), state.claimed.run.wait
    is_offered = any(spec.name == call.name for spec in agent.tools)
    if not is_offered or not is_json_object(call.arguments):
        return None
    if wait is not None and (wait.kind_of(call.id) is not None or wait.question_for(call.id) is not None):
        return None
    if is_client_tool(state, call.name):
        return WaitKind.TOOL_RESULT
    if call.name == ASK_USER:
        return WaitKind.ANSWER
    served = agent.served.get(call.name)
    is_asked = agent.definition.asks_approval(call.name) or (served is not None and served.needs_approval)
    return WaitKind.APPROVAL if is_asked else None


def is_client_tool(state: TurnState, name: str) -> bool:
    """Return whether the turn's request brought the tool, so that the service cannot run it."""
    return any(spec.name == name for spec in present(state.agent).definition.request_tools)


def resolve_call(state: TurnState, call: ToolCall) -> ResolvedCall:
    """Return what becomes of a call that does not wait: its outcome from outside, or the call to run.

    A call of the run's last wait that was given nothing has expired.
    """
    wait = state.claimed.run.wait
    question = None if wait is None else wait.question_for(call.id)
    if wait is not None and question is not None and question.paused is not None:
        return _with_answer(question.paused, wait.resolution_for(question.id))
    kind = None if wait is None else wait.kind_of(call.id)
    if wait is None or kind is None:
        is_invalid = is_client_tool(state, call.name) and not is_json_object(call.arguments)
        return ResolvedCall(call, ToolOutcome(INVALID, is_error=True) if is_invalid else None)
    given = wait.resolution_for(call.id)
    if given is None:
        return ResolvedCall(call, ToolOutcome(EXPIRED, is_error=True), metadata={OUTSIDE: "expired"})
    if kind is WaitKind.APPROVAL:
        return _decided(call, given)
    return ResolvedCall(call, ToolOutcome(given.text, given.is_error), metadata=_origin(given, kind))


def _with_answer(paused: PausedCall, given: Resolution | None) -> ResolvedCall:
    """Return the resolved call for a server's question. Without an answer the call has expired."""
    request, ended_as = paused.request, paused.elicitation.ended_as
    metadata = _with_question(paused, given)
    if given is None:
        told = EXPIRED if ended_as is None else f"{EXPIRED} Its server had returned: {ended_as}"
        return ResolvedCall(paused.call, ToolOutcome(told, is_error=True), note=paused.note, metadata=metadata)
    try:
        answer = read_input(request, given.answer)
    except InvalidInput as error:
        asked = paused.elicitation
        return ResolvedCall(paused.call, None, paused.note, metadata, asked, paused.number, error.detail)
    if ended_as is not None and answer.action == "decline":
        told = f"A person declined to answer the server's question. It had returned: {ended_as}"
        return ResolvedCall(paused.call, ToolOutcome(told, is_error=True), note=paused.note, metadata=metadata)
    elicitation = paused.elicitation.with_answer(answer)
    return ResolvedCall(paused.call, None, paused.note, metadata, elicitation, paused.number)


def _with_question(paused: PausedCall, given: Resolution | None) -> JsonObject:
    """Return the metadata of the call's result with the open question, and its answer if there is one."""
    known = paused.metadata or {}
    asked = known.get(QUESTIONS_KEY)
    question: dict[str, JsonValue] = {"question": paused.request.message}
    if given is not None:
        question["answer"] = given.answer
    if given is not None and given.author is not None:
        question["given_by"] = given.author
    questions: list[JsonValue] = [*(asked if isinstance(asked, list) else ()), question]
    return {**known, QUESTIONS_KEY: questions, QUESTION_COUNT_KEY: paused.number}


def _decided(call: ToolCall, given: Resolution) -> ResolvedCall:
    metadata = {**_origin(given, WaitKind.APPROVAL), "decision": str(given.decision)}
    if given.decision is ApprovalDecision.REJECT:
        reason = f"Reason: {given.text}" if given.text else "No reason was given."
        refusal = f"A person rejected this call, so it was not run. {reason}"
        told = {"reason": given.text} if given.text else {}
        return ResolvedCall(call, ToolOutcome(refusal, is_error=True), metadata={**metadata, **told})
    if given.decision is ApprovalDecision.EDIT and given.arguments is not None:
        note = f"A person changed the arguments to {given.arguments} before the call was run."
        return ResolvedCall(
            replace(call, arguments=given.arguments),
            None,
            note=note,
            metadata={**metadata, "arguments": json.loads(given.arguments)},
        )
    return ResolvedCall(call, None, metadata=metadata)


def _origin(given: Resolution, kind: WaitKind) -> dict[str, str]:
    return {OUTSIDE: kind.value, **({} if given.author is None else {"given_by": given.author})}
