"""Route of AG-UI: one request is one part of a run, and its answer the events of that part."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from fastapi import Query, Request, Response

from throughline.ag_ui.events import AgUiEvents, encode, finished, snapshot, started, state_of
from throughline.ag_ui.run_input import PROTOCOL, RunAgentInput
from throughline.chat_protocols.ask_agent import AgentRequest, split_messages, turn_input
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
from throughline.chat_protocols.follow_part import split_run
from throughline.chat_protocols.stream_turn import stream_turn
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonObject, MessageId, SessionId
from throughline.domain.message import CLIENT_MESSAGE_ID, Message, NewMessage, Role, text_of
from throughline.domain.run import user_message
from throughline.http.body import read_body
from throughline.http.call import Call, Writer, source_of
from throughline.http.fields import QueryParameters
from throughline.http.follow import MEDIA_TYPE, STREAM_HEADERS
from throughline.http.headers import Idempotency
from throughline.http.prefix_router import PrefixRouter
from throughline.wire.overrides import read_client_tools

PARAM = "messages"
MAX_SNAPSHOT_MESSAGES = 500
"""Newest messages of a session that a snapshot has. Nothing older is lost: other interfaces read all of it."""

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
    turn = await (
        _join_or_show_thread(call, asked) if asked.asks_nothing else begin_turn(_read(request, call, asked, name))
    )
    if not isinstance(turn, ChatTurn):
        return turn
    if options.on_disconnect == "cancel" and not turn.is_joined:
        turn = turn.bound_to_client()
    run = turn.followed.run
    printer = AgUiEvents(asked, turn, partial(_read_sent_messages, call, turn))
    return stream_turn(call, turn, printer, {"X-Run-Id": str(run.id), "X-Session-Id": str(run.session_id)})


def _read(request: Request, call: Call, asked: RunAgentInput, agent: str) -> ChatRequest:
    """Return what the request asks. Raises InvalidInput for messages that are no chat."""
    source = source_of(request, call)
    instructions, messages = asked.read_messages(source)
    brought = split_messages(messages, instructions=instructions, param=PARAM)
    echo: JsonObject = {REQUEST_ID: asked.run_id}
    return ChatRequest(
        call=call,
        source=source,
        name=name_session(asked.thread_id),
        agent_request=AgentRequest(
            agent=agent,
            brought=brought,
            run_input=turn_input(call, brought, tools=read_client_tools(asked.tools), echo=echo),
            param=PARAM,
            external_id=asked.thread_id,
        ),
        texts=user_texts(messages),
        echo=echo,
        idempotency=_idempotency(asked, brought.user_message),
        request_id=asked.run_id,
        decide=partial(asked.decide, call.principal.user_name) if asked.resume else None,
        decided_calls=frozenset(entry.interrupt_id for entry in asked.resume),
        protocol=PROTOCOL,
        agent_word="agent",
    )


def _idempotency(asked: RunAgentInput, said: NewMessage | None) -> Idempotency:
    """Return the key of thread and run. A repetition may bring more messages, but no other one of the user."""
    newest = () if said is None else (said.metadata[CLIENT_MESSAGE_ID], text_of(said.content))
    return Idempotency(f"ag-ui-{_hash(asked.thread_id, asked.run_id)}", _hash(*newest))


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


async def _join_or_show_thread(call: Call, asked: RunAgentInput) -> ChatTurn | Response:
    """Join the newest run if it is unfinished, or if this request began it; else return a response with the thread."""
    continued = await find_session(call, name_session(asked.thread_id))
    newest = continued.said[-1].run_id if continued is not None and continued.said else None
    run = None if newest is None else await call.services.database.runs.get_run(call.owner_id, newest)
    if run is not None and (not run.status.is_final or part_of_request(run, asked.run_id) is not None):
        return join_run(run, asked.run_id)
    stored = [] if continued is None else await _read_thread(call, continued.session.id)
    state = () if run is None else state_of(asked, run)
    shown = encode(started(asked), *state, snapshot(stored), finished(asked, {"type": "success"}))
    return Response(shown, headers=STREAM_HEADERS, media_type=MEDIA_TYPE)


async def _read_thread(call: Call, session_id: SessionId) -> list[Message]:
    """Return the newest messages of the session, oldest first.

    If older ones are left out, the list begins with a message of the user.
    """
    newest_first: list[Message] = []
    before: int | None = None
    while len(newest_first) < MAX_SNAPSHOT_MESSAGES:
        query = MessageQuery(before=before, limit=MAX_SNAPSHOT_MESSAGES - len(newest_first), order="desc")
        page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
        newest_first += page.items
        if page.next_cursor is None:
            return newest_first[::-1]
        before = int(page.next_cursor)
    while newest_first and newest_first[-1].role is not Role.USER:
        newest_first.pop()
    return newest_first[::-1]


async def _read_sent_messages(
    call: Call, turn: ChatTurn, complete: frozenset[MessageId]
) -> Sequence[Message | NewMessage]:
    """Return the thread's messages; of those that this part and later ones have made, only `complete` ones.

    If the thread has gone on since the run, all of them are returned. The run's own message of the user is always among
    the messages, also before it is stored.
    """
    run = turn.followed.run
    stored = await _read_thread(call, run.session_id)
    unsent: set[MessageId] = set()
    if stored and stored[-1].run_id == run.id:
        parts = split_run(run, [message for message in stored if message.run_id == run.id])
        unsent = {message.id for later in parts[turn.part :] for message in later.made} - complete
    shown = [message for message in stored if message.id not in unsent]
    is_stored = any(message.id == run.user_message_id for message in shown)
    return shown if is_stored else [*shown, user_message(run)]
