"""Routes for messages: read the history, pin and redact a message, and send one.

The answer to a sent message is JSON at its end, an event stream, or 202 at once.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Query, Request, Response

from throughline.api.requests import SendMessage
from throughline.api.runs import AskedTurn, answer_turn, turn_answers
from throughline.db.sessions.citations import CitationReader
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.redaction import Redaction
from throughline.domain.basic_types import JsonValue, SessionId
from throughline.domain.errors import BehindWaitingTurn, OwnerQueueFull, QueueFull, SessionBusy
from throughline.domain.message import Message, Role, text_of
from throughline.domain.run import OnBusy, RunInput, Submission
from throughline.http.body import read_body
from throughline.http.call import Call, PathId, Reader, Writer, message_id_of, session_id_of, source_of
from throughline.http.documents import ACCEPT, PREFER, X_CLIENT, described
from throughline.http.fields import ListMessages
from throughline.http.headers import KEY_HEADER, REPLAYED, read_idempotency
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import AGENT, FOLLOWING, TURN, codes
from throughline.wire.json_shape import JsonDict, Shape
from throughline.wire.messages import (
    CitedMessageOut,
    MessageCopyOut,
    MessageOut,
    MessagePage,
    PinnedGroup,
    RedactedMessageOut,
    citation_json,
)
from throughline.wire.overrides import read_client_tools

# Every prompt shows a pinned message word for word, even if a summary covers the messages around it.

pins_router = PrefixRouter(prefix="/v1/sessions/{session_id}/messages/{message_id}/pin", tags=["messages"])


@pins_router.put("", responses={HTTPStatus.OK: {"model": PinnedGroup}}, openapi_extra=described(errors=AGENT))
async def pin_message(session_id: PathId, message_id: PathId, call: Writer) -> Response:
    """Pin a message with its whole group: a tool call and its results. Refused (422) if too much is pinned."""
    group = await call.services.pin_message(call.owner_id, session_id_of(session_id), message_id_of(message_id))
    return JsonResponse(MessageOut.render_all(group))


@pins_router.delete("", status_code=HTTPStatus.NO_CONTENT)
async def unpin_message(session_id: PathId, message_id: PathId, call: Writer) -> Response:
    """Remove the pin from a message and its whole group. Without a pin, nothing happens."""
    await call.services.unpin_message(call.owner_id, session_id_of(session_id), message_id_of(message_id))
    return Response(status_code=HTTPStatus.NO_CONTENT)


T = TypeVar("T")


async def render_cited(
    call: Call, session_id: SessionId, values: Sequence[T], shape: type[Shape], text_of: Callable[[T], str]
) -> list[JsonDict]:
    """Return each value as JSON in `shape`, with the checked citations in the text that `text_of` returns for it.

    The citations of all values are checked together. The caller must have read the session as the call's owner before.
    """
    reader = CitationReader(session_id, call.owner_id, None if call.is_limited else call.principal.user_id)
    checked = await call.services.database.citations.check(reader, [text_of(value) for value in values])
    return [
        {**shape.render(value), "citations": [citation_json(citation) for citation in citations]}
        for value, citations in zip(values, checked, strict=True)
    ]


router = PrefixRouter(prefix="/v1/sessions/{session_id}/messages", tags=["messages"])


@router.get("", responses={HTTPStatus.OK: {"model": MessagePage}})
async def list_messages(session_id: PathId, call: Reader, asked: Annotated[ListMessages, Query()]) -> Response:
    """Return messages of the session's full history, including those that a summary covers."""
    found, (after, before) = session_id_of(session_id), asked.bounds()
    query = MessageQuery(after, before, asked.limit, asked.order, asked.reasoning(reads_all=call.is_operator))
    page = await call.services.database.messages.list_messages(call.owner_id, found, query)
    messages = await render_cited(call, found, page.items, CitedMessageOut, _citing_text)
    return JsonResponse({"data": messages, "next_cursor": page.next_cursor})


@router.post(
    "",
    responses=turn_answers(REPLAYED),
    openapi_extra=described(
        body=SendMessage,
        headers=(KEY_HEADER, PREFER, ACCEPT, X_CLIENT),
        errors=(*codes(SessionBusy, BehindWaitingTurn, QueueFull, OwnerQueueFull), *FOLLOWING, *TURN),
    ),
)
async def send_message(request: Request, session_id: PathId, call: Writer) -> Response:
    """Send a message. If the client disconnects, the turn continues, and its run can be queried."""
    submitted = await call.services.submit(await _read_submission(request, session_id, call))
    response = await answer_turn(request, call, AskedTurn(submitted.run, is_fresh=submitted.is_fresh))
    if submitted.replayed:
        response.headers[REPLAYED] = "true"
    return response


@router.post(
    "/{message_id}/redact",
    responses={HTTPStatus.OK: {"model": RedactedMessageOut}},
    openapi_extra=described(errors=codes(SessionBusy)),
)
async def redact_message(session_id: PathId, message_id: PathId, call: Writer) -> Response:
    """Replace a message's text by a marker permanently, and delete everything that was made from the text.

    So it is done to copies that the service made in other sessions. Those in imports of an export are named in the
    answer and stay. Refused (409) while a turn of one of the sessions is not finished.
    """
    wanted = Redaction(call.owner_id, session_id_of(session_id), message_id_of(message_id), call.principal.actor)
    redacted = await call.services.database.messages.redact(wanted)
    copies: list[JsonValue] = [MessageCopyOut.render(copy) for copy in redacted.kept_copies]
    return JsonResponse({**MessageOut.render(redacted.message), "copies": copies})


def _citing_text(message: Message) -> str:
    """Return the text in which citations are searched: that of an assistant's message, '' for other roles."""
    return text_of(message.content) if message.role is Role.ASSISTANT else ""


async def _read_submission(request: Request, session_id: str, call: Call) -> Submission:
    found = session_id_of(session_id)
    body = await read_body(request, SendMessage)
    idempotency = read_idempotency(request, body)
    given = RunInput(body.as_content(), body.metadata, body.read_overrides(), read_client_tools(body.tools or ()))
    await call.services.check_input(call.owner_id, found, given)
    return Submission(
        owner_id=call.owner_id,
        session_id=found,
        input=given,
        source=source_of(request, call),
        author=call.principal.user_name,
        actor=call.principal.actor,
        idempotency_key=idempotency.key,
        fingerprint=idempotency.fingerprint,
        on_busy=OnBusy(body.on_busy),
    )
