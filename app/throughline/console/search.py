"""The search of messages, in one chat or in all of the reader's; a hit opens its message where it stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse

from throughline.console.page import PageReader, PageRoute, base_of, show
from throughline.console.session_page import session_values
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role, clean_text
from throughline.domain.recall import HistoryQuery, Hit, SearchResult
from throughline.http.call import PAGES, Call, search_on_replica, session_id_of
from throughline.http.prefix_router import PrefixRouter

FIRST_HITS, MOST_HITS = 20, 50
NOTHING = SearchResult(())

router = PrefixRouter(prefix=PAGES, include_in_schema=False, route_class=PageRoute)


class AskedSearch(BaseModel):
    """A search as the form sends it. `session` names the one chat to search, '' for all.

    `more` raises the limit from FIRST_HITS to MOST_HITS.
    """

    q: str = Field("", max_length=1_000)
    session: str = Field("", max_length=36)
    more: bool = False


@dataclass(frozen=True, slots=True)
class HitRow:
    """A found message with the title of its session; `pieces` are its snippet's parts and whether each is marked."""

    hit: Hit
    title: str
    pieces: tuple[tuple[str, bool], ...]


@router.get("/search")
async def search_sessions(request: Request, call: PageReader, asked: Annotated[AskedSearch, Query()]) -> Response:
    """Return the page of a search in all chats. One in a single chat is redirected to the page of that chat."""
    if asked.session:
        found = session_id_of(asked.session)
        address = f"{base_of(request)}sessions/{found}/search?q={quote(asked.q, safe='')}"
        return RedirectResponse(address, HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})
    return show(request, "search.html", call, await _search(call, None, asked))


@router.get("/sessions/{session_id}/search")
async def search_session(
    request: Request, session_id: str, call: PageReader, asked: Annotated[AskedSearch, Query()]
) -> Response:
    """Return the page of a search in one chat."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    values = {**await session_values(call, session), "sought": asked.q, **await _search(call, found, asked)}
    return show(request, "session_search.html", call, values)


async def _search(call: Call, session_id: SessionId | None, asked: AskedSearch) -> Mapping[str, object]:
    """Return what the templates need of a search. One that cannot be understood has a `reason` and no hits."""
    limit = MOST_HITS if asked.more else FIRST_HITS
    text, reason, result, age = clean_text(asked.q).strip(), "", NOTHING, None
    query = HistoryQuery(text, limit, today=call.services.clock.now().date())
    try:
        if text:
            result, age = await search_on_replica(call, session_id, query)
    except InvalidInput as error:
        reason = error.detail
    titles = await call.services.database.sessions.titles_of(call.owner_id, result.hits)
    return {
        "Role": Role,
        "sought": asked.q,
        "reason": reason,
        "hits": [HitRow(hit, title, tuple(pieces_of(hit))) for hit, title in zip(result.hits, titles, strict=True)],
        "age": age,
        "incomplete": len(result.incomplete_sessions),
        "has_more": len(result.hits) == FIRST_HITS and not asked.more,
        "is_asked": bool(text),
    }


def pieces_of(hit: Hit) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a hit's snippet in their order, each with whether the search has matched it."""
    at = 0
    for start, end in sorted(hit.highlights):
        if start > at:
            yield hit.snippet[at:start], False
        if end > max(at, start):
            yield hit.snippet[max(at, start) : end], True
        at = max(at, end)
    if at < len(hit.snippet):
        yield hit.snippet[at:], False
