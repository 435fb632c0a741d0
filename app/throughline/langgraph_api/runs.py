"""LangGraph's runs. A run is a run of the service; if it waits, a command resumes it under the same id."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response

from throughline.chat_protocols.continue_chat import ChatTurn, join_run
from throughline.chat_protocols.follow_part import FollowedPart, follow_part, wait_for_end
from throughline.chat_protocols.request_run import RequestRun
from throughline.db.runs.list_runs import RunQuery
from throughline.domain.errors import (
    ConversationBranched,
    InvalidInput,
    NotFound,
    RunNotWaiting,
    SessionBusy,
    ThroughlineError,
)
from throughline.domain.events import RunEnded, RunWaiting
from throughline.domain.keys import Scope
from throughline.domain.message import CLIENT_MESSAGE_ID
from throughline.domain.run import Run, RunStatus
from throughline.http.auth import check_scope
from throughline.http.body import read_body, read_json, validate
from throughline.http.call import Call, PathId, Reader, Writer, run_id_of
from throughline.http.documents import JSON, Json, described
from throughline.http.follow import STREAM_HEADERS, EventStream, following_of, nothing_more
from throughline.http.headers import KEY_HEADER, LAST_EVENT_ID, read_last_event_id
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse, json_bytes
from throughline.http.route_errors import FOLLOWING, codes
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX
from throughline.langgraph_api.assistants import assistant_id, find_agent, pick
from throughline.langgraph_api.begin_run import begin_run
from throughline.langgraph_api.interrupts import interrupts_of
from throughline.langgraph_api.messages import message_json
from throughline.langgraph_api.request import CancelRun, CreateRun, JoinStream, ListThreadRuns
from throughline.langgraph_api.stream import RUN_STATUS, stream_run
from throughline.langgraph_api.thread_state import (
    current_run,
    error_of,
    find_thread,
    read_newest,
    thread_id_of,
    values_json,
)
from throughline.wire.json_shape import JsonDict

MOST_IN_BATCH = 20
THREAD = "/threads/{thread_id}"
begin_router = PrefixRouter(prefix=PREFIX, tags=[LANGGRAPH])
"""Routes that begin runs, which are called most. They come before all others of the interface."""

router = PrefixRouter(prefix=PREFIX, tags=[LANGGRAPH])
BEGINNING = described(
    body=CreateRun,
    headers=(KEY_HEADER,),
    errors=(*codes(NotFound, SessionBusy, RunNotWaiting, ConversationBranched), *FOLLOWING),
)
THREAD_ID: Json = {"name": "thread_id", "in": "path", "required": True, "schema": {"type": "string"}}
BEGINNING_IN_THREAD: Json = {**BEGINNING, "parameters": [THREAD_ID, *BEGINNING["parameters"]]}


async def _begin(request: Request, call: Call) -> tuple[CreateRun, ChatTurn, str]:
    """Read the body and begin its run, in the path's thread if it has one.

    Return the body, the run's part and the id of its thread.
    """
    body = await read_body(request, CreateRun)
    return body, *await begin_run(request, call, body, request.path_params.get("thread_id"))


def _headers(turn: ChatTurn, thread_id: str, resume_path: str | None = None) -> dict[str, str]:
    """Return the headers that name the run, and the address to go on at, unless the run ends with its client."""
    path = f"/threads/{thread_id}/runs/{turn.followed.run.id}"
    location = {} if resume_path is None or turn.ends_with_client else {"Location": f"{path}/{resume_path}"}
    return {"Content-Location": path, **location}


@begin_router.post(THREAD + "/runs", openapi_extra=BEGINNING_IN_THREAD)
@begin_router.post("/runs", name="create_run_without_thread", openapi_extra=BEGINNING)
async def create_run(request: Request, call: Writer) -> Response:
    """Begin a run in the background. Without a thread it can be joined for 15 minutes."""
    _, turn, thread_id = await _begin(request, call)
    return JsonResponse(_run_json(turn.followed.run, thread_id), headers=_headers(turn, thread_id))


@begin_router.post("/runs/batch", openapi_extra=described(errors=(*codes(NotFound), *FOLLOWING)))
async def create_runs(request: Request, call: Writer) -> Response:
    """Begin up to 20 runs without a thread in the background. Fields and agents of all are checked first.

    A run that is refused later leaves those before it begun.
    """
    if KEY_HEADER in request.headers:
        raise InvalidInput("Several runs cannot have one key. Leave it out, or begin each alone.", field=KEY_HEADER)
    given = await read_json(request)
    if not isinstance(given, list) or not 0 < len(given) <= MOST_IN_BATCH:
        raise InvalidInput(f"The body must be a list of 1 to {MOST_IN_BATCH} runs.")
    bodies = [validate(one, CreateRun) for one in given]
    for body in bodies:
        find_agent(call, body.assistant_id)
    begun = [await begin_run(request, call, body, None) for body in bodies]
    return JsonResponse([_run_json(turn.followed.run, thread_id) for turn, thread_id in begun])


@begin_router.post(THREAD + "/runs/stream", openapi_extra=BEGINNING_IN_THREAD)
@begin_router.post("/runs/stream", name="stream_run_without_thread", openapi_extra=BEGINNING)
async def stream_new_run(request: Request, call: Writer) -> Response:
    """Begin a run and stream it.

    Messages of a run without a thread are kept for 15 minutes, or with `on_completion: keep`.
    """
    body, turn, thread_id = await _begin(request, call)
    return stream_run(call, turn, thread_id, body.stream_mode, _headers(turn, thread_id, "stream"))


@begin_router.post(THREAD + "/runs/wait", openapi_extra=BEGINNING_IN_THREAD)
@begin_router.post("/runs/wait", name="wait_without_thread", openapi_extra=BEGINNING)
async def wait_for_new_run(request: Request, call: Writer) -> Response:
    """Begin a run and return the thread's values once it ends or waits.

    Messages of a run without a thread are kept for 15 minutes, or with `on_completion: keep`.
    """
    _, turn, thread_id = await _begin(request, call)
    return _values_response(call, turn, _headers(turn, thread_id, "join"))


JSON_HEARTBEAT = b"\n"
"""Line feed that keeps a connection open until its JSON comes."""


class ValuesStream(EventStream):
    """JSON that comes once a run ends or waits. Line feeds before it keep the connection open."""

    media_type = JSON


def _values_response(call: Call, turn: ChatTurn, headers: Mapping[str, str]) -> Response:
    """Return the response with the values. Its headers come at once: clients go on at the address in them."""
    sent, timeout = {**STREAM_HEADERS, **headers}, call.config.send_timeout_seconds
    return ValuesStream(_final_values(call, turn), sent, send_timeout_seconds=timeout)


async def _final_values(call: Call, turn: ChatTurn) -> AsyncGenerator[bytes]:
    """Yield the thread's values once the run ends or waits, with `__error__` if it failed."""
    bound = RequestRun(call, turn.followed.run, turn.ends_with_client)
    try:
        async with aclosing(_wait_for_run(call, turn.followed)) as followed:
            async for run in followed:
                bound.has_ended = run is not None and (run.status.is_final or turn.is_stored)
                yield JSON_HEARTBEAT if run is None else json_bytes(await _values_of(call, run))
    except ThroughlineError as error:
        yield json_bytes({"__error__": {"error": error.code, "message": error.detail}})
    finally:
        bound.close()


async def _wait_for_run(call: Call, part: FollowedPart) -> AsyncGenerator[Run | None]:
    """Yield None while nothing happens, and at last the run once it has ended or waits."""
    if not part.run.status.needs_worker:
        yield part.run
        return
    async with aclosing(follow_part(call, part)) as followed:
        async for event in followed:
            if event is None or isinstance(event, RunEnded | RunWaiting):
                yield None if event is None else event.run


async def _values_of(call: Call, run: Run) -> JsonDict:
    messages, waiting = await read_newest(call, run.session_id), run
    if messages and messages[-1].run_id != run.id:  # the thread has gone on since
        waiting = await current_run(call, run.session_id) or run
    values = values_json(map(message_json, messages), interrupts_of(waiting))
    error = error_of(run)
    return values if error is None else {**values, "__error__": {"error": error.type, "message": error.detail}}


@router.get(THREAD + "/runs")
async def list_runs_of_thread(thread_id: str, call: Reader, asked: Annotated[ListThreadRuns, Query()]) -> Response:
    """List the runs of a thread, the last submitted first."""
    session = await find_thread(call, thread_id)
    runs: list[Run] = []
    query, end = RunQuery(200), asked.offset + asked.limit
    while len(runs) < end:
        page = await call.services.database.runs.list_runs(call.owner_id, session.id, query)
        runs += [run for run in page.items if asked.status in {None, RUN_STATUS[run.status]}]
        if page.next_cursor is None:
            break
        query = RunQuery(200, run_id_of(page.next_cursor))
    return JsonResponse([pick(_run_json(run, thread_id_of(session)), asked.select) for run in runs[asked.offset : end]])


async def _find(call: Call, thread_id: str, run_id: str) -> tuple[Run, str]:
    """Return the run and the id of its thread. Raises NotFound, also for a run of another thread."""
    session = await find_thread(call, thread_id)
    run = await call.services.database.runs.get_run(call.owner_id, run_id_of(run_id))
    if run.session_id != session.id:
        raise NotFound(f"The thread {thread_id} has no run {run.id}.")
    return run, thread_id_of(session)


@router.get(THREAD + "/runs/{run_id}")
async def get_run_of_thread(thread_id: str, run_id: PathId, call: Reader) -> Response:
    """Return a run."""
    return JsonResponse(_run_json(*await _find(call, thread_id, run_id)))


@router.get(THREAD + "/runs/{run_id}/join", openapi_extra=described(errors=FOLLOWING))
async def join_run_of_thread(thread_id: str, run_id: PathId, call: Reader) -> Response:
    """Return the thread's values once the run ends or waits."""
    run, _ = await _find(call, thread_id, run_id)
    return _values_response(call, join_run(run), {})


@router.get(THREAD + "/runs/{run_id}/stream", openapi_extra=described(headers=(LAST_EVENT_ID,), errors=FOLLOWING))
async def join_stream(
    request: Request, thread_id: str, run_id: PathId, call: Reader, asked: Annotated[JoinStream, Query()]
) -> Response:
    """Stream a run's events after `Last-Event-ID`. Without that header, stream its newest part from the beginning.

    Answers 204 to a client that has seen the end.
    """
    if asked.cancel_on_disconnect:
        check_scope(call.principal, Scope.WRITE)
    run, found_id = await _find(call, thread_id, run_id)
    last_seen = request.headers.get(LAST_EVENT_ID) or "-1"  # clients in browsers send it empty at first
    start = await following_of(call).find_start(run, read_last_event_id(last_seen))
    if start is None:
        return nothing_more()
    turn = ChatTurn(0, FollowedPart(run, after=start)) if start > 0 else join_run(run)
    turn = replace(turn, ends_with_client=asked.cancel_on_disconnect)
    return stream_run(call, turn, found_id, asked.stream_mode, _headers(turn, found_id, "stream"))


@router.post(THREAD + "/runs/{run_id}/cancel")
async def cancel_run_of_thread(
    request: Request, thread_id: str, run_id: PathId, call: Writer, asked: Annotated[CancelRun, Query()]
) -> Response:
    """Cancel a run; its messages stay."""
    run, _ = await _find(call, thread_id, run_id)
    cancelled = await call.services.database.runs.request_cancel(call.owner_id, run.id)
    if asked.wait and not cancelled.status.is_final:
        await wait_for_end(request, call, join_run(cancelled).followed)
    return JsonResponse({}, HTTPStatus.OK if asked.wait else HTTPStatus.ACCEPTED)


def _run_json(run: Run, thread_id: str) -> JsonDict:
    changed_at = run.finished_at or run.started_at or run.created_at
    metadata = {name: value for name, value in run.input.metadata.items() if name != CLIENT_MESSAGE_ID}
    return {
        "run_id": str(run.id),
        "thread_id": thread_id,
        "assistant_id": assistant_id(run.agent),
        "created_at": run.created_at.isoformat(),
        "updated_at": changed_at.isoformat(),
        "status": RUN_STATUS[run.status],
        "metadata": {**metadata, "graph_id": run.agent},
        "kwargs": {},
        "multitask_strategy": "enqueue",
        "cancel_reason": "user" if run.status is RunStatus.CANCELLED else None,
    }
