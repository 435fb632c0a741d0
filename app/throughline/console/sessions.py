"""The list of the reader's sessions, beside each chat and alone."""

from typing import Annotated

from fastapi import Query, Request, Response

from throughline.console.page import HTMX, PageReader, PageRoute, show
from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import Page
from throughline.domain.message import clean_text
from throughline.domain.session import Session
from throughline.http.call import PAGES, Call
from throughline.http.prefix_router import PrefixRouter

LISTED = 40
router = PrefixRouter(prefix=f"{PAGES}/sessions", include_in_schema=False, route_class=PageRoute)


@router.get("")
async def list_sessions(
    request: Request,
    call: PageReader,
    q: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str, Query(max_length=512)] = "",
    archived: bool = False,  # noqa: FBT001, FBT002  # a field of a query
) -> Response:
    """Return the page with the list of sessions and no chat; to a part of a page, the list alone."""
    page = await find_sessions(call, q, cursor, include_archived=archived)
    values = {"sessions": page, "q": q, "archived": archived, "chosen": ""}
    if HTMX in request.headers:
        return show(request, "session_rows.html", call, values)
    agents = sorted(agent.name for agent in call.services.agents.all())
    return show(request, "sessions.html", call, {**values, "agents": agents})


async def find_sessions(call: Call, q: str = "", cursor: str = "", *, include_archived: bool = False) -> Page[Session]:
    """Return a page of the reader's own sessions, the last updated first; of a limited token none.

    Who takes part in another's session sees no other sessions of its owner.
    """
    if call.is_limited:
        return Page((), None)
    query = SessionQuery(LISTED, cursor or None, q=clean_text(q) or None, include_archived=include_archived)
    return await call.services.database.sessions.list(call.principal.user_id, query)
