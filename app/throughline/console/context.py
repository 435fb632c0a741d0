"""The context of a session: what its next prompt is made of, what a message would change, where a message is now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request, Response
from markupsafe import Markup

from throughline.console.context_bar import BarLabels, BarMark, BarSlice, draw_bar, marks_of, percent_of, slices_of
from throughline.console.context_words import GAUGES, MARKS, PARTS, WORDS, next_step
from throughline.console.page import PageReader, PageRoute, Words, address_of, language_of, show, words_in
from throughline.console.session_page import session_values
from throughline.context.explain_context import ContextReport
from throughline.context.find_citations import places_in
from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.context.preview import Preview
from throughline.context.prompt_parts import PromptPart, PromptPartKind
from throughline.context.view.groups import SUMMARY_TAG
from throughline.context.view.placeholder_texts import undelimited
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput, NotFound, PromptCannotFit
from throughline.domain.message import LAST_POSITION, Message, clean_text, searched_text
from throughline.domain.recall import HistoryQuery
from throughline.domain.summary import SummaryState
from throughline.http.call import PAGES, Call, session_id_of
from throughline.http.prefix_router import PrefixRouter
from throughline.wire.gauges import context_gauges

MOST_TEXT, MOST_LISTED = 4_000, 100
"""Characters of a message, and messages of a kind, that are shown."""

MOST_CHANGED, MOST_FOUND, MOST_LINES = 50, 8, 6
MOST_ASKED = 4_000
"""Most characters of a message that is tried: it stands in an address."""

MOST_START = 240
SUMMARY_PARTS = frozenset({PromptPartKind.SUMMARY, PromptPartKind.FACTS})
ERRORS_ON_PAGE = (InvalidInput, NotFound, PromptCannotFit)
"""Errors that the page shows in place of the prompt: the agent is gone, or its prompt cannot fit."""

router = PrefixRouter(prefix=f"{PAGES}/sessions/{{session_id}}/context", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class PromptBar:
    """The bar of a prompt, and its numbers for a table."""

    bar: Markup
    slices: Sequence[BarSlice]
    marks: Sequence[BarMark]


@dataclass(frozen=True, slots=True)
class PartText:
    """A part of the prompt with its text, cut after `MOST_TEXT`, and the stored message that it shows, if it does."""

    part: PromptPart
    text: str
    rest: int
    shown: ShownMessage | None


@dataclass(frozen=True, slots=True)
class PartGroup:
    """The parts of one kind, of which the newest are listed."""

    name: str
    tokens: int
    count: int
    texts: Sequence[PartText]


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, how the next prompt shows it, and the lines of the summary that name it."""

    message: Message
    start: str
    shown: ShownMessage
    lines: Sequence[str]


@router.get("")
async def get_context(
    request: Request, session_id: str, call: PageReader, find: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Return the page on the context of a session. `find` names messages whose state in the prompt is shown, too."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    compactions = await call.services.database.events.newest_compactions(call.owner_id, found)
    values = {**WORDS, **await session_values(call, session), "session_id": session_id, "compactions": compactions}
    try:
        report = await call.services.report_context(call.owner_id, found)
        preview = await call.services.preview_context(call.owner_id, found, None)
    except ERRORS_ON_PAGE as error:
        return show(request, "context.html", call, {**values, "report": None, "problem": error.detail})
    words = words_in(language_of(request))
    versions = (await call.services.database.summaries.list(call.owner_id, found, limit=2)).items
    more = {
        **await _find(call, found, preview, clean_text(find).strip()),
        "report": report,
        "summaries": [one for one in versions if one.state in _shown_states(report) and one.through_position],
        "summary_tokens": sum(part.tokens for part in preview.parts if part.kind in SUMMARY_PARTS),
        "problem": "",
        "preview": preview,
        "picture": _draw_prompt_bar(preview, words, address_of(request)),
        "percent": percent_of,
        "groups": list(_groups(preview)),
        "reduced": [one for one in preview.messages if one.form is not MessageVariant.WHOLE][-MOST_LISTED:],
        "gauges": context_gauges(report, (words(GAUGES[0]), words(GAUGES[1]), words(GAUGES[2]))),
        "next_step": next_step(report),
        "tools": call.services.agents.get(session.agent).tools,
        "most_asked": MOST_ASKED,
    }
    return show(request, "context.html", call, {**values, **more})


@router.get("/preview")
async def get_preview(
    request: Request, session_id: str, call: PageReader, content: Annotated[str, Query(max_length=MOST_ASKED)] = ""
) -> Response:
    """Return what the next prompt would be with this message: a part of the page."""
    found = session_id_of(session_id)
    await call.services.database.sessions.get(call.owner_id, found)
    values: dict[str, object] = {**WORDS, "session_id": session_id, "percent": percent_of, "problem": ""}
    try:
        preview = await call.services.preview_context(call.owner_id, found, clean_text(content) or None)
    except ERRORS_ON_PAGE as error:
        return show(request, "context_preview.html", call, {**values, "problem": error.detail})
    changed = [one for one in preview.messages if one.form is not MessageVariant.WHOLE]
    more = {
        "preview": preview,
        "picture": _draw_prompt_bar(preview, words_in(language_of(request)), ""),
        "changed": changed[:MOST_CHANGED],
        "rest": max(len(changed) - MOST_CHANGED, 0),
    }
    return show(request, "context_preview.html", call, {**values, **more})


def _shown_states(report: ContextReport) -> set[SummaryState]:
    """Return the states of the versions that the page names: one in use, and one that the next turns can use."""
    return {SummaryState.ADOPTED, *([SummaryState.PREPARED] if report.prepared else [])}


async def _find(call: Call, session_id: SessionId, preview: Preview, q: str) -> Mapping[str, object]:
    """Return the messages that `q` names by a number or words, each with its state in the next prompt, or why not."""
    try:
        messages = await _find_messages(call, session_id, q)
    except InvalidInput as error:
        return {"find": q, "found": (), "find_problem": error.detail}
    return {"find": q, "found": [_locate_message(preview, message) for message in messages], "find_problem": ""}


def _draw_prompt_bar(preview: Preview, words: Words, address: str) -> PromptBar:
    """Return the picture of a prompt, whose slices lead to parts of the page at this address; '' for nowhere."""
    slices, marks = slices_of(preview), marks_of(preview)
    known = {name: words(english) for name, english in {**PARTS, **MARKS}.items()}
    description = words("The prompt has {used} of {most} tokens.", used=preview.tokens, most=preview.window)
    labels = BarLabels(known, description, address)
    return PromptBar(draw_bar(slices, marks, labels), slices, marks)


def _groups(preview: Preview) -> Iterator[PartGroup]:
    """Yield the parts of the prompt by their kinds."""
    shown = {one.position: one for one in preview.messages}
    for kind in PromptPartKind:
        parts = [part for part in preview.parts if part.kind is kind]
        if parts:
            texts = [_text(part, shown) for part in parts[-MOST_LISTED:]]
            yield PartGroup(kind.value, sum(part.tokens for part in parts), len(parts), texts)


def _text(part: PromptPart, shown: dict[int, ShownMessage]) -> PartText:
    text, message = part.shown_text, part.message
    if message is None or message.position is None:
        return PartText(part, text, 0, None)
    return PartText(part, text[:MOST_TEXT], max(len(text) - MOST_TEXT, 0), shown.get(message.position))


async def _find_messages(call: Call, session_id: SessionId, q: str) -> Sequence[Message]:
    """Return the message with this number, as `12` or `#12`, or else the messages that have these words."""
    number = q.removeprefix("#")
    if number.isascii() and number.isdigit():
        at = min(int(number[:10]), LAST_POSITION)
        query = MessageQuery(at - 1, at + 1, 1)
        return (
            (await call.services.database.messages.list_messages(call.owner_id, session_id, query)).items if at else ()
        )
    if not q:
        return ()
    query_ = HistoryQuery(q, MOST_FOUND, today=call.services.clock.now().date())
    result = await call.services.history.search(call.owner_id, session_id, query_)
    return [hit.message for hit in result.hits]


def _locate_message(preview: Preview, message: Message) -> FoundMessage:
    """Return the message with how the next prompt shows it."""
    shown = next((one for one in preview.messages if one.position == message.position), None)
    if shown is None:
        is_covered = message.position <= preview.summarised_through
        form = MessageVariant.SUMMARISED if is_covered else MessageVariant.TRIMMED
        shown = ShownMessage(message.position, message.role, form, 0, pinned=message.pinned, id=message.id)
    text = searched_text(message)
    start = " ".join(text[:MOST_START].split())
    return FoundMessage(
        message, f"{start} …" if len(text) > MOST_START else start, shown, _lines_on(preview, message.position)
    )


def _lines_on(preview: Preview, position: int) -> Sequence[str]:
    """Return the lines of the summary that name a message, those that name it alone first."""
    system = "\n".join(part.shown_text for part in preview.parts if part.kind in SUMMARY_PARTS)
    lines = undelimited(SUMMARY_TAG, system).splitlines()
    spans = {line.removeprefix("- "): length for line in lines if (length := _span_on(line, position)) is not None}
    return sorted(spans, key=spans.__getitem__)[:MOST_LINES]


def _span_on(line: str, position: int) -> int | None:
    """Return the length of the shortest range of positions in a line that has the position, None without one."""
    places = [place for place in places_in(line) if place.session_id is None]
    lengths = (
        place.to_position - place.from_position
        for place in places
        if place.from_position <= position <= place.to_position
    )
    return min(lengths, default=None)
