"""LangGraph's threads. A thread is a session, and its state shows the session's messages."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Literal, TypeAlias

from fastapi import Query, Request, Response
from pydantic import Field, JsonValue

from throughline.chat_protocols.continue_chat import uuid_of
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
from throughline.http.fields import Metadata, MetadataFilter, QueryParameters
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import codes
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX
from throughline.langgraph_api.assistants import assistant_id, default_agent, find_agent, pick
from throughline.langgraph_api.request import Body, Names
from throughline.langgraph_api.thread_state import (
    ThreadState,
    current_run,
    error_of,
    find_thread,
    read_history,
    read_state,
    thread_id_of,
)
from throughline.wire.json_shape import JsonDict

PAGE = 200
"""Threads that a search reads at a time."""

MOST_SEARCHED = 1_000
"""Threads that a search reads, the last updated first."""

AGENT_KEYS = ("graph_id", "assistant_id")
"""Keys of a thread's metadata that name its agent. They are not stored with the others."""

Status: TypeAlias = Literal["idle", "busy", "interrupted", "error"]
THREAD_STATUS: Mapping[RunStatus, Status] = {
    RunStatus.QUEUED: "busy",
    RunStatus.RUNNING: "busy",
    RunStatus.WAITING: "interrupted",
    RunStatus.FAILED: "error",
}
"""The status of a thread by that of its current run. Without one, or after its end, a thread is idle."""

router = PrefixRouter(prefix=f"{PREFIX}/threads", tags=[LANGGRAPH])


class CreateThread(Body):
    """A new thread. `graph_id` or `assistant_id` among its metadata name the agent.

    `ttl` and `supersteps` are not served: threads stay until they are deleted, and their state cannot be written.
    """

    unserved = frozenset({"ttl", "supersteps"})

    thread_id: str | None = Field(None, json_schema_extra={"format": "uuid"})
    metadata: Metadata | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None


class ChangeThread(Body):
    """Metadata to add to those of a thread. `ttl` is not served: threads stay until they are deleted."""

    unserved = frozenset({"ttl"})

    metadata: Metadata = Field(default_factory=dict)


class CountThreads(Body):
    """Filters of threads. `values` is not served: a search for messages is GET /v1/search."""

    unserved = frozenset({"values"})

    metadata: Metadata | None = None
    status: Status | None = None
    ids: Annotated[list[str] | None, Field(max_length=MOST_SEARCHED)] = None


class SearchThreads(CountThreads):
    """A page of the list of threads, the last updated first. `values` and `extract` are not served."""

    unserved = frozenset({"values", "extract"})

    limit: int = Field(10, ge=1, le=100)
    offset: int = Field(0, ge=0, le=MOST_SEARCHED)
    sort_by: Literal["updated_at"] | None = None
    sort_order: Literal["desc"] | None = None
    select: Names | None = None


class ReadCheckpoint(Body):
    """The checkpoint whose state is read. `subgraphs` has no effect: there are none."""

    ignored = frozenset({"subgraphs"})

    checkpoint: dict[str, JsonValue]
    select: Names | None = None


class ReadHistory(Body):
    """A page of a thread's states at the ends of turns, the newest first.

    `checkpoint` has no effect: there are no subgraphs. `metadata` is not served.
    """

    ignored = frozenset({"checkpoint"})
    unserved = frozenset({"metadata"})

    limit: int = Field(10, ge=1, le=100)
    before: str | dict[str, JsonValue] | None = None
    select: Names | None = None


class ReadState(QueryParameters):
    """The members of a state that are wanted."""

    select: Names | None = None
    subgraphs: bool | None = Field(None, description="taken without effect: there are no subgraphs")


class ListHistory(QueryParameters):
    """A page of a thread's states at the ends of turns, the newest first."""

    limit: int = Field(10, ge=1, le=100)
    before: str | None = Field(None, description="the id of a checkpoint")


@router.post("", openapi_extra=described(body=CreateThread, is_body_required=False, errors=codes(ExternalIdTaken)))
async def create_thread(request: Request, call: Writer) -> Response:
    """Create a thread. Its agent may change with each run."""
    body = await read_optional_body(request, CreateThread)
    session, is_found = await _create(request, call, body)
    if is_found and body.if_exists != "do_nothing":
        raise ExternalIdTaken(
            f"There is a thread {body.thread_id} already. Choose another id, or send `if_exists`: `do_nothing`."
        )
    return JsonResponse(await _thread_json(call, session) if is_found else _state_as_thread(ThreadState(session)))


async def _create(request: Request, call: Call, body: CreateThread) -> tuple[Session, bool]:
    """Return the thread, and whether it existed before. Raises NotFound (agent), InvalidInput (id)."""
    metadata = body.metadata or {}
    agent = _agent_in(call, metadata) or default_agent(call)
    if body.thread_id is not None:
        if uuid_of(body.thread_id) is None:
            raise InvalidInput("Must be a UUID in its usual form. Leave it out for a new one.", field="thread_id")
        with suppress(NotFound):
            return await find_thread(call, body.thread_id), True
    check_named_session(call.principal, None)
    new = NewSession(
        owner_id=call.owner_id,
        agent=agent,
        title="",
        source=source_of(request, call),
        metadata=_without_agent(metadata),
        external_id=None if body.thread_id is None else body.thread_id.lower(),
    )
    session, outcome = await call.services.database.sessions.create(new)
    return session, outcome is CreateOutcome.FOUND


def _agent_in(call: Call, metadata: JsonObject) -> str | None:
    """Return the agent that the first text in metadata of a thread names, None without one. Raises NotFound."""
    named = next((name for name in map(metadata.get, AGENT_KEYS) if isinstance(name, str)), "")
    return find_agent(call, named).name if named else None


def _without_agent(metadata: JsonObject) -> dict[str, JsonValue]:
    return {name: value for name, value in metadata.items() if name not in AGENT_KEYS}


@router.post("/search", openapi_extra=described(body=SearchThreads, is_body_required=False))
async def search_threads(request: Request, call: Reader) -> Response:
    """List threads, the last updated first. It reads the thousand threads that were updated last."""
    check_named_session(call.principal, None)
    body = await read_optional_body(request, SearchThreads)
    found: list[Session] = []
    async with aclosing(_matching(call, body)) as matching:
        async for session in matching:
            found.append(session)
            if len(found) == body.offset + body.limit:
                break
    return JsonResponse([await _thread_json(call, session, body.select) for session in found[body.offset :]])


@router.post("/count", openapi_extra=described(body=CountThreads, is_body_required=False))
async def count_threads(request: Request, call: Reader) -> Response:
    """Count threads among the thousand that were updated last."""
    check_named_session(call.principal, None)
    body = await read_optional_body(request, CountThreads)
    async with aclosing(_matching(call, body)) as matching:
        return JsonResponse(len([session async for session in matching]))


async def _matching(call: Call, asked: CountThreads) -> AsyncGenerator[Session]:
    metadata = asked.metadata or {}
    query = SessionQuery(limit=PAGE, agent=_agent_in(call, metadata), metadata=_without_agent(metadata))
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
    return asked.status is None or _status_of(await current_run(call, session.id)) == asked.status


@router.get("/{thread_id}")
async def get_thread(thread_id: str, call: Reader) -> Response:
    """Return a thread."""
    return JsonResponse(await _thread_json(call, await find_thread(call, thread_id)))


@router.patch("/{thread_id}", openapi_extra=described(body=ChangeThread))
async def change_thread(request: Request, thread_id: str, call: Writer) -> Response:
    """Add metadata to those of a thread."""
    session = await find_thread(call, thread_id)
    body = await read_body(request, ChangeThread)
    merged = validate({"metadata": {**session.metadata, **_without_agent(body.metadata)}}, MetadataFilter).metadata
    changed = await call.services.database.sessions.update(call.owner_id, session.id, SessionChange(metadata=merged))
    return JsonResponse(await _thread_json(call, changed))


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
    if session.message_count:
        copied, _ = await sessions.branch(NewBranch(call.owner_id, session.id, session.message_count, source))
    else:
        new = NewSession(call.owner_id, session.agent, session.title, source, session.metadata)
        copied, _ = await sessions.create(new)
    return JsonResponse(await _thread_json(call, copied))


@router.get("/{thread_id}/state")
async def get_state(thread_id: str, call: Reader, asked: Annotated[ReadState, Query()]) -> Response:
    """Return the state of a thread as it is now."""
    return await _state_response(call, thread_id, None, asked.select)


@router.get("/{thread_id}/state/{checkpoint_id}")
async def get_state_at(
    thread_id: str, checkpoint_id: str, call: Reader, asked: Annotated[ReadState, Query()]
) -> Response:
    """Return the state of a thread at a checkpoint."""
    return await _state_response(call, thread_id, checkpoint_id, asked.select)


@router.post("/{thread_id}/state/checkpoint", openapi_extra=described(body=ReadCheckpoint))
async def read_state_at(request: Request, thread_id: str, call: Reader) -> Response:
    """Return the state of a thread at a checkpoint, or as it is now if the checkpoint has no id."""
    body = await read_body(request, ReadCheckpoint)
    checkpoint_id = body.checkpoint.get("checkpoint_id")
    return await _state_response(call, thread_id, str(checkpoint_id) if checkpoint_id else None, body.select)


async def _state_response(call: Call, thread_id: str, checkpoint_id: str | None, select: list[str] | None) -> Response:
    state = await read_state(call, await find_thread(call, thread_id), checkpoint_id)
    return JsonResponse(pick(state.as_json(), select))


@router.get("/{thread_id}/history")
async def get_history(thread_id: str, call: Reader, asked: Annotated[ListHistory, Query()]) -> Response:
    """Return the states of a thread at the ends of turns, the newest first."""
    return await _history_response(call, thread_id, ReadHistory(limit=asked.limit, before=asked.before))


@router.post("/{thread_id}/history", openapi_extra=described(body=ReadHistory, is_body_required=False))
async def post_history(request: Request, thread_id: str, call: Reader) -> Response:
    """Return the states of a thread at the ends of turns, the newest first."""
    return await _history_response(call, thread_id, await read_optional_body(request, ReadHistory))


async def _history_response(call: Call, thread_id: str, asked: ReadHistory) -> Response:
    before = asked.before
    if isinstance(before, dict):
        inner = before.get("configurable")
        before = str((inner if isinstance(inner, dict) else before).get("checkpoint_id"))
    states = await read_history(call, await find_thread(call, thread_id), before, asked.limit)
    return JsonResponse([pick(state.as_json(), asked.select) for state in states])


def _status_of(run: Run | None) -> Status:
    return "idle" if run is None else THREAD_STATUS.get(run.status, "idle")


async def _thread_json(call: Call, session: Session, select: list[str] | None = None) -> JsonDict:
    """Return the thread as clients read it. Its state is read if it is selected."""
    if not select or any(name.partition(".")[0] in {"values", "interrupts"} for name in select):
        return pick(_state_as_thread(await read_state(call, session)), select)
    return pick(_state_as_thread(ThreadState(session, run=await current_run(call, session.id))), select)


def _state_as_thread(state: ThreadState) -> JsonDict:
    session, run, agent = state.session, state.run, state.session.agent
    error = None if run is None else error_of(run)
    return {
        "thread_id": thread_id_of(session),
        "created_at": session.created_at.isoformat(),
        "updated_at": session.updated_at.isoformat(),
        "metadata": {**session.metadata, "graph_id": agent, "assistant_id": assistant_id(agent)},
        "status": _status_of(run),
        "config": {},
        "values": state.values if state.messages else None,
        "interrupts": {str(run.id): state.interrupts} if run is not None and state.interrupts else {},
        "error": None if error is None else error.detail,
    }
