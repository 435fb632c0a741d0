"""The chat of a session: its messages, what runs or waits, and the box in which the next message is written.

`static/console.js` sends messages and shows answers while they are written, by the REST interface. When a step is
stored, it replaces what it has shown by the messages as this module renders them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from markupsafe import Markup

from throughline.console.markdown import html_of, plain_html
from throughline.console.page import PageReader, PageRoute, show
from throughline.console.session_page import session_values
from throughline.context.explain_context import ContextReport
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import LAST_POSITION, ImageBlock, Message, Role, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import WaitKind, read_question, readable_arguments
from throughline.http.call import PAGES, Call, session_id_of
from throughline.http.prefix_router import PrefixRouter

SHOWN, BEFORE_SOUGHT = 40, 12
"""Messages of one part of the history, and those that stand before a message that is looked for."""

MOST_CHARACTERS = 20_000
"""Characters of a message that are shown at once."""

MOST_START, LISTED_RUNS = 120, 20
HELPERS: Mapping[str, object] = {
    "Role": Role,
    "WaitKind": WaitKind,
    "question": read_question,
    "readable": readable_arguments,
    "most": MOST_CHARACTERS,
}
"""What the templates of messages and waiting calls use."""

router = PrefixRouter(prefix=f"{PAGES}/sessions/{{session_id}}", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """A message as the page shows it: its text as HTML, and the start of it on one line.

    `images` are pictures that the message contains, `links` those that lie elsewhere. `rest` is the number of
    characters that are not shown.
    """

    message: Message
    body: Markup
    start: str
    images: Sequence[str]
    links: Sequence[str]
    rest: int


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """Messages in a row. Earlier ones are found with `before`, later ones with `after`; None if there are none."""

    messages: Sequence[RenderedMessage]
    before: int | None
    after: int | None


@router.get("")
async def get_chat(
    request: Request, session_id: str, call: PageReader, at: Annotated[int | None, Query(ge=1, le=LAST_POSITION)] = None
) -> Response:
    """Return the page of a session, at its end or at a message."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    history = await read_history(call, found, MessageQuery() if at is None else _from_before(at))
    values = {
        **await session_values(call, session),
        "history": history,
        "last": history.messages[-1].message.position if history.messages else 0,
        "runs": await _unfinished(call, found),
        "report": await _report(call, found),
        "at": at,
    }
    return show(request, "chat.html", call, {**values, **HELPERS})


@router.get("/messages")
async def get_messages(
    request: Request,
    session_id: str,
    call: PageReader,
    after: Annotated[int | None, Query(ge=0, le=LAST_POSITION)] = None,
    before: Annotated[int | None, Query(ge=1, le=LAST_POSITION)] = None,
) -> Response:
    """Return a part of the history: the messages behind a position, or those before it."""
    found = session_id_of(session_id)
    order: Literal["asc", "desc"] = "asc" if after is not None else "desc"
    history = await read_history(call, found, MessageQuery(after, before, SHOWN, order))
    shown = history if after is None else replace(history, before=None)  # those before are on the page already
    return _show_history(request, session_id, call, shown)


@router.get("/messages/{position}")
async def get_message(request: Request, session_id: str, position: int, call: PageReader) -> Response:
    """Return one message with its whole text."""
    found, at = session_id_of(session_id), min(max(position, 1), LAST_POSITION)
    query = MessageQuery(at - 1, at + 1, 1, reasoning=_readable_reasoning(call))
    page = await call.services.database.messages.list_messages(call.owner_id, found, query)
    shown = [await _render(message, session_id, most=None) for message in page.items]
    history = HistoryPart(shown, None, None)
    return _show_history(request, session_id, call, history)


@router.get("/updates")
async def get_updates(
    request: Request,
    session_id: str,
    call: PageReader,
    after: Annotated[int | None, Query(ge=0, le=LAST_POSITION)] = None,
    gauge: Annotated[int | None, Query(ge=0, le=LAST_POSITION)] = None,
) -> Response:
    """Return what an open page does not show yet: messages behind `after` (without it none), and what runs or waits.

    `gauge` is the last message that the page's gauge counts. The gauge is made again only if there are later ones and
    no model is at work: it takes the plan of a whole prompt, and an open page asks every few seconds.
    """
    found, runs = session_id_of(session_id), await _unfinished(call, session_id_of(session_id))
    history = HistoryPart((), None, None)
    if after is not None:
        history = await read_history(call, found, MessageQuery(after, None, SHOWN, "asc"))
    last = history.messages[-1].message.position if history.messages else after
    is_running = any(run.status is not RunStatus.WAITING for run in runs)
    is_gauge_due = not is_running and last not in {None, gauge}
    report = await _report(call, found) if is_gauge_due else None
    values = {"runs": runs, "report": report, "is_gauge_due": is_gauge_due, "last": last, "at": None}
    shown = replace(history, before=None)  # those before are on the page already
    return show(request, "updates.html", call, {**HELPERS, **values, "history": shown, "session_id": session_id})


def _show_history(request: Request, session_id: str, call: Call, history: HistoryPart) -> Response:
    values = {**HELPERS, "session_id": session_id, "history": history, "at": None}
    return show(request, "messages.html", call, values)


def _from_before(position: int) -> MessageQuery:
    return MessageQuery(after=max(position - BEFORE_SOUGHT - 1, 0), limit=SHOWN)


def _readable_reasoning(call: Call) -> Literal["shown", "all"]:
    """Return which reasoning the caller may read: `all` for operators, else only what is shown to users."""
    return "all" if call.is_operator else "shown"


async def read_history(call: Call, session_id: SessionId, query: MessageQuery) -> HistoryPart:
    """Return a part of the history; a query without bounds is for its end."""
    is_end = query.after is None and query.before is None
    order: Literal["asc", "desc"] = "desc" if is_end else query.order
    asked = MessageQuery(query.after, query.before, min(query.limit, SHOWN), order, _readable_reasoning(call))
    page = await call.services.database.messages.list_messages(call.owner_id, session_id, asked)
    messages = sorted(page.items, key=lambda message: message.position)
    has_more = page.next_cursor is not None
    first = messages[0].position if messages else 1
    last = messages[-1].position if messages else 0
    return HistoryPart(
        [await _render(message, str(session_id), most=MOST_CHARACTERS) for message in messages],
        first if first > 1 and (order == "asc" or has_more) else None,
        last if order == "asc" and has_more else None,
    )


async def _render(message: Message, session_id: str, *, most: int | None) -> RenderedMessage:
    """Return a message as the page shows it, with at most so many characters of its text."""
    text = text_of(message.content)
    cut = text if most is None else text[:most]
    is_answer = message.role is Role.ASSISTANT
    images = [block.url for block in message.content if isinstance(block, ImageBlock)]
    return RenderedMessage(
        message,
        await html_of(cut, session_id) if is_answer else plain_html(cut),
        " ".join(text[:MOST_START].split()),
        [url for url in images if url.startswith("data:")],
        [url for url in images if not url.startswith("data:")],
        len(text) - len(cut),
    )


async def _unfinished(call: Call, session_id: SessionId) -> Sequence[Run]:
    """Return the session's newest runs that have not ended, the oldest of them first."""
    page = await call.services.database.runs.list_runs(call.owner_id, session_id, RunQuery(LISTED_RUNS))
    return [run for run in reversed(page.items) if not run.status.is_final]


async def _report(call: Call, session_id: SessionId) -> ContextReport | None:
    """Return the report on the context, None if the session's agent cannot be used now."""
    try:
        return await call.services.report_context(call.owner_id, session_id)
    except ThroughlineError:
        return None
