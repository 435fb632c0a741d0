"""The turn behind a request for a run: a new one of its thread, or the rest of the one that waits."""

from dataclasses import replace

from fastapi import Request

from throughline.chat_protocols.ask_agent import AgentRequest, RequestMessages, resume_turn, split_messages
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
)
from throughline.chat_protocols.follow_part import new_echo
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.find_session import ContinuedSession
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting
from throughline.domain.message import CLIENT_MESSAGE_ID, Block, Content, NewMessage, Role, TextBlock
from throughline.domain.prompt import Overrides
from throughline.domain.run import OnBusy, Run, RunInput, RunStatus
from throughline.domain.session import Session
from throughline.domain.tool import check_answers
from throughline.http.call import Call, source_of
from throughline.http.headers import fingerprint_of, read_idempotency
from throughline.http.openai_messages import content_of_blocks
from throughline.langgraph_api.assistants import find_agent
from throughline.langgraph_api.interrupts import RESUME, read_resume
from throughline.langgraph_api.messages import PARAM, InputMessages, client_id_of, message_id, read_input
from throughline.langgraph_api.request import CreateRun
from throughline.langgraph_api.thread_state import find_checkpoint, is_uuid, no_thread, read_newest, thread_id_of

UNANSWERED = frozenset({RunStatus.CANCELLED, RunStatus.FAILED})


async def begin_run(request: Request, call: Call, body: CreateRun, thread_id: str | None) -> tuple[ChatTurn, str]:
    """Store what the request asks of the thread, None for a run without one.

    Return the part of a run that it begins, and the id of the run's thread. Raises NotFound (agent, thread),
    InvalidInput, SessionBusy, RunNotWaiting, and the errors of `submit`.
    """
    body.check_served()
    find_agent(call, body.assistant_id)
    thread = None if thread_id is None else await _find(call, thread_id, creates=body.if_not_exists == "create")
    await _check_checkpoint(call, thread, body)
    if body.command is not None and body.command.resume is not None:
        begun = await _resume(call, None if thread is None else thread.waiting, body)
    else:
        begun = await _begin(request, call, body, thread, thread_id)
    return begun, await _id_of_thread(call, begun, thread, thread_id)


async def _find(call: Call, thread_id: str, *, creates: bool) -> ContinuedSession | None:
    """Return the thread, None if the request is to create it. Raises NotFound otherwise, or if the name is no UUID."""
    found = await find_session(call, name_session(thread_id.lower())) if is_uuid(thread_id) else None
    if found is None and not (creates and is_uuid(thread_id)):
        raise no_thread(thread_id)
    return found


async def _id_of_thread(call: Call, begun: ChatTurn, thread: ContinuedSession | None, named: str | None) -> str:
    run = begun.followed.run
    if thread is not None and thread.session.id == run.session_id:
        return thread_id_of(thread.session)
    if begun.is_joined:  # perhaps that of a key that began it in another thread
        return thread_id_of(await call.services.database.sessions.get(call.owner_id, run.session_id))
    return str(run.session_id) if named is None else named.lower()


async def _begin(
    request: Request, call: Call, body: CreateRun, thread: ContinuedSession | None, thread_id: str | None
) -> ChatTurn:
    """Begin a new run, or join the thread's newest if its message is sent again."""
    sent = read_input(body.input, source_of(request, call))
    if thread is not None:
        repeated = await _repeated_run(call, thread.session, sent.messages)
        if repeated is not None:
            return join_run(repeated)
        sent = replace(sent, messages=_as_one(await _only_new(call, thread.session, sent.messages)))
        return await continue_chat(_read(request, call, body, sent, SessionName(id=thread.session.id)), thread)
    if thread_id is None:
        return await begin_turn(_read(request, call, body, sent, None))
    return await begin_session(_read(request, call, body, sent, SessionName(external_id=thread_id.lower())))


def _read(request: Request, call: Call, body: CreateRun, sent: InputMessages, name: SessionName | None) -> ChatRequest:
    """Return the request for a new run. Raises InvalidInput for messages that are no chat."""
    brought = split_messages(sent.messages, instructions=sent.instructions, param=PARAM)
    idempotency = read_idempotency(request, body)
    agent_request = AgentRequest(
        agent=find_agent(call, body.assistant_id).name,
        brought=brought,
        run_input=_run_input(call, body, brought),
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
        echo={},
        idempotency=idempotency,
        is_retry=False,
        fingerprint="" if name is None or idempotency.key is not None else fingerprint_of(request, body),
    )


async def _check_checkpoint(call: Call, thread: ContinuedSession | None, body: CreateRun) -> None:
    """Raise InvalidInput if the request asks to go on from an older state than the newest."""
    wanted = body.wanted_checkpoint
    if wanted is not None and (thread is None or not await _is_newest(call, thread.session, wanted)):
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
    answered = next((run for run in page.items if run.status not in UNANSWERED), None)
    return answered is None or answered.id == checkpoint.run_id


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
    blocks = [block for one in said for block in _blocks(one.content)]
    return (*messages[:first], replace(said[-1], content=content_of_blocks(blocks)))


def _blocks(content: Content) -> tuple[Block, ...]:
    return (TextBlock(content),) if isinstance(content, str) else content


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


def _run_input(call: Call, body: CreateRun, brought: RequestMessages) -> RunInput:
    """Return the turn's input without its message."""
    asked = brought.user_message
    given = None if asked is None else client_id_of(asked.metadata)
    metadata = {**(body.metadata or {}), **({} if given is None else {CLIENT_MESSAGE_ID: given})}
    overrides = Overrides(instructions=brought.instructions or None).leniently()
    return RunInput("", metadata, overrides, echo=new_echo(None, {}, int(call.services.clock.now().timestamp())))


async def _resume(call: Call, waiting: Run | None, body: CreateRun) -> ChatTurn:
    """Give the thread's waiting run what the command says. Raises RunNotWaiting without one, InvalidInput."""
    if waiting is None or waiting.wait is None:
        raise RunNotWaiting("No run of the thread waits for anything. Send `input` instead of `command`.")
    if find_agent(call, body.assistant_id).name != waiting.agent:
        raise InvalidInput(f"The run that waits is one of {waiting.agent!r}. Name it.", field="assistant_id")
    given = read_resume(waiting.wait, None if body.command is None else body.command.resume, call.principal.user_name)
    try:
        check_answers(waiting.waiting_for, given)
    except InvalidInput as error:
        raise InvalidInput(error.detail, field=RESUME) from error
    goes_on = len(given) == len(waiting.wait.open_calls)
    echo = new_echo(waiting, {}, int(call.services.clock.now().timestamp())) if goes_on else waiting.input.echo
    followed = await resume_turn(call, waiting, given, replace(waiting.input, echo=echo))
    return ChatTurn(waiting.wait_count if goes_on else waiting.wait_count - 1, followed)
