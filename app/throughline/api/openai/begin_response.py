"""The turn behind a request for a response: a new one, or a waiting one that is given what it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from throughline.api.http.admitted_request import Call
from throughline.api.http.headers import NO_KEY, Idempotency
from throughline.api.openai.ask_agent import AgentRequest, ask_agent, copied_messages
from throughline.api.openai.brought_conversation import split_messages
from throughline.api.openai.follow_part import FollowedPart
from throughline.api.openai.ids import conversation_not_found, read_conversation_id, read_response_id
from throughline.api.openai.input_items import ApprovalItem, read_items
from throughline.api.openai.models import find_agent
from throughline.api.openai.read_response import get_continued
from throughline.api.openai.response_object import RunResponse, new_echo
from throughline.api.openai.response_request import CreateResponse
from throughline.api.openai.resume_turn import resume_turn
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting, SessionBusy, SessionWaiting
from throughline.domain.ids import RunId, SessionId
from throughline.domain.message import NewMessage, Role, Source, text_of
from throughline.domain.run import Run, RunInput
from throughline.domain.submission import OnBusy, Submitted
from throughline.domain.waiting import Decision, Resolution


@dataclass(frozen=True, slots=True)
class BegunResponse:
    """A response that was begun: the run's part that it is, and where the part's events are found."""

    part: int
    followed: FollowedPart


class PreviousResponseNotFound(NotFound):
    """The response that the request continues is missing, another user's, deleted, or was not stored."""

    code = "previous_response_not_found"


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Where a request for a response came from: its interface, and its idempotency key.

    `continuable` are the ids of responses that were not stored and that the request's connection may continue all the
    same.
    """

    source: Source
    idempotency: Idempotency = NO_KEY
    continuable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Target:
    """What a request continues: a session, a waiting run, or a copy of earlier messages; nothing for a new one.

    `previous` is the response with which the session ends, None if the request names none.
    """

    session_id: SessionId | None = None
    previous: RunResponse | None = None
    waiting: Run | None = None
    part: int = 0
    history: tuple[NewMessage, ...] = ()


async def begin_response(call: Call, body: CreateResponse, origin: RequestOrigin) -> BegunResponse:
    """Store what the request asks, as a new turn or for a waiting one, and return the response that it begins.

    Raises ModelNotFound, NotFound (conversation), PreviousResponseNotFound, InvalidInput, RunNotWaiting, SessionBusy
    and the errors of `submit`.
    """
    agent = find_agent(call.services.agents.all(), body.model)
    instructed, messages = read_items(body.input, origin.source)
    target = await _find_target(call, body, origin, gives=_gives(body, messages))
    run_input = RunInput("", body.metadata or {}, body.read_overrides(instructed), body.read_tools())
    created_at = int(call.services.clock.now().timestamp())
    if target.waiting is not None:
        changed = replace(run_input, echo=new_echo(target.waiting, body.echo(), created_at))
        given_calls = _resolutions(call, target.waiting, body, messages)
        return BegunResponse(target.part + 1, await resume_turn(call, target.waiting, given_calls, changed))
    _check_asks(body, messages)
    brought = split_messages(messages, instructions=instructed, param="input")
    asked = AgentRequest(
        agent=agent.name,
        brought=replace(brought, history=(*target.history, *brought.history)),
        run_input=replace(run_input, echo=new_echo(None, body.echo(), created_at)),
        param="input",
        session_id=target.session_id,
        is_stored=body.is_stored,
        refuses_waiting=body.conversation_id is not None,
    )
    try:
        submitted = await _ask(call, asked, target.previous, origin)
    except SessionWaiting as error:
        await _check_outputs(call, error.run_id, body, messages)
        raise
    is_fresh = submitted.claimed is not None and submitted.claimed.next_event == 1
    return BegunResponse(0, FollowedPart(submitted.run, is_fresh=is_fresh))


async def _ask(call: Call, asked: AgentRequest, previous: RunResponse | None, origin: RequestOrigin) -> Submitted:
    """Submit the turn. One that goes on from `previous` gets a copy if another turn has begun behind it meanwhile.

    Raises NotFound for a conversation that is missing or another user's, and what `ask_agent` raises.
    """
    if previous is None:
        try:
            return await ask_agent(call, asked, origin.source, origin.idempotency)
        except NotFound as error:
            raise (error if asked.session_id is None else conversation_not_found(asked.session_id)) from None
    try:
        return await ask_agent(call, replace(asked, on_busy=OnBusy.REJECT), origin.source, origin.idempotency)
    except SessionBusy:
        brought = replace(asked.brought, history=(*await _copied(call, previous), *asked.brought.history))
    return await ask_agent(call, replace(asked, session_id=None, brought=brought), origin.source, origin.idempotency)


async def _find_target(call: Call, body: CreateResponse, origin: RequestOrigin, *, gives: bool) -> _Target:
    """Return what the request continues. A repeated idempotency key leads to the session of the first request.

    `gives`: the request may give a waiting run what it waits for.
    """
    target = await _find_named(call, body, origin.continuable, gives=gives)
    is_plain = target.session_id is not None and target.waiting is None
    if origin.idempotency.key is None or is_plain:  # a turn of the same session is found when this one is submitted
        return target
    # In this order a turn that the same request has begun in between is found.
    keyed = await call.services.database.runs.find_keyed(call.owner_id, origin.idempotency.key)
    return target if keyed is None else _Target(keyed.session_id)


async def _find_named(call: Call, body: CreateResponse, continuable: frozenset[str], *, gives: bool) -> _Target:
    if body.conversation_id is not None and body.previous_response_id is not None:
        raise InvalidInput(
            "A request names `conversation` or `previous_response_id`, not both.", field="previous_response_id"
        )
    if body.conversation_id is not None:
        session_id = read_conversation_id(body.conversation_id)
        # Whether the session is there, and waits, is found when the message is submitted.
        return await _conversation(call, session_id) if gives else _Target(session_id)
    if body.previous_response_id is not None:
        return await _previous(call, body, body.previous_response_id, continuable)
    return _Target()


async def _conversation(call: Call, session_id: SessionId) -> _Target:
    """Return the conversation with its waiting run. Raises NotFound."""
    waiting = await call.services.database.runs.waiting_of(call.owner_id, session_id)
    if waiting is None:
        try:
            await call.services.database.sessions.get(call.owner_id, session_id)
        except NotFound:
            raise conversation_not_found(session_id) from None
    return _Target(session_id, waiting=waiting, part=0 if waiting is None else waiting.wait_count - 1)


async def _previous(call: Call, body: CreateResponse, name: str, continuable: frozenset[str]) -> _Target:
    """Return what follows a response: its session, its waiting run, or a copy of the messages up to it.

    What is not stored goes on in a copy of a stored session, and the other way round.

    Raises PreviousResponseNotFound, and SessionBusy for a response that is not over.
    """
    try:
        ref = read_response_id(name)
        previous, found = await get_continued(call, ref)
    except NotFound as error:
        raise PreviousResponseNotFound(error.detail) from None
    was_stored = previous.echo.get("store") is not False
    if not was_stored and name not in continuable:
        raise PreviousResponseNotFound(f"The response {name!r} was not stored, so nothing can follow it.")
    run = previous.run
    if previous.part.is_last and run.waiting_for is not None:
        return _Target(waiting=run, part=ref.part)
    if previous.part.is_last and not run.status.is_final:
        raise SessionBusy(f"The response {name!r} is not over yet. Wait for it, or cancel it.", run_id=str(run.id))
    if previous.part.is_last and found.is_newest and was_stored is body.is_stored:
        return _Target(run.session_id, previous)
    return _Target(history=await _copied(call, previous))


async def _copied(call: Call, previous: RunResponse) -> tuple[NewMessage, ...]:
    """Return the messages up to the response as new ones."""
    return await copied_messages(call, previous.run.session_id, await last_position(call, previous))


async def last_position(call: Call, response: RunResponse) -> int:
    """Return the position of the response's last message: that of its question if it made none."""
    made = (*response.part.input, *response.part.made)
    messages = made or await call.services.database.messages.of_run(response.run)
    return messages[-1].position if messages else 0


def _check_asks(body: CreateResponse, messages: Sequence[NewMessage]) -> None:
    """Raise RunNotWaiting if the request only gives outputs or decisions, for which nothing waits."""
    if _gives(body, messages) and all(message.role is Role.TOOL for message in messages):
        raise RunNotWaiting(
            "No turn waits for these outputs: it was given them or others before, or has ended. Read its responses, or "
            "send a message of the user."
        )


def _gives(body: CreateResponse, messages: Sequence[NewMessage]) -> bool:
    """Return whether the request has outputs of tools, or decisions on approvals."""
    return any(message.role is Role.TOOL for message in messages) or bool(_approvals(body))


async def _check_outputs(call: Call, waiting_id: str, body: CreateResponse, messages: tuple[NewMessage, ...]) -> None:
    """Raise InvalidInput if the request lacks what the waiting run waits for."""
    waiting = await call.services.database.runs.get_run(call.owner_id, RunId(UUID(waiting_id)))
    _resolutions(call, waiting, body, messages)


def _approvals(body: CreateResponse) -> list[ApprovalItem]:
    return [] if isinstance(body.input, str) else [item for item in body.input if isinstance(item, ApprovalItem)]


def _resolutions(
    call: Call, run: Run, body: CreateResponse, messages: tuple[NewMessage, ...]
) -> tuple[Resolution, ...]:
    """Return what the request gives to the calls of the waiting run.

    Raises InvalidInput if it lacks what a call waits for, or says anything else, or names another agent.
    """
    if body.model != run.agent:
        raise InvalidInput(f"The turn that waits is one of the model {run.agent!r}. Name it.", field="model")
    author = call.principal.user_name
    given = [_decided(item, author) for item in _approvals(body)]
    given += [
        Resolution(message.tool_call_id or "", text_of(message.content), author=author)
        for message in messages
        if message.role is Role.TOOL
    ]
    known = {resolution.call_id for resolution in given}
    missing = [awaited for awaited in (run.wait.open_calls if run.wait is not None else ()) if awaited.id not in known]
    if missing:
        raise InvalidInput(f"No tool output found for function call {missing[0].id}.", field="input")
    if any(message.role is not Role.TOOL for message in messages):
        raise InvalidInput(
            "The conversation waits for outputs of function calls. Send them alone, and messages with a later request.",
            field="input",
        )
    return tuple(given)


def _decided(item: ApprovalItem, author: str) -> Resolution:
    decision = Decision.APPROVE if item.approve else Decision.REJECT
    reason = "" if item.approve else item.reason or ""
    return Resolution(item.approval_request_id, reason, decision=decision, author=author)
