"""The turn behind a request of the AI SDK: of a new message, of an edited or repeated one, or the rest of a turn."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from fastapi import Request

from throughline.ai_sdk.chunks import StreamedAnswer
from throughline.ai_sdk.request import PROTOCOL, MessagePart, SendChat, UIMessage, read_messages
from throughline.chat_protocols.ask_agent import AgentRequest, RequestMessages, split_messages
from throughline.chat_protocols.continue_chat import (
    ChatRequest,
    ChatTurn,
    begin_session,
    check_output,
    continue_chat,
    find_session,
    join_run,
    name_session,
)
from throughline.chat_protocols.follow_part import new_echo
from throughline.db.sessions.find_session import ContinuedSession
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import RunId
from throughline.domain.errors import ConversationBranched, InvalidInput, NotFound
from throughline.domain.message import CLIENT_MESSAGE_ID, LAST_POSITION, Message, NewMessage, Role
from throughline.domain.prompt import Overrides
from throughline.domain.run import CopiedMessages, Run, RunInput
from throughline.domain.tool import ApprovalDecision, Resolution, Wait, WaitKind
from throughline.http.call import Call, check_named_session, source_of
from throughline.http.headers import fingerprint_of, read_idempotency

PARAM = "messages"
PAGE, MOST_SEARCHED = 200, 1_000
"""Messages that one statement reads, and newest messages of a session among which an edited one is searched."""


async def begin_chat(request: Request, call: Call, agent: str, body: SendChat) -> StreamedAnswer:
    """Store what the request asks, or find the turn that it repeats, and return the answer that it begins or continues.

    Raises NotFound (agent), InvalidInput, SessionBusy, and the errors of `submit`.
    """
    messages = body.chat()
    chat = _read(request, call, call.services.agents.get(agent).name, body)
    if messages[-1].role == "assistant":
        return await _continue_answer(chat, messages[-1])
    turn = await _begin_answer(chat, body, messages[-1])
    run_id = turn.followed.run.id
    return StreamedAnswer(turn, f"{run_id}:{turn.part}" if turn.part else str(run_id))


def _read(request: Request, call: Call, agent: str, body: SendChat) -> ChatRequest:
    source, messages = source_of(request, call), body.chat()
    read = read_messages(messages, source)
    continues_answer = messages[-1].role == "assistant"
    brought = RequestMessages()
    if not continues_answer:
        brought = split_messages(read.messages, instructions=read.instructions, param=PARAM)
    idempotency = read_idempotency(request, body)
    return ChatRequest(
        call=call,
        source=source,
        name=name_session(body.id),
        agent_request=AgentRequest(
            agent=agent,
            brought=brought,
            run_input=_run_input(call, body, read.instructions, brought.user_message),
            param=PARAM,
            external_id=body.id,
        ),
        texts=() if continues_answer else read.texts,
        echo={},
        idempotency=idempotency,
        is_retry=False,
        fingerprint="" if idempotency.key is not None else fingerprint_of(request, body),
        decide=partial(_resolutions, messages[-1].parts, call.principal.user_name) if continues_answer else None,
        protocol=PROTOCOL,
        agent_word="agent",
    )


def _run_input(call: Call, body: SendChat, instructions: str, asked: NewMessage | None) -> RunInput:
    """Return the turn's input without its message."""
    overrides = Overrides(instructions=instructions or None).leniently()
    echo = new_echo(None, {}, int(call.services.clock.now().timestamp()))
    return RunInput("", {} if asked is None else asked.metadata, overrides, body.read_tools(), echo=echo)


async def _begin_answer(chat: ChatRequest, body: SendChat, asked: UIMessage) -> ChatTurn:
    """Begin the answer to a user's message, or join that of an equal one. An edited or repeated message branches."""
    is_changed = body.trigger == "regenerate-message" or (body.message_id is not None and body.message_id == asked.id)
    if chat.agent_request.brought.user_message is None:
        raise InvalidInput("The chat has no message of a user. Add one.", field=PARAM)
    continued = await find_session(chat.call, name_session(body.id))
    if continued is None:
        return await begin_session(chat)
    if not is_changed:
        repeated = await _repeated_run(chat, continued, asked)
        return await continue_chat(chat, continued) if repeated is None else join_run(repeated)
    original = await _find_original(chat.call, continued, asked)
    if original is None:
        return await continue_chat(chat, continued)
    return await _branch(chat, continued, original)


async def _repeated_run(chat: ChatRequest, continued: ContinuedSession, asked: UIMessage) -> Run | None:
    """Return the session's newest run if it is that of this message, by the client's id and the text."""
    newest = continued.said[-1] if continued.said else None
    if newest is None or newest.run_id is None or not asked.id or newest.text != chat.texts[-1]:
        return None
    run = await chat.call.services.database.runs.get_run(chat.call.owner_id, newest.run_id)
    return run if run.input.metadata.get(CLIENT_MESSAGE_ID) == asked.id else None


async def _find_original(call: Call, continued: ContinuedSession, asked: UIMessage) -> Message | None:
    """Return the stored message that the client edits or asks again, None if it is not among the newest."""
    before, searched = LAST_POSITION, 0
    while asked.id and searched < MOST_SEARCHED:
        query = MessageQuery(before=before, limit=PAGE, order="desc")
        page = await call.services.database.messages.list_messages(call.owner_id, continued.session.id, query)
        said = (message for message in page.items if message.role is Role.USER)
        found = next((one for one in said if asked.id in {one.metadata.get(CLIENT_MESSAGE_ID), str(one.id)}), None)
        if found is not None or page.next_cursor is None:
            return found
        before, searched = page.items[-1].position, searched + PAGE
    return None


async def _branch(chat: ChatRequest, continued: ContinuedSession, original: Message) -> ChatTurn:
    """Ask in a copy of what the session has before the message. The copy takes the chat's id over.

    The message's own turn is cancelled, because nobody would see its answer. Raises ConversationBranched for a chat
    that is named by the id of its session, which no copy can take over.
    """
    if chat.name is not None and chat.name.id == continued.session.id:
        raise ConversationBranched(
            f"A message of session {continued.session.id} would be changed or answered again, which makes a copy of "
            "the session. Messages of a session never change. Name the chat by an id of your own."
        )
    check_named_session(chat.call.principal, None)
    session, through = continued.session, original.position - 1
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


async def _continue_answer(chat: ChatRequest, answer: UIMessage) -> StreamedAnswer:
    """Give the answer's turn what it waits for. If it waits for nothing that the client knows, join it.

    Raises InvalidInput if the answer is none of this chat, or gives nothing that its turn waits for.
    """
    continued = None if chat.name is None else await find_session(chat.call, chat.name)
    run = await _run_of(chat.call, answer)
    if run is None or continued is None or run.session_id != continued.session.id:
        raise InvalidInput(
            f"The last message is an answer {answer.id!r}, which this chat does not have. Add a user's message after "
            "it.",
            field=PARAM,
        )
    calls = {part.call_id or "": part.has_result for part in answer.parts if part.is_tool}
    open_calls = frozenset(call_id for call_id, has_result in calls.items() if not has_result)
    wait = run.waiting_for
    if wait is None or not any(awaited.id in calls for awaited in wait.calls):
        return StreamedAnswer(join_run(run), answer.id, frozenset(calls), open_calls, is_whole=True)
    if chat.decide is None or not chat.decide(wait):
        named = ", ".join(f"{awaited.name} ({awaited.id})" for awaited in wait.calls)
        raise InvalidInput(f"The turn waits for {named}. Give outputs or approvals, or add a message.", field=PARAM)
    return StreamedAnswer(await continue_chat(chat, continued), answer.id, frozenset(calls), open_calls)


async def _run_of(call: Call, answer: UIMessage) -> Run | None:
    try:
        run_id = RunId(UUID(answer.id.partition(":")[0]))
        return await call.services.database.runs.get_run(call.owner_id, run_id)
    except (ValueError, NotFound):
        return None


def _resolutions(parts: Sequence[MessagePart], author: str | None, wait: Wait) -> tuple[Resolution, ...]:
    """Return what the parts of an answer give to the calls of a wait: results, answers and decisions."""
    given = {part.call_id: part for part in parts if part.is_tool}
    found = ((awaited, given[awaited.id]) for awaited in wait.calls if awaited.id in given)
    read = (_resolution(awaited.id, awaited.kind, part, author) for awaited, part in found)
    return tuple(one for one in read if one is not None)


def _resolution(call_id: str, kind: WaitKind, part: MessagePart, author: str | None) -> Resolution | None:
    if kind is not WaitKind.APPROVAL:
        is_error = part.state == "output-error"
        check_output(part.result, PARAM)
        return Resolution(call_id, part.result, is_error=is_error, author=author) if part.has_result else None
    if part.state != "approval-responded" or part.approval is None or part.approval.approved is None:
        return None
    decision = ApprovalDecision.APPROVE if part.approval.approved else ApprovalDecision.REJECT
    reason = "" if part.approval.approved else part.approval.reason or ""
    return Resolution(call_id, reason, decision=decision, author=author)
