"""LangGraph's threads. A thread is a session, and its state shows the session's messages."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import JsonValue

from throughline.db.sessions.branch import NewBranch
from throughline.db.sessions.create import CreateOutcome
from throughline.db.sessions.repository import SessionChange, SessionQuery
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import ExternalIdTaken, InvalidInput, NotFound, SessionBusy
from throughline.domain.run import Run, RunStatus
from throughline.domain.session import NewSession, Session
from throughline.http.body import read_body, read_optional_body, validate
from throughline.http.call import Call, Reader, Writer, check_named_session, source_of
from throughline.http.documents import described
from throughline.http.fields import MetadataFilter
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import codes
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX, refuse
from throughline.langgraph_api.assistants import assistant_id, default_agent, find_agent, pick
from throughline.langgraph_api.thread_requests import (
    MOST_SEARCHED,
    ChangeThread,
    CountThreads,
    CreateThread,
    ListHistory,
    ReadCheckpoint,
    ReadHistory,
    ReadState,
    SearchThreads,
    Status,
)
from throughline.langgraph_api.thread_state import (
    ThreadState,
    current_run,
    error_of,
    find_thread,
    is_uuid,
    newest_message,
    newest_state,
    read_history,
    state_at,
    thread_id_of,
)
from throughline.wire.json_shape import JsonDict

PAGE = 200
"""Threads that a search reads at a time."""

AGENT_KEYS = ("graph_id", "assistant_id")
"""Keys of a thread's metadata that name its agent. They are not stored with the others."""

router = PrefixRouter(prefix=f"{PREFIX}/threads", tags=[LANGGRAPH])


@router.post("", openapi_extra=described(body=CreateThread, is_body_required=False, errors=codes(ExternalIdTaken)))
async def create_thread(request: Request, call: Writer) -> Response:
    """Create a thread. Its agent may change with each run."""
    body = await read_optional_body(request, CreateThread)
    refuse(ttl=body.ttl, supersteps=body.supersteps)
    session, is_found = await _create(request, call, body)
    if is_found and body.if_exists != "do_nothing":
        raise ExternalIdTaken(
            f"There is a thread {body.thread_id} already. Choose another id, or send `if_exists`: `do_nothing`."
        )
    if is_found:
        return JsonResponse(await _thread_json(call, session, None))
    return JsonResponse(_shown(ThreadState(session, ()), None))


async def _create(request: Request, call: Call, body: CreateThread) -> tuple[Session, bool]:
    """Return the thread, and whether it existed before. Raises NotFound (agent), InvalidInput (id)."""
    metadata = dict(body.metadata or {})
    named = next((metadata[key] for key in AGENT_KEYS if isinstance(metadata.get(key), str)), None)
    agent = find_agent(call, str(named)).name if named else default_agent(call)
    external_id = None if body.thread_id is None else _chosen_id(body.thread_id)
    if external_id is not None and (known := await find_or_none(call, external_id)) is not None:
        return known, True
    new = NewSession(
        owner_id=call.owner_id,
        agent=agent,
        title="",
        source=source_of(request, call),
        metadata=_without_agent(metadata),
        external_id=external_id,
    )
    check_named_session(call.principal, None)
    session, outcome = await call.services.database.sessions.create(new)
    return session, outcome is CreateOutcome.FOUND


def _chosen_id(text: str) -> str:
    if not is_uuid(text):
        raise InvalidInput("Must be a UUID in its usual form. Leave it out for a new one.", field="thread_id")
    return text.lower()


async def find_or_none(call: Call, name: str) -> Session | None:
    """Return the thread, None if it does not exist."""
    try:
        return await find_thread(call, name)
    except NotFound:
        return None


def _without_agent(metadata: JsonObject) -> dict[str, JsonValue]:
    return {name: value for name, value in metadata.items() if name not in AGENT_KEYS}


@router.post("/search", openapi_extra=described(body=SearchThreads, is_body_required=False))
async def search_threads(request: Request, call: Reader) -> Response:
    """List threads, the last updated first. It looks at the thousand threads that were updated last."""
    check_named_session(call.principal, None)
    body = await read_optional_body(request, SearchThreads)
    refuse(values=body.values, extract=body.extract)
    found: list[JsonValue] = []
    place = 0
    async with aclosing(_matching(call, body)) as matching:
        async for session in matching:
            if place >= body.offset:
                found.append(await _thread_json(call, session, body.select))
            place += 1
            if len(found) == body.limit:
                break
    return JsonResponse(found)


@router.post("/count", openapi_extra=described(body=CountThreads, is_body_required=False))
async def count_threads(request: Request, call: Reader) -> Response:
    """Count threads among the thousand that were updated last."""
    check_named_session(call.principal, None)
    body = await read_optional_body(request, CountThreads)
    refuse(values=body.values)
    async with aclosing(_matching(call, body)) as matching:
        return JsonResponse(len([session async for session in matching]))


async def _matching(call: Call, asked: CountThreads) -> AsyncGenerator[Session]:
    metadata = asked.metadata or {}
    named = next((metadata[key] for key in AGENT_KEYS if key in metadata), None)
    agent = None if named is None else find_agent(call, str(named)).name
    query = SessionQuery(limit=PAGE, agent=agent, metadata=_without_agent(metadata))
    for _ in range(MOST_SEARCHED // PAGE):
        page = await call.services.database.sessions.list(call.owner_id, query)
        for session in page.items:
            if await _fits(call, session, asked):
                yield session
        if page.next_cursor is None:
            return
        query = replace(query, cursor=page.next_cursor)


async def _fits(call: Call, session: Session, asked: CountThreads) -> bool:
    if asked.ids is not None and not {thread_id_of(session), str(session.id)} & set(asked.ids):
        return False
    return asked.status is None or status_of(await current_run(call, session)) == asked.status


@router.get("/{thread_id}")
async def get_thread(thread_id: str, call: Reader) -> Response:
    """Return a thread."""
    return JsonResponse(await _thread_json(call, await find_thread(call, thread_id), None))


@router.patch("/{thread_id}", openapi_extra=described(body=ChangeThread))
async def change_thread(request: Request, thread_id: str, call: Writer) -> Response:
    """Add metadata to those of a thread."""
    session = await find_thread(call, thread_id)
    body = await read_body(request, ChangeThread)
    refuse(ttl=body.ttl)
    merged = validate({"metadata": {**session.metadata, **_without_agent(body.metadata)}}, MetadataFilter).metadata
    change = SessionChange(metadata=merged)
    changed = await call.services.database.sessions.update(call.owner_id, session.id, change)
    return JsonResponse(await _thread_json(call, changed, None))


@router.delete("/{thread_id}", status_code=HTTPStatus.NO_CONTENT, openapi_extra=described(errors=codes(SessionBusy)))
async def delete_thread(thread_id: str, call: Writer) -> Response:
    """Erase a thread with everything of it."""
    session = await find_thread(call, thread_id)
    await call.services.database.sessions.delete(call.owner_id, session.id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/{thread_id}/copy", openapi_extra=described(errors=codes(SessionBusy)))
async def copy_thread(request: Request, thread_id: str, call: Writer) -> Response:
    """Create a thread with copies of this one's messages. Refused (409) while a turn of it is not finished."""
    check_named_session(call.principal, None)
    session, sessions = await find_thread(call, thread_id), call.services.database.sessions
    source = source_of(request, call)
    newest = await newest_message(call, session)
    if newest is None:
        new = NewSession(call.owner_id, session.agent, session.title, source, session.metadata)
        copied, _ = await sessions.create(new)
    else:
        copied, _ = await sessions.branch(NewBranch(call.owner_id, session.id, newest.position, source))
    return JsonResponse(await _thread_json(call, copied, None))


@router.get("/{thread_id}/state")
async def get_state(thread_id: str, call: Reader, asked: Annotated[ReadState, Query()]) -> Response:
    """Return the state of a thread as it is now."""
    return _state_response(await newest_state(call, await find_thread(call, thread_id)), asked.select)


@router.get("/{thread_id}/state/{checkpoint_id}")
async def get_state_at(
    thread_id: str, checkpoint_id: str, call: Reader, asked: Annotated[ReadState, Query()]
) -> Response:
    """Return the state of a thread at a checkpoint."""
    return _state_response(await state_at(call, await find_thread(call, thread_id), checkpoint_id), asked.select)


@router.post("/{thread_id}/state/checkpoint", openapi_extra=described(body=ReadCheckpoint))
async def read_state_at(request: Request, thread_id: str, call: Reader) -> Response:
    """Return the state of a thread at a checkpoint, or as it is now if the checkpoint has no id."""
    session, body = await find_thread(call, thread_id), await read_body(request, ReadCheckpoint)
    checkpoint_id = body.checkpoint.get("checkpoint_id")
    found = await (state_at(call, session, str(checkpoint_id)) if checkpoint_id else newest_state(call, session))
    return _state_response(found, body.select)


@router.get("/{thread_id}/history")
async def get_history(thread_id: str, call: Reader, asked: Annotated[ListHistory, Query()]) -> Response:
    """Return the states of a thread at the ends of turns, the newest first."""
    return await _history_response(call, thread_id, ReadHistory(limit=asked.limit, before=asked.before))


@router.post("/{thread_id}/history", openapi_extra=described(body=ReadHistory, is_body_required=False))
async def post_history(request: Request, thread_id: str, call: Reader) -> Response:
    """Return the states of a thread at the ends of turns, the newest first."""
    return await _history_response(call, thread_id, await read_optional_body(request, ReadHistory))


async def _history_response(call: Call, thread_id: str, asked: ReadHistory) -> Response:
    refuse(metadata=asked.metadata)
    before = asked.before
    if isinstance(before, dict):
        inner = before.get("configurable")
        before = str((inner if isinstance(inner, dict) else before).get("checkpoint_id"))
    states = await read_history(call, await find_thread(call, thread_id), before, asked.limit)
    return JsonResponse([pick(state.as_json(), asked.select) for state in states])


def _state_response(state: ThreadState, select: list[str] | None) -> Response:
    return JsonResponse(pick(state.as_json(), select))


def status_of(run: Run | None) -> Status:
    """Return the status of a thread with this current run."""
    match None if run is None else run.status:
        case RunStatus.QUEUED | RunStatus.RUNNING:
            return "busy"
        case RunStatus.WAITING:
            return "interrupted"
        case RunStatus.FAILED:
            return "error"
        case _:
            return "idle"


async def _thread_json(call: Call, session: Session, select: list[str] | None) -> JsonDict:
    """Return the thread as clients read it. Its state is read if it is selected."""
    has_values = not select or any(name.partition(".")[0] in {"values", "interrupts"} for name in select)
    state = await newest_state(call, session) if has_values else ThreadState(session, (), run=None)
    run = state.run if has_values else await current_run(call, session)
    return pick(_shown(state, run), select)


def _shown(state: ThreadState, run: Run | None) -> JsonDict:
    session, agent = state.session, state.session.agent
    error = None if run is None else error_of(run)
    return {
        "thread_id": thread_id_of(session),
        "created_at": session.created_at.isoformat(),
        "updated_at": session.updated_at.isoformat(),
        "metadata": {**session.metadata, "graph_id": agent, "assistant_id": assistant_id(agent)},
        "status": status_of(run),
        "config": {},
        "values": {"messages": state.values["messages"]} if state.messages else None,
        "interrupts": {str(run.id): state.interrupts} if run is not None and state.interrupts else {},
        "error": None if error is None else error.detail,
    }
