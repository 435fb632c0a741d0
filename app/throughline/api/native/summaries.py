"""Summaries: force one, list the versions, go back to one. The messages they stand for stay in any case."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from throughline.api.http.body import read_optional_body
from throughline.api.http.call import Reader, Writer, session_id_of, summary_id_of
from throughline.api.http.responses import JsonResponse
from throughline.api.native.documented import json_body
from throughline.api.native.requests import ListSummaries, Summarize
from throughline.domain.ids import SummaryId
from throughline.domain.text import clean_text
from throughline.summary.reread import Wish
from throughline.wire.sessions import SessionOut, SummarizeOut, SummaryCostOut, SummaryList, SummaryVersionOut

MAX_DIGITS = 9  # any such number fits an integer column
router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["summaries"])


@router.post(
    "/summarize",
    responses={HTTPStatus.OK: {"model": SummarizeOut}},
    openapi_extra=json_body(Summarize, is_required=False),
)
async def summarize(request: Request, session_id: str, call: Writer) -> Response:
    """Summarize now; `outcome` says whether the summary was adopted, skipped (not worth it) or failed.

    One at a time for a session: another one meanwhile is refused (409), naming the one under way.

    With `instructions` or `from_position` messages that are summarized already are read again, in about 32 calls to the
    summary model and a minute at most. What is read by then is kept: the same request again goes on where it stopped.

    An archived session takes no message any more, but it can still be summarized, restored and pinned in.
    """
    found = session_id_of(session_id)
    wish = _wish(await read_optional_body(request, Summarize))
    return JsonResponse(SummarizeOut.render(await call.services.summarize_now(call.owner_id, found, wish)))


@router.post(
    "/summarize/estimate",
    responses={HTTPStatus.OK: {"model": SummaryCostOut}},
    openapi_extra=json_body(Summarize, is_required=False),
)
async def estimate_summary(request: Request, session_id: str, call: Reader) -> Response:
    """Tell what the same request to `…/summarize` would read and cost; nothing is written and no model asked."""
    found = session_id_of(session_id)
    wish = _wish(await read_optional_body(request, Summarize))
    return JsonResponse(SummaryCostOut.render(await call.services.estimate_summary(call.owner_id, found, wish)))


@router.get("/summaries", responses={HTTPStatus.OK: {"model": SummaryList}})
async def list_summaries(session_id: str, call: Reader, asked: Annotated[ListSummaries, Query()]) -> Response:
    """List the versions of a session's summary, newest first; one that is prepared has no version number yet."""
    page = await call.services.database.summaries.list(
        call.owner_id, session_id_of(session_id), limit=asked.limit, newest=asked.cursor
    )
    return JsonResponse(SummaryVersionOut.render_page(page))


@router.get("/summaries/{summary_id}", responses={HTTPStatus.OK: {"model": SummaryVersionOut}})
async def get_summary(session_id: str, summary_id: str, call: Reader) -> Response:
    """Show one version of the summary with its text; `summary_id` is its id, or its number."""
    version = await call.services.database.summaries.get(
        call.owner_id, session_id_of(session_id), _id_or_number(summary_id)
    )
    return JsonResponse(SummaryVersionOut.render(version))


@router.post("/summaries/{summary_id}/restore", responses={HTTPStatus.OK: {"model": SessionOut}})
async def restore_summary(session_id: str, summary_id: str, call: Writer) -> Response:
    """Make an earlier version the session's summary again, as a new version; the cursor may go back with it.

    `summary_id` is the id of the version, or its number; 0 is no summary at all. Where what it says is in use already,
    nothing changes.

    The version stays in use until new messages call for a further summary: messages and tokens are counted anew from
    here, and a prompt above the threshold is summarized only once the conversation has grown by a fifth of the window.
    Until then what does not fit beside the older version is pruned, shortened or left out of the prompt, the oldest
    first; it can be looked up, and comes into the next summary. `POST …/summarize` writes that one at once.
    """
    found, summaries = session_id_of(session_id), call.services.database.summaries
    wanted = _id_or_number(summary_id)
    version_id: SummaryId | None = None
    if wanted != 0:
        version_id = (await summaries.get(call.owner_id, found, wanted)).id if isinstance(wanted, int) else wanted
    return JsonResponse(SessionOut.render(await summaries.restore(call.owner_id, found, version_id)))


def _wish(body: Summarize) -> Wish:
    return Wish(clean_text(body.instructions).strip(), body.from_position)


def _id_or_number(text: str) -> SummaryId | int:
    """Return the version that is meant, by its number or its id. Raises NotFound where it can be neither."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else summary_id_of(text)
