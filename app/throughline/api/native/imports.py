"""Route that imports a conversation from elsewhere, or an export of this service, as a new session."""

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, Field

from throughline.api.http.admitted_request import Call, Writer, source_of
from throughline.api.http.body import is_json_lines, read_body, read_bytes
from throughline.api.http.responses import JsonResponse
from throughline.api.http.route_errors import codes
from throughline.api.native.documented import X_CLIENT, described, response_headers
from throughline.api.native.export import MEDIA_TYPE
from throughline.api.native.import_lines import from_lines
from throughline.api.native.import_openai import ImportSession, from_openai
from throughline.api.native.query_parameters import QueryParameters
from throughline.api.native.requests import MAX_TITLE, check_external_id
from throughline.db.sessions.import_messages import Conversation, DatedMessage, Imported
from throughline.domain.errors import ExternalIdTaken, InvalidInput, NotFound
from throughline.domain.message import Source
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.domain.text import clean_text
from throughline.wire.sessions import SessionOut

NOTHING_TO_IMPORT = (
    "There is nothing to import: a session needs at least one message of a user, an assistant or a tool. System "
    "and developer messages are not imported, because the agent has its own prompt."
)
router = APIRouter(prefix="/v1/sessions/import", tags=["sessions"])
DESCRIBED = described(body=ImportSession, headers=(X_CLIENT,), errors=codes(NotFound, ExternalIdTaken))
DESCRIBED["requestBody"]["content"][MEDIA_TYPE] = {"schema": {"type": "string", "description": "an export, as it is"}}


class ImportOptions(QueryParameters):
    """Values of the new session that replace those in the body."""

    agent: str | None = Field(None, min_length=1, max_length=100)
    title: str | None = Field(None, max_length=MAX_TITLE)
    external_id: Annotated[str, AfterValidator(check_external_id)] | None = Field(
        None, max_length=MAX_EXTERNAL_ID, description="empty: the session gets none"
    )


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": SessionOut, "headers": response_headers("Location")}},
    openapi_extra=DESCRIBED,
)
async def import_session(request: Request, call: Writer, asked: Annotated[ImportOptions, Query()]) -> Response:
    """Store a conversation in OpenAI's message format, or an export, as a new session; no model is called.

    An export is sent as `application/x-ndjson`. Its messages keep their times; ids, runs and pins are not taken over.
    """
    given = await _read(request, source_of(request, call))
    if not given.messages:
        raise InvalidInput(NOTHING_TO_IMPORT, field="messages")
    agent = call.services.agents.get(given.agent if asked.agent is None else clean_text(asked.agent))
    new = Imported(
        owner_id=call.owner_id,
        agent=agent.name,
        title=given.title if asked.title is None else clean_text(asked.title),
        source=source_of(request, call),
        metadata=given.metadata,
        external_id=given.external_id if asked.external_id is None else clean_text(asked.external_id) or None,
        exported_id=given.exported_id,
    )
    counted = await _counted(call, agent.name, given.messages)
    session = await call.services.database.sessions.import_conversation(new, counted)
    return JsonResponse(SessionOut.render(session), HTTPStatus.CREATED, {"Location": f"/v1/sessions/{session.id}"})


async def _read(request: Request, source: Source) -> Conversation:
    if is_json_lines(request):
        return from_lines(await read_bytes(request), source)
    return from_openai(await read_body(request, ImportSession), source)


async def _counted(call: Call, agent: str, given: Sequence[DatedMessage]) -> list[DatedMessage]:
    """Return the messages with their tokens counted; those that do not count keep 0."""
    counted = iter(await call.services.count_messages(agent, [dated.message for dated in given if dated.counts]))
    return [replace(dated, message=next(counted)) if dated.counts else dated for dated in given]
