"""Search: messages by their words, in one session or in all of the caller's."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.http.call import Call, Reader, session_id_of
from app.api.http.responses import JsonResponse
from app.api.native.search_request import SearchHistory
from app.domain.ids import SessionId
from app.domain.message import Role
from app.domain.recall import HistoryFilter, HistoryQuery
from app.domain.text import clean_text
from app.wire.messages import SearchOut, hit_json

router = APIRouter(prefix="/v1", tags=["search"])


@router.get("/sessions/{session_id}/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_session(session_id: str, call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search a session's whole history, also what a summary stands for; the best matches first."""
    return await _search(call, session_id_of(session_id), asked)


@router.get("/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_sessions(call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search all sessions of the caller; the best matches first."""
    return await _search(call, None, asked)


async def _search(call: Call, session_id: SessionId | None, asked: SearchHistory) -> Response:
    query = HistoryQuery(clean_text(asked.q), asked.limit, _filter(asked))
    found = await call.services.database.history.search(call.owner_id, session_id, query)
    return JsonResponse({"data": [hit_json(hit) for hit in found.hits], "is_complete": found.is_complete})


def _filter(asked: SearchHistory) -> HistoryFilter:
    return HistoryFilter(
        role=None if asked.role is None else Role(asked.role),
        tool=None if asked.tool is None else clean_text(asked.tool),
        author=None if asked.author is None else clean_text(asked.author),
        after=asked.after,
        before=asked.before,
        since=asked.since,
        until=asked.until,
    )
