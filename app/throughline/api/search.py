"""Routes that search messages, in one session or in all sessions of the caller.

Filter values that are blank or malformed are refused with an explanation.
"""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Response

from throughline.domain.basic_types import SessionId
from throughline.http.call import Call, PathId, Reader, search_on_replica, session_id_of
from throughline.http.documents import response_headers
from throughline.http.fields import SearchHistory
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.wire.data_age import DATA_AS_OF, age_headers
from throughline.wire.messages import SearchOut, search_json

router = PrefixRouter(prefix="/v1", tags=["search"])


FOUND: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {"model": SearchOut, "headers": response_headers(DATA_AS_OF)},
}


@router.get("/sessions/{session_id}/search", responses=FOUND)
async def search_session(session_id: PathId, call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search a session's whole history, including messages that a summary covers; the best matches come first."""
    return await _search(call, session_id_of(session_id), asked)


@router.get("/search", responses=FOUND)
async def search_sessions(call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search all sessions of the caller; the best matches come first."""
    return await _search(call, None, asked)


async def _search(call: Call, session_id: SessionId | None, asked: SearchHistory) -> Response:
    query = asked.as_query(call.services.clock.now().date())
    found, age = await search_on_replica(call, session_id, query)
    return JsonResponse(search_json(found), headers=age_headers(age))
