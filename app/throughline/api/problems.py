"""The addresses that problem documents have as their `type`: what an error means and what to do.

They need no key, because they tell nothing beyond the manual.
"""

import re
from html import escape
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from throughline.domain.errors import NotFound
from throughline.domain.message import clean_text
from throughline.http.headers import prefers_html
from throughline.http.problem_kinds.all_kinds import PROBLEM_KINDS
from throughline.http.sse import JsonResponse
from throughline.http.start_page import HEADERS, MEDIA_TYPE, html_page
from throughline.wire.service import ProblemKindOut

MOST_SHOWN = 80
CODE = re.compile(r"`([^`]+)`")
MANUAL = "docs/"
BODY = """<h1>{title}</h1>
<p><code>{type}</code>, HTTP status {status}</p>
<h2>Cause</h2>
<p>{cause}</p>
<h2>Remedy</h2>
<p>{remedy}</p>"""
SEE = "\n<p>More in the manual: <code>{page}</code></p>"
HTML = {MEDIA_TYPE: {"schema": {"type": "string"}}}
router = APIRouter(prefix="/problems", tags=["problems"])


@router.head("/{name}", include_in_schema=False)
@router.get("/{name}", responses={HTTPStatus.OK: {"model": ProblemKindOut, "content": HTML}})
async def get_problem(name: str, request: Request) -> Response:
    """Return cause and remedy of an error by its code, as a page if the client prefers one, else as JSON."""
    kind = PROBLEM_KINDS.get(name)
    if kind is None:
        shown = clean_text(name)[:MOST_SHOWN]
        raise NotFound(f"There is no error with the code {shown!r}. /openapi.json names the codes of each route.")
    found = ProblemKindOut(
        type=f"/problems/{name}",
        title=kind.title,
        status=kind.status,
        cause=kind.cause,
        remedy=kind.remedy,
        page=MANUAL + kind.page if kind.page else None,
    )
    if prefers_html(request.headers.getlist("accept")):
        return HTMLResponse(_page(found), headers=HEADERS)
    return JsonResponse(found.model_dump(), headers=HEADERS)


def _page(found: ProblemKindOut) -> str:
    fields = {name: CODE.sub(r"<code>\1</code>", escape(str(value))) for name, value in found.model_dump().items()}
    return html_page(fields["title"], BODY.format(**fields) + (SEE.format(**fields) if found.page else ""))
