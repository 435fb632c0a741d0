"""Routes of OpenAI's Responses interface. A response is one part of a run.

See https://platform.openai.com/docs/api-reference/responses .
"""

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from throughline.api.http.admitted_request import Call, Reader, Writer, source_of
from throughline.api.http.headers import read_idempotency
from throughline.api.http.responses import JsonResponse
from throughline.api.native.documented import described
from throughline.api.openai.begin_response import BegunResponse, begin_response
from throughline.api.openai.errors import OPENAI, OpenAIRoute, TurnFailed, failure_of
from throughline.api.openai.find_target import RequestOrigin
from throughline.api.openai.follow_part import FollowedPart, wait_for_end
from throughline.api.openai.ids import read_response_id
from throughline.api.openai.item_list import Include, ListItems
from throughline.api.openai.not_applied import not_applied_headers
from throughline.api.openai.read_items import ItemSource, read_page
from throughline.api.openai.read_request import read_request
from throughline.api.openai.read_response import (
    begun_response,
    ended_response,
    read_response,
    response_of,
)
from throughline.api.openai.remove_response import remove_response
from throughline.api.openai.response_object import STATUSES, RunResponse, response_json
from throughline.api.openai.response_request import UNSUPPORTED, CreateResponse
from throughline.api.openai.stream_response import find_events, stream_response
from throughline.db.sessions.messages import LAST_POSITION
from throughline.domain.errors import InvalidInput
from throughline.domain.run import RunStatus

MAX_NUMBER = 2**31 - 1
CANCEL_SECONDS = 5.0
"""Longest time in seconds that a cancellation waits for the turn, so that its answer can say that it has stopped."""

router = APIRouter(prefix="/v1/responses", route_class=OpenAIRoute, tags=[OPENAI])


class ReadResponse(Include):
    """How a response is read: as an object, or streamed after an event."""

    stream: bool = False
    starting_after: int | None = Field(None, ge=0, le=MAX_NUMBER)


@router.post("", openapi_extra=described(body=CreateResponse))
async def create_response(request: Request, call: Writer) -> Response:
    """Ask an agent, in OpenAI's form: waited for, streamed, or in the background."""
    body = await read_request(request, CreateResponse, UNSUPPORTED)
    if body.background and not body.is_stored:
        raise InvalidInput("A response in the background has to be stored. Set `store` to true.", field="store")
    origin = RequestOrigin(source_of(request, call), read_idempotency(request, body))
    begun = await begin_response(call, body, origin)
    if not body.stream and not body.background:
        return await _answer(request, call, begun)
    response = begun.repeated or await begun_response(call, begun.followed, begun.part)
    if body.stream:
        headers = not_applied_headers(response.echo)
        return stream_response(call, await find_events(call, response, begun.followed), headers)
    return _response(response)


@router.get("/{response_id}")
async def get_response(response_id: str, call: Reader, asked: Annotated[ReadResponse, Query()]) -> Response:
    """Return a response; with `stream`, its events after number `starting_after`."""
    response = await read_response(call, read_response_id(response_id))
    if not asked.stream:
        return JsonResponse(response_json(response), headers=asked.not_applied())
    after = -1 if asked.starting_after is None else asked.starting_after
    followed = FollowedPart(response.run, skipped_waits=response.part.number)
    return stream_response(call, await find_events(call, response, followed, after), asked.not_applied())


@router.post("/{response_id}/cancel")
async def cancel_response(request: Request, response_id: str, call: Writer) -> Response:
    """Ask the response's turn to stop, and wait a moment for it; a turn that waits is cancelled at once.

    A response that another one has followed, or whose turn has ended, is returned unchanged.
    """
    response = await read_response(call, read_response_id(response_id))
    run, part = response.run, response.part
    if part.is_last and not run.status.is_final:
        run = await call.services.database.runs.request_cancel(call.owner_id, run.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await wait_for_end(request, call, FollowedPart(run, skipped_waits=part.number))
        run = await call.services.database.followed_runs.reload(run)
    return JsonResponse(response_json(await response_of(call, run, part.number)))


@router.delete("/{response_id}")
async def delete_response(response_id: str, call: Writer) -> Response:
    """Delete a response: its messages are redacted, or its session is erased if no other message is left.

    Refused (409) while a turn of the session is not over.
    """
    ref = read_response_id(response_id)
    await remove_response(call, ref)
    return JsonResponse({"id": str(ref), "object": "response", "deleted": True})


@router.get("/{response_id}/input_items")
async def list_input_items(response_id: str, call: Reader, asked: Annotated[ListItems, Query()]) -> Response:
    """List the items that a response was asked with: all messages of the conversation before its output."""
    response = await read_response(call, read_response_id(response_id))
    made = response.part.made
    before = made[0].position if made else LAST_POSITION
    source = ItemSource(call, response.run.session_id, before, response.kinds)
    return JsonResponse(await read_page(source, asked), headers=asked.not_applied())


async def _answer(request: Request, call: Call, begun: BegunResponse) -> Response:
    """Wait until the response is over, and return it, or the error with which its turn failed."""
    response = begun.repeated
    if response is None or not response.is_over:
        ended = await wait_for_end(request, call, begun.followed)
        response = await ended_response(call, begun.followed, ended, begun.part)
    if response.status == STATUSES[RunStatus.FAILED]:
        raise TurnFailed(failure_of(response.run))
    return _response(response)


def _response(response: RunResponse) -> Response:
    return JsonResponse(response_json(response), headers=not_applied_headers(response.echo))
