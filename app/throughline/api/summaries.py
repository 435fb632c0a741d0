"""Routes for a session's context: how full it is, and its summaries, written on demand, listed and restored.

The summarized messages are kept in any case.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response

from throughline.api.messages import render_cited
from throughline.api.requests import PreviewContext, Summarize
from throughline.domain.basic_types import SummaryId
from throughline.domain.errors import (
    DailyBudgetReserved,
    DailyBudgetSpent,
    SummaryInProgress,
    SummaryLimitReached,
    TurnLimitReached,
)
from throughline.domain.message import clean_text
from throughline.domain.summary import SummaryVersion
from throughline.http.body import read_optional_body
from throughline.http.call import PathId, Reader, Writer, session_id_of, summary_id_of
from throughline.http.documents import described
from throughline.http.fields import ListSummaries
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import AGENT, codes
from throughline.turn.summary.reread import SummaryRequest
from throughline.wire.context import PreviewOut, SessionContextOut
from throughline.wire.sessions import SessionOut, SummarizeOut, SummaryCostOut, SummaryList, SummaryVersionOut

context_router = PrefixRouter(prefix="/v1/sessions/{session_id}/context", tags=["context"])


@context_router.get("", responses={HTTPStatus.OK: {"model": SessionContextOut}}, openapi_extra=described(errors=AGENT))
async def get_context(session_id: PathId, call: Reader) -> Response:
    """Return the context report of a session. `next_action` assumes an empty message and answer.

    `quoted` and `quoted_memories` are what the newest turn quoted, as long as its events are stored.
    """
    report = await call.services.report_context(call.owner_id, session_id_of(session_id))
    return JsonResponse(SessionContextOut.render(report))


@context_router.post(
    "/preview",
    responses={HTTPStatus.OK: {"model": PreviewOut}},
    openapi_extra=described(body=PreviewContext, is_body_required=False, errors=AGENT),
)
async def preview_context(request: Request, session_id: PathId, call: Reader) -> Response:
    """Return the plan for the first model call that this message would cause: how its prompt shows each message."""
    found = session_id_of(session_id)
    body = await read_optional_body(request, PreviewContext)
    preview = await call.services.preview_context(call.owner_id, found, body.as_content())
    return JsonResponse(PreviewOut.render(preview))


MAX_DIGITS = 9  # any such number fits an integer column
router = PrefixRouter(prefix="/v1/sessions/{session_id}", tags=["summaries"])


@router.post(
    "/summarize",
    responses={HTTPStatus.OK: {"model": SummarizeOut}},
    openapi_extra=described(
        body=Summarize,
        is_body_required=False,
        errors=(
            *codes(SummaryInProgress, SummaryLimitReached, TurnLimitReached, DailyBudgetReserved, DailyBudgetSpent),
            *AGENT,
        ),
    ),
)
async def summarize(request: Request, session_id: PathId, call: Writer) -> Response:
    """Write a summary now. `outcome` says whether the summary was adopted, skipped (not worth it) or failed.

    Only one summary of a session is written at a time. Another request meanwhile is refused (409), and the error names
    the summary request in progress.

    With `instructions` or `from_position`, messages that are already summarized are read again. This takes about 32
    calls to the summary model and a minute at most. Progress is kept: repeating the same request continues where it
    stopped.

    An archived session accepts no messages any more, but it can still be summarized, restored and pinned in.
    """
    found = session_id_of(session_id)
    wanted = _summary_request(await read_optional_body(request, Summarize))
    return JsonResponse(SummarizeOut.render(await call.services.summarize_now(call.owner_id, found, wanted)))


@router.post(
    "/summarize/estimate",
    responses={HTTPStatus.OK: {"model": SummaryCostOut}},
    openapi_extra=described(body=Summarize, is_body_required=False, errors=AGENT),
)
async def estimate_summary(request: Request, session_id: PathId, call: Reader) -> Response:
    """Return what the same request to `…/summarize` would read and cost. Nothing is written, no model is called."""
    found = session_id_of(session_id)
    wanted = _summary_request(await read_optional_body(request, Summarize))
    return JsonResponse(SummaryCostOut.render(await call.services.estimate_summary(call.owner_id, found, wanted)))


@router.get("/summaries", responses={HTTPStatus.OK: {"model": SummaryList}})
async def list_summaries(session_id: PathId, call: Reader, asked: Annotated[ListSummaries, Query()]) -> Response:
    """List the versions of a session's summary, newest first. A prepared one comes first and has no number yet."""
    found = session_id_of(session_id)
    page = await call.services.database.summaries.list(call.owner_id, found, limit=asked.limit, newest=asked.cursor)
    versions = await render_cited(call, found, page.items, SummaryVersionOut, _text_of)
    return JsonResponse({"data": versions, "next_cursor": page.next_cursor})


@router.get("/summaries/{summary_id}", responses={HTTPStatus.OK: {"model": SummaryVersionOut}})
async def get_summary(session_id: PathId, summary_id: str, call: Reader) -> Response:
    """Return one version of the summary with its text. `summary_id` is the version's id or its number."""
    found = session_id_of(session_id)
    version = await call.services.database.summaries.get(call.owner_id, found, _id_or_number(summary_id))
    return JsonResponse((await render_cited(call, found, [version], SummaryVersionOut, _text_of))[0])


@router.post("/summaries/{summary_id}/restore", responses={HTTPStatus.OK: {"model": SessionOut}})
async def restore_summary(session_id: PathId, summary_id: str, call: Writer) -> Response:
    """Make an earlier version the session's summary again, as a new version. The cursor may move back with it.

    `summary_id` is the id of the version or its number; 0 stands for no summary at all. Nothing changes if the content
    of that version is in use already.

    The version stays in use until new messages require another summary. From here on, messages and tokens are counted
    again. A prompt above the threshold is summarized only once the conversation has grown by a fifth of the window.
    Until then, content that does not fit with the older version is pruned, shortened or left out of the prompt, the
    oldest first. It can be looked up, and becomes part of the next summary. `POST …/summarize` writes that summary at
    once.
    """
    found, summaries = session_id_of(session_id), call.services.database.summaries
    wanted = _id_or_number(summary_id)
    version_id: SummaryId | None = None
    if wanted != 0:
        version_id = (await summaries.get(call.owner_id, found, wanted)).id if isinstance(wanted, int) else wanted
    return JsonResponse(SessionOut.render(await summaries.restore(call.owner_id, found, version_id)))


def _text_of(version: SummaryVersion) -> str:
    return version.text


def _summary_request(body: Summarize) -> SummaryRequest:
    return SummaryRequest(clean_text(body.instructions).strip(), body.from_position)


def _id_or_number(text: str) -> SummaryId | int:
    """Return the id or number of a summary version in a path. Raises NotFound if `text` can be neither."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else summary_id_of(text)
