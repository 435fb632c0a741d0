"""The turn behind a request for a run: a new one of its thread, or the rest of the one that waits."""

from dataclasses import replace

from fastapi import Request

from throughline.chat_protocols.ask_agent import AgentRequest, resume_turn, split_messages, turn_input
from throughline.chat_protocols.continue_chat import (
    ChatRequest,
    ChatTurn,
    SessionName,
    begin_session,
    begin_turn,
    continue_chat,
    find_session,
    join_run,
    name_session,
    user_texts,
    uuid_of,
)
from throughline.chat_protocols.follow_part import new_echo
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.find_session import ContinuedSession
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting
from throughline.domain.message import NewMessage, Role, blocks_of
from throughline.domain.run import OnBusy, Run, RunStatus
from throughline.domain.session import Session
from throughline.domain.tool import check_answers
from throughline.http.call import Call, source_of
from throughline.http.headers import fingerprint_of, read_idempotency
from throughline.http.openai_messages import content_of_blocks
from throughline.langgraph_api.assistants import find_agent
from throughline.langgraph_api.interrupts import RESUME, read_resume
from throughline.langgraph_api.messages import PARAM, InputMessages, client_id_of, message_id, read_input
from throughline.langgraph_api.request import CreateRun
from throughline.langgraph_api.thread_state import find_checkpoint, no_thread, read_newest, thread_id_of


async def begin_run(request: Request, call: Call, body: CreateRun, thread_id: str | None) -> tuple[ChatTurn, str]:
    """Begin the requested run in the thread `thread_id`, else in the one that its configuration names, else without.

    Return the part of the run, and the id of its thread. Raises NotFound (agent, thread),
    InvalidInput, SessionBusy, RunNotWaiting, and the errors of `submit`.
    """
    agent, configured = find_agent(call, body.assistant_id).name, body.configured.get("thread_id")
    if thread_id is None and isinstance(configured, str):
        thread_id = configured
    thread = None if thread_id is None else await _find(call, thread_id, creates=body.if_not_exists == "create")
    await _check_checkpoint(call, thread, body)
    if body.command is not None and body.command.resume is not None:
        turn = await _resume(call, None if thread is None else thread.waiting, agent, body.command.resume)
    else:
        turn = await _begin(request, call, body, thread, thread_id)
    if body.on_disconnect is not None:
        turn = replace(turn, ends_with_client=body.on_disconnect == "cancel")
    return turn, await _id_of_thread(call, turn, thread, thread_id)


async def _find(call: Call, thread_id: str, *, creates: bool) -> ContinuedSession | None:
    """Return the thread, None if the request is to create it. Raises NotFound otherwise, or if the name is no UUID."""
    if uuid_of(thread_id) is None:
        raise no_thread(thread_id)
    found = await find_session(call, name_session(thread_id.lower()), may_create=creates)
    if found is None and not creates:
        raise no_thread(thread_id)
    return found


async def _check_checkpoint(call: Call, thread: ContinuedSession | None, body: CreateRun) -> None:
    """Raise InvalidInput if the request asks to go on from an older state than the newest."""
    inner = (body.checkpoint or {}).get("checkpoint_id")
    wanted = body.checkpoint_id or inner or body.configured.get("checkpoint_id")
    if wanted is not None and (thread is None or not await _is_newest(call, thread.session, str(wanted))):
        raise InvalidInput(
            "`checkpoint` is not served but for the thread's newest: messages of a thread never change. Copy the "
            "thread, or branch its session with POST /v1/sessions/{session_id}/branch.",
            field="checkpoint",
        )


async def _is_newest(call: Call, session: Session, wanted: str) -> bool:
    """Return whether all runs since the checkpoint were cancelled or failed: clients do not see those states."""
    try:
        checkpoint = await find_checkpoint(call, session, wanted)
    except NotFound:
        return False
    page = await call.services.database.runs.list_runs(call.owner_id, session.id, RunQuery())
    answered = next((run for run in page.items if run.status not in {RunStatus.CANCELLED, RunStatus.FAILED}), None)
    return answered is None or answered.id == checkpoint.run_id


async def _resume(call: Call, waiting: Run | None, agent: str, resume: JsonValue) -> ChatTurn:
    """Give the thread's waiting run what the command says. Raises RunNotWaiting without one, InvalidInput."""
    if waiting is None or waiting.wait is None:
        raise RunNotWaiting("No run of the thread waits for anything. Send `input` instead of `command`.")
    if agent != waiting.agent:
        raise InvalidInput(f"The run that waits is one of {waiting.agent!r}. Name it.", field="assistant_id")
    given = read_resume(waiting.wait, resume, call.principal.user_name)
    try:
        check_answers(waiting.waiting_for, given)
    except InvalidInput as error:
        raise InvalidInput(error.detail, field=RESUME) from error
    goes_on = len(given) == len(waiting.wait.open_calls)
    echo = new_echo(waiting, {}, call.unix_time) if goes_on else waiting.input.echo
    followed = await resume_turn(call, waiting, given, replace(waiting.input, echo=echo))
    return ChatTurn(waiting.wait_count if goes_on else waiting.wait_count - 1, followed)


async def _id_of_thread(call: Call, turn: ChatTurn, thread: ContinuedSession | None, named: str | None) -> str:
    session_id = turn.followed.run.session_id
    if thread is not None and thread.session.id == session_id:
        return thread_id_of(thread.session)
    if turn.is_joined:  # a repeated idempotency key may have begun it in another thread
        return thread_id_of(await call.services.database.sessions.get(call.owner_id, session_id))
    return str(session_id) if named is None else named.lower()


async def _begin(
    request: Request, call: Call, body: CreateRun, thread: ContinuedSession | None, thread_id: str | None
) -> ChatTurn:
    """Begin a new run, or join the thread's newest if its message is sent again."""
    sent = read_input(body.input, source_of(request, call))
    if thread is None:
        name = None if thread_id is None else SessionName(external_id=thread_id.lower())
        chat = _read(request, call, body, sent, name)
        return await (begin_turn(chat) if name is None else begin_session(chat))
    repeated = await _repeated_run(call, thread.session, sent.messages)
    if repeated is not None:
        return join_run(repeated)
    new = replace(sent, messages=_as_one(await _only_new(call, thread.session, sent.messages)))
    return await continue_chat(_read(request, call, body, new, SessionName(id=thread.session.id)), thread)


def _read(request: Request, call: Call, body: CreateRun, sent: InputMessages, name: SessionName | None) -> ChatRequest:
    """Return the request for a new run. Raises InvalidInput for messages that are no chat."""
    brought = split_messages(sent.messages, instructions=sent.instructions, param=PARAM)
    given = turn_input(call, brought)
    idempotency = read_idempotency(request, body)
    agent_request = AgentRequest(
        agent=find_agent(call, body.assistant_id).name,
        brought=brought,
        run_input=replace(given, metadata={**(body.metadata or {}), **given.metadata}),
        param=PARAM,
        is_stored=name is not None or body.on_completion == "keep",
        external_id=None if name is None else name.external_id,
        on_busy=OnBusy(body.multitask_strategy or OnBusy.ENQUEUE),
    )
    return ChatRequest(
        call=call,
        source=source_of(request, call),
        name=name,
        agent_request=agent_request,
        texts=user_texts(sent.messages),
        idempotency=idempotency,
        fingerprint="" if name is None or idempotency.key is not None else fingerprint_of(request, body),
    )


async def _repeated_run(call: Call, session: Session, sent: tuple[NewMessage, ...]) -> Run | None:
    """Return the thread's newest run if its message is sent again, by the client's id; None if it is not."""
    client_id = client_id_of(sent[-1].metadata) if sent and sent[-1].role is Role.USER else None
    if client_id is None:
        return None
    page = await call.services.database.runs.list_runs(call.owner_id, session.id, RunQuery(1))
    return next((run for run in page.items if client_id_of(run.input.metadata) == client_id), None)


def _as_one(messages: tuple[NewMessage, ...]) -> tuple[NewMessage, ...]:
    """Return the messages with those of the user at their end as one: a turn answers one message."""
    first = len(messages)
    while first and messages[first - 1].role is Role.USER:
        first -= 1
    said = messages[first:]
    if len(said) <= 1:
        return messages
    blocks = [block for one in said for block in blocks_of(one.content)]
    return (*messages[:first], replace(said[-1], content=content_of_blocks(blocks)))


async def _only_new(call: Call, session: Session, sent: tuple[NewMessage, ...]) -> tuple[NewMessage, ...]:
    """Return the messages whose ids the thread does not have. Raises InvalidInput if there are none.

    Only the thread's newest ids are compared. In a longer thread, messages before the first known one are older.
    """
    if not any(client_id_of(message.metadata) for message in sent):
        return sent
    stored = await read_newest(call, session.id)
    known = {one for message in stored for one in (message_id(message), str(message.id))}
    is_known = [client_id_of(message.metadata) in known for message in sent]
    first = is_known.index(True) if stored and stored[0].position > 1 and True in is_known else 0
    new = tuple(message for message, has_it in zip(sent[first:], is_known[first:], strict=True) if not has_it)
    if not new:
        raise InvalidInput("The thread has all of these messages already. Add a new one.", field=PARAM)
    return new
