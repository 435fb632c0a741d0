"""Route of AG-UI: one request is one part of a run, and its answer the events of that part."""

import hashlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Literal

from fastapi import Query, Request, Response

from throughline.ag_ui.events import AgUiEvents, encode, finished, snapshot, started, state_of
from throughline.ag_ui.run_input import PROTOCOL, RunAgentInput
from throughline.ag_ui.thread_messages import message_json, read_thread, read_thread_until_part
from throughline.chat_protocols.ask_agent import AgentRequest, split_messages
from throughline.chat_protocols.continue_chat import (
    REQUEST_ID,
    ChatRequest,
    ChatTurn,
    begin_turn,
    find_session,
    join_run,
    name_session,
    part_of_request,
    user_texts,
)
from throughline.chat_protocols.follow_part import new_echo
from throughline.chat_protocols.stream_turn import stream_turn
from throughline.db.sessions.find_session import ContinuedSession
from throughline.domain.basic_types import JsonObject
from throughline.domain.message import CLIENT_MESSAGE_ID, NewMessage, Role, text_of
from throughline.domain.prompt import Overrides
from throughline.domain.run import Run, RunInput
from throughline.domain.tool import Resolution, Wait
from throughline.http.body import read_body
from throughline.http.call import Call, Writer, source_of
from throughline.http.fields import QueryParameters
from throughline.http.follow import STREAM_HEADERS, EventStream
from throughline.http.headers import Idempotency
from throughline.http.prefix_router import PrefixRouter

PARAM = "messages"
router = PrefixRouter(prefix="/ag-ui", include_in_schema=False)


class RunOptions(QueryParameters):
    """What happens to the run if its client goes away. AG-UI's clients stop a run by going away."""

    on_disconnect: Literal["continue", "cancel"] = "continue"


@router.post("/{agent}")
async def run_agent(agent: str, request: Request, call: Writer, options: Annotated[RunOptions, Query()]) -> Response:
    """Run an agent in a thread, which is a session, and stream AG-UI's events.

    A request without a new message or answer shows the thread, and what its unfinished run still does.
    """
    asked = await read_body(request, RunAgentInput)
    name = call.services.agents.get(agent).name
    turn = await (_shown_turn(call, asked) if asked.asks_nothing else begin_turn(_read(request, call, asked, name)))
    if not isinstance(turn, ChatTurn):
        return turn
    is_bound = options.on_disconnect == "cancel" and not turn.is_joined
    return _stream(call, asked, turn.bound_to_client() if is_bound else turn)


def _stream(call: Call, asked: RunAgentInput, turn: ChatTurn) -> Response:
    run = turn.followed.run
    read = partial(read_thread_until_part, call, run, turn.part)
    lacks_messages = turn.is_joined or turn.lacks_history
    printer = AgUiEvents(asked, run, turn.part, read, begins_with_messages=lacks_messages)
    headers = {"X-Run-Id": str(run.id), "X-Session-Id": str(run.session_id)}
    return stream_turn(call, turn, printer, headers)


def _read(request: Request, call: Call, asked: RunAgentInput, agent: str) -> ChatRequest:
    """Return what the request asks. Raises InvalidInput for messages that are no chat."""
    source = source_of(request, call)
    instructions, messages = asked.read_messages(source)
    texts = user_texts(messages)
    run_input = RunInput(
        "",
        next((message.metadata for message in reversed(messages) if message.role is Role.USER), {}),
        Overrides(instructions=instructions or None).leniently(),
        asked.read_tools(),
        echo=new_echo(None, _echo(asked), int(call.services.clock.now().timestamp())),
    )
    agent_request = AgentRequest(
        agent=agent,
        brought=split_messages(messages, instructions=instructions, param=PARAM),
        run_input=run_input,
        param=PARAM,
        external_id=asked.thread_id,
    )
    return ChatRequest(
        call=call,
        source=source,
        name=name_session(asked.thread_id),
        agent_request=agent_request,
        texts=texts,
        echo=_echo(asked),
        idempotency=_idempotency(asked, messages),
        is_retry=False,
        request_id=asked.run_id,
        decide=partial(_decide, call, asked) if asked.resume else None,
        decided_calls=frozenset(entry.interrupt_id for entry in asked.resume),
        protocol=PROTOCOL,
        agent_word="agent",
    )


def _decide(call: Call, asked: RunAgentInput, wait: Wait) -> tuple[Resolution, ...]:
    return asked.decide(wait, call.principal.user_name)


def _echo(asked: RunAgentInput) -> JsonObject:
    return {REQUEST_ID: asked.run_id}


def _idempotency(asked: RunAgentInput, messages: tuple[NewMessage, ...]) -> Idempotency:
    """Return the key of thread and run. A repetition may bring more messages, but no other one of the user."""
    said = [message for message in messages if CLIENT_MESSAGE_ID in message.metadata]
    newest = (said[-1].metadata[CLIENT_MESSAGE_ID], text_of(said[-1].content)) if said else ()
    return Idempotency(f"ag-ui-{_hash(asked.thread_id, asked.run_id)}", _hash(*newest))


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


async def _shown_turn(call: Call, asked: RunAgentInput) -> ChatTurn | Response:
    """Return the turn that the thread's newest run does or that the request has begun; the thread alone without one."""
    continued = await find_session(call, name_session(asked.thread_id))
    newest = continued.said[-1].run_id if continued is not None and continued.said else None
    run = None if newest is None else await call.services.database.runs.get_run(call.owner_id, newest)
    if run is not None and (not run.status.is_final or part_of_request(run, asked.run_id) is not None):
        return join_run(run, asked.run_id)
    shown = _shown(call, asked, continued, run)
    return EventStream(shown, STREAM_HEADERS, send_timeout_seconds=call.config.send_timeout_seconds)


async def _shown(
    call: Call, asked: RunAgentInput, continued: ContinuedSession | None, run: Run | None
) -> AsyncGenerator[bytes]:
    stored = [] if continued is None else await read_thread(call, continued.session.id)
    state = () if run is None else state_of(asked, run)
    messages = snapshot([message_json(message) for message in stored])
    yield encode(started(asked), *state, messages, finished(asked, {"type": "success"}))
