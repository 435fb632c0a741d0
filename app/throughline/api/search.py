"""Routes that search messages, in one session or in all sessions of the caller.

Filter values that are blank or malformed are refused with an explanation.
"""

from http import HTTPStatus
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BeforeValidator, Field

from throughline.domain.basic_types import SessionId
from throughline.domain.message import LAST_POSITION, Role, clean_text, is_blank
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.http.call import Call, PathId, Reader, session_id_of
from throughline.http.fields import Moment, QueryParameters
from throughline.http.problem_documents import JsonResponse
from throughline.wire.messages import SearchOut, search_json

POSITION_WORDS = (
    "Must be a position, a whole number. Write a day in the query (`before:2026-03-14`) or in `since` and `until`."
)


def _read_position(value: object) -> object:
    """Return `value` unchanged. Raises ValueError for text that is no whole number.

    Such text is usually a day; the error says where to write days.
    """
    if isinstance(value, str) and not value.strip().removeprefix("-").isdecimal():
        raise ValueError(POSITION_WORDS)
    return value


def _check_name(name: str) -> str:
    if is_blank(name):
        raise ValueError("Is blank. Leave it out, or write a name.")
    return name


Name: TypeAlias = Annotated[str, AfterValidator(_check_name), Field(max_length=200, json_schema_extra={"minLength": 1})]


class SearchHistory(QueryParameters):
    """A search and its filters. `after` and `before` are positions, and both are exclusive."""

    q: str = Field(
        min_length=1,
        max_length=1_000,
        description='words; "words in quotes" must appear in the text exactly so; filters are `author:`, `role:`, '
        "`tool:`, and with a day `on:`, `before:` and `after:`",
        examples=["gateway port", 'author:anna "release notes"'],
    )
    limit: int = Field(10, ge=1, le=50)
    role: Literal["user", "assistant", "tool"] | None = None
    tool: Name | None = Field(None, description="find only results of this tool")
    author: Name | None = None
    after: Annotated[int, Field(ge=0, le=LAST_POSITION), BeforeValidator(_read_position)] | None = None
    before: Annotated[int, Field(ge=1, le=LAST_POSITION), BeforeValidator(_read_position)] | None = None
    since: Moment | None = Field(None, description="find only messages written at this time or later")
    until: Moment | None = Field(None, description="find only messages written before this time")


router = APIRouter(prefix="/v1", tags=["search"])


@router.get("/sessions/{session_id}/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_session(session_id: PathId, call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search a session's whole history, including messages that a summary covers; the best matches come first."""
    return await _search(call, session_id_of(session_id), asked)


@router.get("/search", responses={HTTPStatus.OK: {"model": SearchOut}})
async def search_sessions(call: Reader, asked: Annotated[SearchHistory, Query()]) -> Response:
    """Search all sessions of the caller; the best matches come first."""
    return await _search(call, None, asked)


async def _search(call: Call, session_id: SessionId | None, asked: SearchHistory) -> Response:
    today = call.services.clock.now().date()
    query = HistoryQuery(clean_text(asked.q), asked.limit, _filter(asked), today)
    found = await call.services.history.search(call.owner_id, session_id, query)
    return JsonResponse(search_json(found))


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
