"""Summaries: force one, list the versions, go back to one. The messages they stand for stay in any case."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from app.api.body import read_optional_body
from app.api.call import Reader, Writer, session_id_of, summary_id_of
from app.api.documented import json_body
from app.api.requests import Summarize
from app.api.responses import JsonResponse
from app.api.schemas import SessionOut, SummarizeOut, SummaryList
from app.domain.json_types import JsonValue
from app.domain.summary import SummaryVersion
from app.domain.wire import session_json

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["summaries"])


@router.post(
    "/summarize",
    responses={HTTPStatus.OK: {"model": SummarizeOut}},
    openapi_extra=json_body(Summarize, is_required=False),
)
async def summarize(request: Request, session_id: str, call: Writer) -> Response:
    """Summarise now; `outcome` says whether the summary was adopted, skipped (not worth it) or failed."""
    found = session_id_of(session_id)
    body = await read_optional_body(request, Summarize)
    result = await call.services.summarize_now(call.owner_id, found, body.instructions)
    return JsonResponse({
        "outcome": result.outcome,
        "detail": result.detail,
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "session": session_json(result.session),
    })


@router.get("/summaries", responses={HTTPStatus.OK: {"model": SummaryList}})
async def list_summaries(session_id: str, call: Reader) -> Response:
    """List the versions of a session's summary, newest first."""
    versions = await call.services.database.summaries.list(call.owner_id, session_id_of(session_id))
    return JsonResponse({"data": [_version_json(version) for version in versions]})


@router.post("/summaries/{summary_id}/restore", responses={HTTPStatus.OK: {"model": SessionOut}})
async def restore_summary(session_id: str, summary_id: str, call: Writer) -> Response:
    """Make an earlier version the session's summary again, as a new version; the cursor may go back with it."""
    session = await call.services.database.summaries.restore(
        call.owner_id, session_id_of(session_id), summary_id_of(summary_id)
    )
    return JsonResponse(session_json(session))


def _version_json(version: SummaryVersion) -> dict[str, JsonValue]:
    return {
        "id": str(version.id),
        "version": version.version,
        "state": version.state.value,
        "text": version.text,
        "token_count": version.token_count,
        "through_id": None if version.through_id is None else str(version.through_id),
        "through_position": version.through_position,
        "model": version.model,
        "created_at": version.created_at.isoformat(),
    }
