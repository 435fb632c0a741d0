"""The turn behind a request of the AI SDK: of a new message, of an edited or repeated one, or the rest of a turn."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fastapi import Request

from throughline.ai_sdk.chunks import ChunkPrinter
from throughline.ai_sdk.request import PROTOCOL, MessagePart, SendChat, UIMessage, read_messages, said_texts
from throughline.chat_protocols.ask_agent import AgentRequest, RequestMessages, check_length, split_messages, turn_input
from throughline.chat_protocols.continue_chat import (
    ChatRequest,
    ChatTurn,
    begin_session,
    continue_chat,
    find_session,
    join_run,
    name_session,
)
from throughline.db.sessions.find_session import ContinuedSession
from throughline.domain.errors import ConversationBranched, InvalidInput, NotFound
from throughline.domain.message import Message
from throughline.domain.run import CopiedMessages
from throughline.domain.tool import ApprovalDecision, AwaitedCall, Resolution, Wait, WaitKind
from throughline.http.call import Call, check_named_session, run_id_of, source_of
from throughline.http.headers import fingerprint_of, read_idempotency

PARAM = "messages"
MOST_SEARCHED = 1_000
"""Newest messages of a session among which an edited one is searched."""


async def begin_chat(request: Request, call: Call, agent: str, body: SendChat) -> ChunkPrinter:
    """Store what the request asks, or find the turn that it repeats, and return the printer of its answer.

    Raises NotFound (agent), InvalidInput, SessionBusy, and the errors of `submit`.
    """
    newest = body.chat()[-1]
    chat = _read(request, call, call.services.agents.get(agent).name, body)
    continued = await find_session(call, name_session(body.id))
    if newest.role == "assistant":
        return await _continue_answer(chat, continued, newest)
    asks_new_answer = body.trigger == "regenerate-message" or (
        body.message_id is not None and body.message_id == newest.id
    )
    turn = await _begin_answer(chat, continued, newest.id, asks_new_answer=asks_new_answer)
    run_id = turn.followed.run.id
    return ChunkPrinter(call, turn, f"{run_id}:{turn.part}" if turn.part else str(run_id))


def _read(request: Request, call: Call, agent: str, body: SendChat) -> ChatRequest:
    source, messages = source_of(request, call), body.chat()
    instructions, read = read_messages(messages, source)
    is_answer = messages[-1].role == "assistant"
    brought = RequestMessages() if is_answer else split_messages(read, instructions=instructions, param=PARAM)
    if brought.user_message is None and not is_answer:
        raise InvalidInput("The chat has no message of a user. Add one.", field=PARAM)
    idempotency = read_idempotency(request, body)
    return ChatRequest(
        call=call,
        source=source,
        name=name_session(body.id),
        agent_request=AgentRequest(
            agent=agent,
            brought=brought,
            run_input=turn_input(call, brought, tools=body.read_tools()),
            param=PARAM,
            external_id=body.id,
        ),
        texts=() if is_answer else said_texts(read),
        idempotency=idempotency,
        fingerprint="" if idempotency.key is not None else fingerprint_of(request, body),
        protocol=PROTOCOL,
        agent_word="agent",
    )


async def _begin_answer(
    chat: ChatRequest, continued: ContinuedSession | None, client_id: str, *, asks_new_answer: bool
) -> ChatTurn:
    """Begin the answer to a user's message, or join it if the message is sent again.

    An edited message, or a request for another answer, branches.
    """
    if continued is None:
        return await begin_session(chat)
    database, owner_id = chat.call.services.database, chat.call.owner_id
    if not client_id:
        return await continue_chat(chat, continued)
    if asks_new_answer:
        found = await database.messages.find_user_message(owner_id, continued.session.id, client_id, MOST_SEARCHED)
        return await (continue_chat(chat, continued) if found is None else _branch(chat, continued, found))
    newest = continued.said[-1] if continued.said else None
    if newest is None or newest.run_id is None or (newest.client_id, newest.text) != (client_id, chat.texts[-1]):
        return await continue_chat(chat, continued)
    return join_run(await database.runs.get_run(owner_id, newest.run_id))


async def _branch(chat: ChatRequest, continued: ContinuedSession, original: Message) -> ChatTurn:
    """Ask in a copy of what the session has before the message. The copy takes the chat's id over.

    The message's own turn is cancelled, because nobody would see its answer. Raises ConversationBranched for a chat
    that is named by the id of its session, which no copy can take over.
    """
    session, through = continued.session, original.position - 1
    if chat.name is not None and chat.name.id == session.id:
        raise ConversationBranched(
            f"A message of session {session.id} would be changed or answered again, which makes a copy of the session. "
            "Messages of a session never change. Name the chat by an id of your own."
        )
    check_named_session(chat.call.principal, None)
    asked = replace(
        chat.agent_request,
        brought=replace(chat.agent_request.brought, history=(), steps=()),
        branched_from=session,
        copied=CopiedMessages(session.id, through) if through else None,
    )
    turn = await chat.ask_once(asked, f"{session.id} {original.id} again")
    if original.run_id is not None:
        await chat.call.services.database.runs.request_cancel(chat.call.owner_id, original.run_id)
    return turn


async def _continue_answer(chat: ChatRequest, continued: ContinuedSession | None, answer: UIMessage) -> ChunkPrinter:
    """Give the answer's turn what it waits for. If it waits for nothing that the client knows, join it.

    Raises InvalidInput if the answer is none of this chat, or gives nothing that its turn waits for.
    """
    call, run = chat.call, None
    with suppress(NotFound):
        run = await call.services.database.runs.get_run(call.owner_id, run_id_of(answer.id.partition(":")[0]))
    if run is None or continued is None or run.session_id != continued.session.id:
        raise InvalidInput(
            f"The last message is an answer {answer.id!r}, which this chat does not have. Add a user's message after "
            "it.",
            field=PARAM,
        )
    calls = {part.call_id or "": not part.has_result for part in answer.parts if part.is_tool}
    wait = run.waiting_for
    if wait is None or run.wait is None or not any(awaited.id in calls for awaited in wait.calls):
        return ChunkPrinter(call, join_run(run), answer.id, calls, sends_earlier_parts=True)
    given = _resolutions(answer.parts, call.principal.user_name, run.wait)
    if not wait.has_any_call(given):
        named = ", ".join(f"{awaited.name} ({awaited.id})" for awaited in wait.calls)
        raise InvalidInput(f"The turn waits for {named}. Give outputs or approvals, or add a message.", field=PARAM)
    turn = await continue_chat(replace(chat, decide=lambda _: given), continued)
    return ChunkPrinter(call, turn, answer.id, calls)


def _resolutions(parts: Sequence[MessagePart], author: str | None, wait: Wait) -> tuple[Resolution, ...]:
    """Return what the parts of an answer give to the calls of a wait: results, answers and decisions."""
    given = {part.call_id: part for part in parts if part.is_tool}
    read = (_resolution(awaited, given[awaited.id], author) for awaited in wait.calls if awaited.id in given)
    return tuple(one for one in read if one is not None)


def _resolution(awaited: AwaitedCall, part: MessagePart, author: str | None) -> Resolution | None:
    if awaited.kind is not WaitKind.APPROVAL:
        check_length(part.result, PARAM)
        is_error = part.state == "output-error"
        return Resolution(awaited.id, part.result, is_error=is_error, author=author) if part.has_result else None
    if part.state != "approval-responded" or part.approval is None or part.approval.approved is None:
        return None
    if part.approval.approved:
        return Resolution(awaited.id, decision=ApprovalDecision.APPROVE, author=author)
    return Resolution(awaited.id, part.approval.reason or "", decision=ApprovalDecision.REJECT, author=author)
