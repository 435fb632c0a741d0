"""Routes that search messages, in one session or in all sessions of the caller.

Filter values that are blank or malformed are refused with an explanation.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Response

from throughline.domain.basic_types import SessionId
from throughline.http.call import Call, PathId, Reader, session_id_of
from throughline.http.fields import SearchHistory
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.wire.messages import SearchOut, search_json

router = PrefixRouter(prefix="/v1", tags=["search"])


@router.get("/sessions/{session_id}/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_session(session_id: PathId, call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search a session's whole history, including messages that a summary covers; the best matches come first."""
    return await _search(call, session_id_of(session_id), asked)


@router.get("/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_sessions(call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search all sessions of the caller; the best matches come first."""
    return await _search(call, None, asked)


async def _search(call: Call, session_id: SessionId | None, asked: SearchHistory) -> Response:
    query = asked.as_query(call.services.clock.now().date())
    found = await call.services.history.search(call.owner_id, session_id, query)
    return JsonResponse(search_json(found))
