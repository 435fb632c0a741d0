"""Routes for sessions: create, list, read, change and delete."""

from collections import Counter
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response

from throughline.api.requests import BranchSession, ChangeSession, CreateSession
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.branch import NewBranch
from throughline.db.sessions.create import CreateOutcome
from throughline.db.sessions.repository import SessionChange
from throughline.db.statements.sql import invalid_cursor
from throughline.domain.basic_types import JsonValue, RunId
from throughline.domain.errors import ExternalIdTaken, NotFound, SessionBusy
from throughline.domain.message import clean_text
from throughline.domain.session import NewSession, Session
from throughline.http.body import read_body
from throughline.http.call import PathId, Reader, Writer, run_id_of, session_id_of, source_of
from throughline.http.documents import X_CLIENT, described, response_headers
from throughline.http.fields import ListRuns, ListSessions
from throughline.http.headers import KEY_HEADER, REPLAYED, read_idempotency
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import codes
from throughline.wire.events import RunPage, run_json
from throughline.wire.sessions import DeletedSessionOut, SessionOut, SessionPage

router = PrefixRouter(prefix="/v1/sessions", tags=["sessions"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={
        HTTPStatus.CREATED: {"model": SessionOut, "headers": response_headers("Location", REPLAYED)},
        HTTPStatus.OK: {
            "model": SessionOut,
            "description": "the session that has the external id already, unchanged",
            "headers": response_headers("Location"),
        },
    },
    openapi_extra=described(body=CreateSession, headers=(KEY_HEADER, X_CLIENT), errors=codes(NotFound)),
)
async def create_session(request: Request, call: Writer) -> Response:
    """Create a session with an agent, or return the caller's session that has the external id already.

    A session that is found stays as it is, also if it is archived or has another agent than the body names.
    """
    body = await read_body(request, CreateSession)
    idempotency = read_idempotency(request, body)
    agent = call.services.agents.get(body.agent)
    session, outcome = await call.services.database.sessions.create(
        NewSession(
            owner_id=call.owner_id,
            agent=agent.name,
            title=body.title,
            source=source_of(request, call),
            metadata=body.metadata,
            external_id=body.external_id,
            idempotency_key=idempotency.key,
            fingerprint=idempotency.fingerprint,
        )
    )
    return _created(session, outcome)


def _created(session: Session, outcome: CreateOutcome) -> Response:
    """Return the answer to a request that creates the session."""
    headers = {"Location": f"/v1/sessions/{session.id}"}
    if outcome is CreateOutcome.REPLAYED:
        headers[REPLAYED] = "true"
    status = HTTPStatus.OK if outcome is CreateOutcome.FOUND else HTTPStatus.CREATED
    return JsonResponse(SessionOut.render(session), status, headers)


@router.get("", responses={HTTPStatus.OK: {"model": SessionPage}})
async def list_sessions(call: Reader, asked: Annotated[ListSessions, Query()]) -> Response:
    """List the caller's sessions, the last updated first."""
    page = await call.services.database.sessions.list(call.owner_id, asked.as_query())
    return JsonResponse(SessionOut.render_page(page))


@router.get("/{session_id}", responses={HTTPStatus.OK: {"model": SessionOut}})
async def get_session(session_id: PathId, call: Reader) -> Response:
    """Return a session."""
    session = await call.services.database.sessions.get(call.owner_id, session_id_of(session_id))
    return JsonResponse(SessionOut.render(session))


@router.get("/{session_id}/runs", responses={HTTPStatus.OK: {"model": RunPage}})
async def list_runs(session_id: PathId, call: Reader, asked: Annotated[ListRuns, Query()]) -> Response:
    """List the session's runs, the last submitted first."""
    query = RunQuery(asked.limit, None if asked.cursor is None else _run_cursor(asked.cursor), asked.status)
    page = await call.services.database.runs.list_runs(call.owner_id, session_id_of(session_id), query)
    runs: list[JsonValue] = [run_json(run, for_operator=call.is_operator) for run in page.items]
    return JsonResponse({"data": runs, "next_cursor": page.next_cursor})


@router.patch(
    "/{session_id}",
    responses={HTTPStatus.OK: {"model": SessionOut}},
    openapi_extra=described(body=ChangeSession, errors=codes(ExternalIdTaken)),
)
async def change_session(request: Request, session_id: PathId, call: Writer) -> Response:
    """Change title, metadata, archived mark, summary instructions, agent or external id; others stay as they are."""
    found = session_id_of(session_id)
    body = await read_body(request, ChangeSession)
    given = body.model_fields_set
    change = SessionChange(
        title=body.title if "title" in given else None,
        metadata=body.metadata if "metadata" in given else None,
        archived=body.archived if "archived" in given else None,
        summary_instructions=clean_text(body.summary_instructions) if "summary_instructions" in given else None,
        agent=call.services.agents.get(body.agent).name if "agent" in given else None,
        external_id=(body.external_id or "") if "external_id" in given else None,
    )
    session = await call.services.database.sessions.update(call.owner_id, found, change)
    return JsonResponse(SessionOut.render(session))


@router.post(
    "/{session_id}/branch",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": SessionOut, "headers": response_headers("Location", REPLAYED)}},
    openapi_extra=described(body=BranchSession, headers=(KEY_HEADER, X_CLIENT), errors=codes(SessionBusy)),
)
async def branch_session(request: Request, session_id: PathId, call: Writer) -> Response:
    """Create a session with copies of this one's messages 1 to `at`, to ask again or otherwise from there.

    It has the agent, metadata, summary instructions, pins and, if it covers only copied messages, the summary of this
    session; `branched_from` in its metadata names this session. An archived session can be branched. Refused (422) for
    a position between a tool call and its results, and (409) if a copied message belongs to an unfinished turn.
    """
    original_id = session_id_of(session_id)
    body = await read_body(request, BranchSession)
    idempotency = read_idempotency(request, body)
    session, outcome = await call.services.database.sessions.branch(
        NewBranch(
            owner_id=call.owner_id,
            original_id=original_id,
            at=body.at,
            source=source_of(request, call),
            title=body.title,
            idempotency_key=idempotency.key,
            fingerprint=idempotency.fingerprint,
        )
    )
    return _created(session, outcome)


@router.delete(
    "/{session_id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses={HTTPStatus.OK: {"model": DeletedSessionOut, "description": "deleted, but imports keep copies of it"}},
    openapi_extra=described(errors=codes(SessionBusy)),
)
async def delete_session(session_id: PathId, call: Writer) -> Response:
    """Delete a session with all its data, and copies and quotations of its messages in other sessions of the user.

    Copies that a user made, by importing an export of the session, stay; the answer (200) names them. Refused (409)
    while a turn is not finished in another session that contains a copy or a quotation.
    """
    deleted = session_id_of(session_id)
    kept = Counter(copy.session_id for copy in await call.services.database.sessions.delete(call.owner_id, deleted))
    if not kept:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    copies = [{"session_id": session, "message_count": count} for session, count in kept.items()]
    return JsonResponse(DeletedSessionOut.render({"id": deleted, "copies": copies}))


def _run_cursor(text: str) -> RunId:
    """Return the run that the cursor names. Raises InvalidInput if it is no id."""
    try:
        return run_id_of(text)
    except NotFound:
        raise invalid_cursor() from None
