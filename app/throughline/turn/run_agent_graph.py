"""Node of the turn's graph for an agent that is a LangGraph graph: it takes the place of `llm_node` and `tool_node`.

The agent's graph is given the messages that fit the window. Its own messages are stored after each of its steps.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from langgraph.runtime import Runtime

from throughline.context.fit_prompt import fit_view
from throughline.context.measure import count_tool_specs
from throughline.context.plan_context import plan_context
from throughline.context.quoted_memories import tokens_of_notes
from throughline.domain.agent_graph import (
    GraphEnd,
    GraphMessage,
    GraphModelAnswer,
    GraphModelCall,
    GraphStart,
    GraphState,
)
from throughline.domain.basic_types import JsonObject, JsonValue, MessageId
from throughline.domain.errors import GraphFailed, TurnTimeout
from throughline.domain.events import GraphEvent, ToolAnswered
from throughline.domain.message import Message, NewMessage, Role, ToolCall
from throughline.domain.prompt import PromptMessage
from throughline.domain.summary import Conversation
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.turn.call_model import reset_shown_text
from throughline.turn.daily_budget import check_turn_budget
from throughline.turn.graph_interrupts import answers_to, awaited_calls
from throughline.turn.llm_node import ModelCallResult, call_first_available, call_fitted, note_prompt
from throughline.turn.prompting.planning import compute_context, count_new, make_context_input
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.recall_history import quote_history
from throughline.turn.recall_memories import quote_memories
from throughline.turn.reduce_context import LESS_THAN_REFUSED, FittedContext, fit_context, reduce_context
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.store_step import show_stored, wait_for_database
from throughline.turn.tool_node import open_calls, result_room

BY_GRAPH: JsonObject = {"by": "graph"}
"""Metadata of a user's message that the graph has written itself, such as a critique."""


async def run_agent_graph(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Run the agent's graph until it answers or waits.

    Raises GraphFailed, GraphWaitExpired, TurnTimeout, LeaseLost, and DailyBudgetSpent after a wait.
    """
    turn = runtime.context
    if state.claimed.run.wait_count:  # a turn may wait, and go on, any number of times
        await check_turn_budget(turn.dependencies, present(state.agent), state.claimed.run)
    host = TurnHost(turn, state)
    start = await host.start(await turn.dependencies.messages.load_graph_state(turn.lease.session_id))
    try:
        async with asyncio.timeout(max(turn.deadline - turn.dependencies.clock.monotonic(), 0)):
            end = await turn.dependencies.agent_graphs.run(state.definition.graph, start, host)
    except TimeoutError as error:
        seconds = turn.dependencies.config.deadline_seconds
        raise TurnTimeout(
            f"The agent's graph did not finish within the turn's {seconds:g} seconds. Send the message again."
        ) from error
    return await host.finish(end)


class TurnHost:
    """The turn as its graph sees it: implements the port GraphHost."""

    def __init__(self, turn: Turn, state: TurnState) -> None:
        """Serve the graph of the turn whose user message is stored."""
        self._turn = turn
        self._state = state
        self._agent = present(state.agent)
        self._conversation = present(state.conversation)
        self._given: tuple[GraphMessage, ...] = ()
        self._answers: dict[str, GraphModelAnswer] = {}
        self._stages = state.stages
        self._is_showing = False
        self._is_unsure = turn.lease.fence > 1 and not state.claimed.is_first_after_wait

    async def start(self, stored: GraphState | None) -> GraphStart:
        """Return what the graph is started with. A state of an earlier attempt of this run is gone on from.

        The state of another graph, which the agent had before, is left aside.
        """
        if stored is not None and _graph_part(stored.data).get("graph") != self._state.definition.graph:
            stored = None
        reduced = await reduce_context(self._turn, self._agent, self._conversation)
        note_tokens = tokens_of_notes(reduced.view, self._state.quotations, self._state.memories)
        context = await fit_context(self._turn, reduced, note_tokens)
        self._conversation = context.conversation
        self._stages = (*self._stages, *context.stages)
        prompt = context.fitted.prompt
        is_resumed = stored is not None and stored.run_id == self._turn.lease.run_id
        unanswered = {one.call.id for one in open_calls(self._conversation)} if is_resumed else set()
        by_position = {row.position: str(row.id) for row in (*self._conversation.history, *self._conversation.own)}
        self._given = tuple(
            GraphMessage(by_position.get(message.position or 0, f"throughline:{number}"), message)
            for number, message in enumerate(prompt.messages)
            if message.position is not None or message.tool_call_id not in unanswered
        )
        state = None if stored is None else stored.data
        answers = answers_to(state, self._state.claimed.run.wait) if state is not None and is_resumed else {}
        return GraphStart(
            thread_id=str(self._turn.lease.session_id),
            tools=self._state.definition.tools,
            messages=self._given,
            system=prompt.system,
            state=None if state is None else _graph_part(state),
            is_resumed=is_resumed,
            answers=answers,
        )

    async def call_model(self, call: GraphModelCall) -> GraphModelAnswer:
        """Call the agent's model, or its first fallback model that answers."""
        is_shown = not self._is_showing and call.tool_choice is None
        if is_shown:
            reset_shown_text(self._turn)
        self._is_showing = self._is_showing or is_shown

        async def attempt(agent: ReadyAgent, _: Conversation) -> ModelCallResult:
            async def fit(agent: ReadyAgent, refused: FittedContext | None) -> FittedContext:
                return await self._fit(agent, call, refused)

            return await call_fitted(self._turn, _for_call(agent, call), fit, is_shown=is_shown)

        try:
            result = await call_first_available(self._turn, self._agent, self._conversation, attempt)
            message_id = self._turn.events.message_id if is_shown else self._new_id()
        finally:
            self._is_showing = self._is_showing and not is_shown
        note_prompt(self._turn, result, (*self._stages, *result.context.stages))
        self._answers[str(message_id)] = answer = GraphModelAnswer(str(message_id), result.step)
        return answer

    async def call_tool(self, call: ToolCall) -> ToolOutcome:
        """Run a tool of the service, unless an earlier attempt may have run it and it must not be repeated."""
        tools, run = self._turn.dependencies.tools, self._state.claimed.run
        if self._is_unsure and not tools.is_repeatable(call.name):
            told = "This call was interrupted and whether it took effect is unknown. It was not repeated."
            return ToolOutcome(told, is_error=True)
        context = ToolContext(
            session_id=run.session_id,
            owner_id=run.owner_id,
            run_id=run.id,
            idempotency_key=f"{run.id}:{len(self._conversation.own)}:{call.id}",
            is_shared=self._conversation.session.is_shared,
            room=result_room(self._agent),
        )
        return await tools.run(call, context)

    async def store(self, messages: Sequence[GraphMessage], state: JsonObject) -> None:
        """Store a step's messages and state, and show readers the messages."""
        await self._store(messages, {"graph": dict(state)})
        self._is_unsure = False

    def emit(self, data: JsonValue) -> None:
        """Emit an event of the graph's custom stream."""
        self._turn.events.emit(GraphEvent(data))

    async def finish(self, end: GraphEnd) -> dict[str, object]:
        """Return the turn's new state: its answer, or the calls that wait."""
        found: dict[str, object] = {"agent": self._agent, "stages": self._stages}
        if end.interruptions:
            waiting, asked = awaited_calls(end.interruptions, self._conversation.own)
            await self._store((), {"graph": dict(end.state), "asked": asked})
            return {**found, "conversation": self._conversation, "waiting": waiting}
        answer = present(end.answer)
        if answer.id != str(self._turn.events.message_id):
            reset_shown_text(self._turn)
        message = replace(await self._new(answer), id=self._turn.events.message_id)
        return {**found, "conversation": self._conversation, "answer": message}

    async def _store(self, messages: Sequence[GraphMessage], state: JsonObject) -> None:
        turn, first = self._turn, len(self._conversation.own)
        self._check_size("The state", len(json.dumps(state)))
        new = [(f"graph:{first + number}", await self._new(one)) for number, one in enumerate(messages)]
        if turn.events.has_shown and turn.events.message_id not in {message.id for _, message in new}:
            reset_shown_text(turn)
        calls = turn.calls.take() if new else ()
        store = partial(turn.dependencies.messages.append_graph_step, turn.lease, new, state, calls)
        try:
            stored = await wait_for_database(turn.dependencies, turn.lease.run_id, store)
        except Exception:
            turn.calls.unstored[:0] = calls
            raise
        for message in stored:
            if message.role is Role.TOOL:
                turn.events.emit(ToolAnswered(message))
            elif message.role is Role.ASSISTANT:
                show_stored(turn, message)
        self._conversation = self._conversation.with_own(*stored)

    async def _new(self, given: GraphMessage) -> NewMessage:
        message, made = given.message, self._answers.get(given.id)
        calls = message.tool_calls if made is None else _as_written(message.tool_calls, made.step.tool_calls)
        size = len(str(message.content).encode()) + sum(len(call.arguments.encode()) for call in calls)
        self._check_size("A message", size)
        new = NewMessage(
            id=_id_of(given.id) or self._new_id(),
            role=message.role,
            content=message.content,
            source=self._turn.source,
            tool_calls=calls,
            tool_call_id=message.tool_call_id,
            name=message.name,
            metadata=BY_GRAPH if message.role is Role.USER else {},
        )
        return await count_new(new, self._agent.counter)

    def _check_size(self, what: str, size: int) -> None:
        most = self._turn.dependencies.config.max_step_result_bytes
        if size > most:
            raise GraphFailed(f"{what} of the agent's graph has {size:,} bytes; at most {most:,} are stored.")

    def _new_id(self) -> MessageId:
        return self._turn.dependencies.messages.new_message_id()

    async def _fit(self, agent: ReadyAgent, call: GraphModelCall, refused: FittedContext | None) -> FittedContext:
        """Return the prompt of a call: the session's with what the graph has added, or the messages of the call alone.

        The former holds the summary, pins and notes of what was found.
        """
        is_of_session, conversation = self._conversation_of(call)
        cap = None if refused is None else max(int(LESS_THAN_REFUSED * refused.fitted.raw_tokens), 1)
        given = replace(make_context_input(agent, conversation, None), cap_tokens=cap)
        has_notes = is_of_session and refused is None
        quotations = self._state.quotations if has_notes else ()
        memories = self._state.memories if has_notes else ()
        plan = await compute_context(given, plan_context)
        note_tokens = tokens_of_notes(plan.view, quotations, memories)
        fitted = await compute_context(given, lambda _: fit_view(plan.view, note_tokens))
        context = FittedContext(conversation, fitted, (*plan.fired, *fitted.notes))
        return quote_memories(self._turn, quote_history(self._turn, context, quotations), memories)

    def _conversation_of(self, call: GraphModelCall) -> tuple[bool, Conversation]:
        begun = len(self._given)
        is_of_session = [*map(_mark, call.messages[:begun])] == [*map(_mark, self._given)]
        session, known = self._conversation.session, {str(row.id): row for row in self._conversation.own}
        added = call.messages[begun:] if is_of_session else call.messages
        last = max(row.position for row in self._conversation.own) if is_of_session else 0
        rows = [
            _row(one, known.get(one.id), self._conversation.own[0], last + number)
            for number, one in enumerate(added, start=1)
        ]
        if is_of_session:
            given = {one.id for one in self._given}
            own = (row for row in self._conversation.own if str(row.id) in given)
            return True, replace(self._conversation, own=(*own, *rows))
        bare = replace(session, conversation_summary="", summary_tokens=0, summary_through_position=0, view_state={})
        return False, Conversation(bare, own=tuple(rows))


def _mark(given: GraphMessage) -> tuple[object, ...]:
    """Return what tells whether a graph left a message as it was: LangChain changes the bytes of arguments."""
    message = given.message
    return given.id, message.role, message.content, tuple(call.id for call in message.tool_calls)


def _graph_part(state: JsonObject) -> JsonObject:
    part = state.get("graph")
    return part if isinstance(part, dict) else {}


def _for_call(agent: ReadyAgent, call: GraphModelCall) -> ReadyAgent:
    """Return the agent with the tools, the system prompt and the choice of tools of the graph's call."""
    definition = agent.definition
    system = "\n\n".join(text for text in (definition.system_prompt, call.system) if text)
    parameters = replace(definition.parameters, stop=call.stop) if call.stop else definition.parameters
    return replace(
        agent,
        definition=replace(
            definition,
            system_prompt=system,
            tool_choice=call.tool_choice,
            allowed_tools=None,
            parameters=parameters,
        ),
        tools=call.tools,
        tools_tokens=count_tool_specs(call.tools, agent.counter.count),
    )


def _as_written(shown: Sequence[ToolCall], written: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls as the model wrote them, byte for byte, unless the graph has changed their ids."""
    by_id = {call.id: call for call in written}
    return tuple(by_id.get(call.id, call) for call in shown)


def _row(given: GraphMessage, stored: Message | None, like: Message, position: int) -> Message:
    """Return a message of the graph as a row after those of the session: the stored one if it is stored."""
    message: PromptMessage = given.message
    if stored is not None and (stored.content, stored.tool_call_id) == (message.content, message.tool_call_id):
        return stored
    return Message(
        id=MessageId(_id_of(given.id) or UUID(int=position)),
        session_id=like.session_id,
        position=position,
        role=message.role,
        content=message.content,
        source=like.source,
        created_at=like.created_at,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        name=message.name,
        run_id=like.run_id,
    )


def _id_of(text: str) -> MessageId | None:
    try:
        return MessageId(UUID(text))
    except ValueError:
        return None
