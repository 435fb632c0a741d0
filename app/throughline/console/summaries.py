"""The summaries of a session: its versions, one with what it is made of, two compared, and what the next one costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from fastapi import Query, Request, Response
from markupsafe import Markup
from pydantic import BaseModel, Field

from throughline.console.markdown import html_of
from throughline.console.page import PageReader, PageRoute, show
from throughline.console.session_page import session_values
from throughline.console.word_changes import compare_words
from throughline.context.summaries.kept_facts_text import fact_line
from throughline.context.summaries.later_changes import later_changes
from throughline.domain.basic_types import SessionId, SummaryId
from throughline.domain.errors import SummaryInProgress, ThroughlineError
from throughline.domain.message import LAST_POSITION, clean_text
from throughline.domain.session import Session
from throughline.domain.summary import FactKind, KeptFact, SegmentCost, Spent, SummaryState, SummaryVersion
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.http.call import PAGES, Call, session_id_of, summary_id_of
from throughline.http.prefix_router import PrefixRouter
from throughline.turn.summary.reread import SummaryRequest

LISTED, SHOWN_FACTS, SHOWN_SEGMENTS = 10, 500, 200
MAX_DIGITS = 9  # any such number fits an integer column
KINDS: Mapping[FactKind, str] = {
    FactKind.INSTRUCTION: "Instructions",
    FactKind.LIMIT: "Limits",
    FactKind.GOAL: "Goals",
    FactKind.DECISION: "Decisions",
    FactKind.DEADLINE: "Deadlines",
    FactKind.PERSON: "People",
    FactKind.PREFERENCE: "Preferences",
    FactKind.OPEN_QUESTION: "Open questions",
    FactKind.VALUE: "Values",
    FactKind.IDENTIFIER: "Identifiers",
    FactKind.ERROR: "Errors",
    FactKind.COMMAND: "Commands",
}
"""Headings of kept facts."""

WIDTH = 1_000
"""Width of a picture in its own units; the page makes it as wide as its text."""

router = PrefixRouter(
    prefix=f"{PAGES}/sessions/{{session_id}}/summaries", include_in_schema=False, route_class=PageRoute
)


class AskedVersions(BaseModel):
    """Which versions a page shows: two beside each other, or the list from a number on."""

    left: str = Field("", max_length=36)
    right: str = Field("", max_length=36)
    newest: int | None = Field(None, ge=1, le=LAST_POSITION)


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version in the list. `same_as` is the number of an older one with the same content, which was restored.

    `spent` is what those segments have cost that were made since the version before.
    """

    version: SummaryVersion
    same_as: int | None
    spent: Spent
    picture: Markup


@dataclass(frozen=True, slots=True)
class FactRow:
    """A kept fact of a version. `later` is the position of a later statement that may change it, 0 without one.

    `is_in_text` is false if the text of the summary leaves the fact out: for its size, or because another replaced it.
    """

    fact: KeptFact
    later: int
    is_in_text: bool


@router.get("")
async def get_summaries(
    request: Request, session_id: str, call: PageReader, asked: Annotated[AskedVersions, Query()]
) -> Response:
    """Return the page with the versions of a session's summary, or with two of them compared."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    if asked.left and asked.right:
        return await _show_changes(request, call, session, (asked.left, asked.right))
    page = await call.services.database.summaries.list(call.owner_id, found, limit=LISTED + 1, newest=asked.newest)
    shown, older = page.items[:LISTED], page.items[LISTED:]
    values = {
        "listed": await _listed(call, session, page.items),
        "compared": shown,
        "older": older[0].version if older else None,
        "is_newest": asked.newest is None,
        "has_gaps": has_gaps(session, page.items, is_newest_page=asked.newest is None, is_oldest_page=not older),
        "left": shown[1] if len(shown) > 1 else None,
        "right": shown[0] if shown else None,
    }
    return await _show(request, "summaries.html", call, session, values)


@router.get("/cost")
async def get_cost(
    request: Request,
    session_id: str,
    call: PageReader,
    instructions: Annotated[str, Query(max_length=50_000)] = "",
    from_position: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Return the line that says what a summary written now would read and cost, or why none can be written."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    position = int(from_position) if _is_number(from_position) else None
    values: dict[str, object] = {"session": session, "cost": None, "reason": "", "is_writing": False}
    try:
        asked = SummaryRequest(clean_text(instructions).strip(), position or None)
        await call.services.check_summary(call.owner_id, found)
        values["cost"] = await call.services.estimate_summary(call.owner_id, found, asked)
    except SummaryInProgress:
        values["is_writing"] = True
    except ThroughlineError as error:
        values["reason"] = error.detail
    return show(request, "summary_cost.html", call, values)


@router.get("/{summary_id}")
async def get_summary(request: Request, session_id: str, summary_id: str, call: PageReader) -> Response:
    """Return the page of one version: its text, its kept facts, and the segments it is made of."""
    found = session_id_of(session_id)
    session = await call.services.database.sessions.get(call.owner_id, found)
    version = await _version(call, found, summary_id)
    ids, facts = version.segment_ids[:SHOWN_SEGMENTS], version.kept_facts[:SHOWN_FACTS]
    size = len(version.text) + sum(len(fact.text) for fact in facts)
    shown = await run_off_loop_if_large(size, lambda: shown_facts(version, facts))
    values = {
        "version": version,
        "text": await html_of(_as_paragraphs(version.text), session_id),
        "picture": draw_range(version, session.message_count, ()),
        "facts": {kind: kept for kind in FactKind if (kept := [one for one in shown if one.fact.kind is kind])},
        "KINDS": KINDS,
        "hidden": len(version.kept_facts) - len(facts),
        "segments": await call.services.database.summaries.segment_costs(call.owner_id, found, ids),
    }
    return await _show(request, "summary.html", call, session, values)


def shown_facts(version: SummaryVersion, facts: Sequence[KeptFact]) -> list[FactRow]:
    """Return a version's facts with what has become of each."""
    later, lines = later_changes(facts, facts), {_without_later(line) for line in version.text.splitlines()}
    return [FactRow(fact, later[fact], _without_later(fact_line(fact)) in lines) for fact in facts]


def _without_later(line: str) -> str:
    """Return the line of a fact up to its position and speaker."""
    return line.rpartition("]")[0].partition("; later: #")[0]


def _as_paragraphs(text: str) -> str:
    """Return a summary's text with an empty line before each heading of a list: Markdown takes it for an entry else."""
    lines = text.splitlines()
    return "\n".join(
        f"\n{line}" if line.endswith(":") and after.startswith("- ") else line
        for line, after in zip(lines, (*lines[1:], ""), strict=True)
    )


async def _show_changes(request: Request, call: Call, session: Session, names: tuple[str, str]) -> Response:
    left, right = [await _version(call, session.id, name) for name in names]
    page = await call.services.database.summaries.list(call.owner_id, session.id, limit=LISTED)
    listed = {version.id for version in page.items}
    values = {
        "left": left,
        "right": right,
        "changes": await compare_words(left.text, right.text),
        "compared": (*page.items, *{one.id: one for one in (left, right) if one.id not in listed}.values()),
    }
    return await _show(request, "summary_changes.html", call, session, values)


async def _show(
    request: Request, template: str, call: Call, session: Session, values: Mapping[str, object]
) -> Response:
    around = await session_values(call, session)
    return show(request, template, call, {**around, "State": SummaryState, "name": name_of, **values})


def has_gaps(
    session: Session, versions: Sequence[SummaryVersion], *, is_newest_page: bool, is_oldest_page: bool
) -> bool:
    """Return whether a number is missing among the versions of a page, which are sorted, the newest first.

    At the ends at which no other page follows, the numbers go on to the session's newest version, and to 1.
    """
    numbers = [version.version for version in versions if version.version is not None]
    ends = (*([session.summary_version + 1] if is_newest_page else []), *numbers, *([0] if is_oldest_page else []))
    return any(after - before > 1 for after, before in pairwise(ends))


def name_of(version: SummaryVersion) -> str:
    """Return what an address names a version by: its number, or its id as long as it has none."""
    return str(version.id if version.version is None else version.version)


async def _version(call: Call, session_id: SessionId, name: str) -> SummaryVersion:
    """Return the version with this number or id. Raises NotFound."""
    wanted: SummaryId | int = int(name) if _is_number(name) else summary_id_of(name)
    return await call.services.database.summaries.get(call.owner_id, session_id, wanted)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS


async def _listed(call: Call, session: Session, versions: Sequence[SummaryVersion]) -> list[ListedVersion]:
    """Return the first LISTED versions, which are the newest, as the list shows them; the rest are for comparison."""
    ids = list(dict.fromkeys(one for version in versions for one in version.segment_ids))
    costs = {
        one.id: one for one in await call.services.database.summaries.segment_costs(call.owner_id, session.id, ids)
    }
    listed: list[ListedVersion] = []
    firsts: dict[tuple[int, str], int] = {}
    for version, older in zip(versions[::-1], (None, *versions[::-1]), strict=False):
        content = (version.through_position, version.text)
        parts = [costs[one] for one in version.segment_ids if one in costs]
        made = [one for one in parts if older is None or one.created_at > older.created_at]
        picture = draw_range(version, session.message_count, [one.through_position for one in parts])
        listed.append(ListedVersion(version, firsts.get(content), _total(made), picture))
        if version.version is not None:
            firsts.setdefault(content, version.version)
    return listed[::-1][:LISTED]


def _total(costs: Sequence[SegmentCost]) -> Spent:
    called = [one for one in costs if one.output_tokens]
    return Spent(
        len(called),
        sum(one.input_tokens for one in called),
        sum(one.output_tokens for one in called),
        sum(one.duration_seconds for one in called),
    )


def draw_range(version: SummaryVersion, message_count: int, ends: Sequence[int]) -> Markup:
    """Return a picture of the messages that a version covers, among all of the session, with its segments' ends."""
    whole = max(message_count, version.through_position, 1)
    ticks = Markup("").join(
        Markup('<line x1="{0}" x2="{0}" y1="0" y2="12"/>').format(WIDTH * end // whole)
        for end in ends[:SHOWN_SEGMENTS]
        if end < version.through_position
    )
    return Markup(
        '<svg class="range {}" viewBox="0 0 {} 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="all" width="{}" height="12"/><rect class="covered" width="{}" height="12"/>{}</svg>'
    ).format(version.state.value, WIDTH, WIDTH, WIDTH * version.through_position // whole, ticks)
