"""Routes of OpenAI's Responses interface. A response is one part of a run.

See https://platform.openai.com/docs/api-reference/responses .
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field

from throughline.chat_protocols.follow_part import FollowedPart, messages_of, newest_part, wait_for_end
from throughline.db.runs.list_runs import Removal, Removed
from throughline.domain.basic_types import JsonValue, RunId
from throughline.domain.errors import InvalidInput, NotFound, SessionBusy
from throughline.domain.message import LAST_POSITION, REDACTED_TEXT, Message
from throughline.domain.run import Run, RunInput, RunStatus
from throughline.http.call import Call, Reader, Writer, source_of
from throughline.http.documents import described
from throughline.http.headers import read_idempotency
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.openai.errors import OPENAI, OpenAIRoute, TurnFailed, failure_of
from throughline.openai.output_items import ResponseRef, read_response_id, response_not_found
from throughline.openai.read_items import Include, ItemSource, ListItems, read_page
from throughline.openai.read_request import not_applied_headers, read_request
from throughline.openai.response_object import (
    DELETED,
    STATUSES,
    RunResponse,
    final_response,
    part_of,
    read_response,
    response_in_progress,
    response_json,
    response_of,
)
from throughline.openai.responses.begin_response import RequestOrigin, ResponseTurn, begin_response
from throughline.openai.responses.request import UNSUPPORTED, CreateResponse
from throughline.openai.responses.stream import find_events, stream_response


async def remove_response(call: Call, ref: ResponseRef) -> None:
    """Redact the response's messages, or erase its session if no message without redaction is left in it.

    The turn of a response that waits is cancelled first, because nothing can follow a deleted response. A refused
    deletion cancels nothing.

    Raises NotFound. Raises SessionBusy while the response is not over, or while another turn of its session, or of one
    that quotes it, goes on or waits.
    """
    run = (await read_response(call, ref)).run
    if run.status.needs_worker and newest_part(run) == ref.part:
        raise _not_over(ref, run)
    wanted = Removal(
        call.owner_id,
        run.session_id,
        run.id,
        partial(_select_removed, ref),
        cancels_wait=newest_part(run) == ref.part,
        actor=call.principal.actor,
    )
    try:
        await call.services.database.runs.remove_messages(wanted)
    except SessionBusy as busy:
        unfinished = await call.services.database.runs.get_run(call.owner_id, RunId(UUID(busy.run_id)))
        raise _not_over(ref, unfinished) from None
    except NotFound:  # another request has erased the session meanwhile
        raise response_not_found(str(ref)) from None


def _select_removed(ref: ResponseRef, run: Run, messages: Sequence[Message]) -> Removed:
    """Return the ids of the response's messages, and the run's input without its texts.

    Raises NotFound if the run has no such part, or it is deleted.
    """
    response = part_of(run, messages, None, ref.part)
    return Removed([message.id for message in messages_of(response.part, messages)], _kept_input(response))


def _kept_input(response: RunResponse) -> RunInput:
    """Return the run's input without the texts of the response's request; without its tools if no part is left.

    What the part had used stays: the usage of the part before it is counted up to there. Instructions are those of the
    last part.
    """
    given, number = response.run.input, response.part.number
    kept = given if number else replace(given, content=REDACTED_TEXT, metadata={})
    if response.part.is_last:
        kept = replace(kept, overrides=replace(kept.overrides, instructions=None))
    known = given.echo.get("parts")
    parts: list[JsonValue] = list(known) if isinstance(known, list) else []
    parts += [{} for _ in range(number + 1 - len(parts))]
    used = {"used": response.echo["used"]} if "used" in response.echo else {}
    parts[number] = {DELETED: True, **used}
    is_known = response.part.is_last or number + 1 < len(parts)
    if is_known and all(isinstance(part, dict) and part.get(DELETED) is True for part in parts):
        kept = RunInput(REDACTED_TEXT, steps_brought=given.steps_brought)
    return replace(kept, echo={"parts": parts})


def _not_over(ref: ResponseRef, run: Run) -> SessionBusy:
    """Return the error that names the response of the run which is not over."""
    unfinished = ResponseRef(run.id, newest_part(run))
    if run.status is RunStatus.WAITING:
        state = "waits for the outputs of its calls, or for approval. Send them, or delete it"
    else:
        state = "is not over. Wait for it, or cancel it"
    return SessionBusy(f"The response {unfinished} {state}, then delete {ref}.", run_id=str(run.id))


MAX_NUMBER = 2**31 - 1
CANCEL_SECONDS = 5.0
"""Longest time in seconds that a cancellation waits for the turn, so that its answer can say that it has stopped."""

router = PrefixRouter(prefix="/v1/responses", route_class=OpenAIRoute, tags=[OPENAI])


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
    response = begun.repeated or await response_in_progress(call, begun.followed, begun.part)
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


async def _answer(request: Request, call: Call, begun: ResponseTurn) -> Response:
    """Wait until the response is over, and return it, or the error with which its turn failed."""
    response = begun.repeated
    if response is None or not response.is_over:
        ended = await wait_for_end(request, call, begun.followed)
        response = await final_response(call, begun.followed, ended, begun.part)
    if response.status == STATUSES[RunStatus.FAILED]:
        raise TurnFailed(failure_of(response.run))
    return _response(response)


def _response(response: RunResponse) -> Response:
    return JsonResponse(response_json(response), headers=not_applied_headers(response.echo))
