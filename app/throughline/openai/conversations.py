"""Routes of OpenAI's conversations. A conversation is a session, and its items show the session's messages.

See https://platform.openai.com/docs/api-reference/conversations .
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import JsonValue, SessionId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message, NewMessage
from throughline.domain.session import NewSession, Session
from throughline.http.call import Call, Reader, Writer, source_of
from throughline.http.documents import described
from throughline.http.fields import STRICT
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.openai.errors import OPENAI, OpenAIRoute
from throughline.openai.input_items import Items, read_items
from throughline.openai.output_items import (
    CallKinds,
    JsonDict,
    conversation_id,
    items_of,
    read_conversation_id,
    read_item_id,
)
from throughline.openai.read_items import ItemSource, ListItems, find_item, list_json, read_page, with_referenced
from throughline.openai.read_request import read_request
from throughline.openai.responses.request import Metadata

DEFAULT_AGENT = "assistant"
"""Agent of new conversations, until the first response names one; without it, the first agent by name."""

MOST_RETURNED = 100
"""Added items that the answer shows."""

router = PrefixRouter(prefix="/v1/conversations", route_class=OpenAIRoute, tags=[OPENAI])


class CreateConversation(BaseModel):
    """A new conversation, in OpenAI's form."""

    model_config = STRICT

    items: Items | None = None
    metadata: Metadata | None = None


class ChangeConversation(BaseModel):
    """New metadata of a conversation, in OpenAI's form."""

    model_config = STRICT

    metadata: Metadata


class AddItems(BaseModel):
    """Items to add to a conversation, in OpenAI's form."""

    model_config = STRICT

    items: Items = Field(json_schema_extra={"minItems": 1})


@router.post("", openapi_extra=described(body=CreateConversation))
async def create_conversation(request: Request, call: Writer) -> Response:
    """Create a conversation, with items if the request has some."""
    body = await read_request(request, CreateConversation, {})
    source, metadata, agent = source_of(request, call), dict(body.metadata or {}), _default_agent(call)
    sessions = call.services.database.sessions
    if not body.items:
        new = NewSession(owner_id=call.owner_id, agent=agent, title="", source=source, metadata=metadata)
        session, _ = await sessions.create(new)
    else:
        messages = await call.services.count_messages(agent, await _messages(request, call, body.items))
        imported = Imported(call.owner_id, agent, "", source, metadata)
        session = await sessions.import_conversation(imported, [DatedMessage(message) for message in messages])
    return JsonResponse(_conversation_json(session))


@router.get("/{conversation}")
async def get_conversation(conversation: str, call: Reader) -> Response:
    """Return a conversation."""
    return JsonResponse(_conversation_json(await _find(call, conversation)))


@router.post("/{conversation}", openapi_extra=described(body=ChangeConversation))
async def change_conversation(request: Request, conversation: str, call: Writer) -> Response:
    """Replace the conversation's metadata."""
    session = await _find(call, conversation)
    body = await read_request(request, ChangeConversation, {})
    change = SessionChange(metadata=dict(body.metadata))
    changed = await call.services.database.sessions.update(call.owner_id, session.id, change)
    return JsonResponse(_conversation_json(changed))


@router.delete("/{conversation}")
async def delete_conversation(conversation: str, call: Writer) -> Response:
    """Erase the conversation with everything of it."""
    session = await _find(call, conversation)
    kept = await call.services.database.sessions.delete(call.owner_id, session.id)
    named: list[JsonValue] = [*sorted({str(copy.session_id) for copy in kept})]
    deleted: JsonDict = {"id": conversation, "object": "conversation.deleted", "deleted": True}
    return JsonResponse({**deleted, "copies": named} if named else deleted)


@router.get("/{conversation}/items")
async def list_items(conversation: str, call: Reader, asked: Annotated[ListItems, Query()]) -> Response:
    """List the conversation's items, the newest first unless `order` says otherwise."""
    session = await _find(call, conversation)
    return JsonResponse(await read_page(ItemSource(call, session.id), asked), headers=asked.not_applied())


@router.post("/{conversation}/items", openapi_extra=described(body=AddItems))
async def add_items(request: Request, conversation: str, call: Writer) -> Response:
    """Append items to the conversation. Refused (409) while a turn of it is not finished."""
    session = await _find(call, conversation)
    body = await read_request(request, AddItems, {})
    messages = await call.services.count_messages(session.agent, await _messages(request, call, body.items))
    added = await call.services.database.sessions.append(call.owner_id, session.id, messages)
    return JsonResponse(list_json(_items(added), MOST_RETURNED))


@router.get("/{conversation}/items/{item}")
async def get_item(conversation: str, item: str, call: Reader) -> Response:
    """Return one item of the conversation."""
    session = await _find(call, conversation)
    found = await find_item(ItemSource(call, session.id), item)
    if found is None:
        raise NotFound(f"The conversation has no item {item[:80]!r}.")
    return JsonResponse(found)


@router.delete("/{conversation}/items/{item}")
async def delete_item(conversation: str, item: str, call: Writer) -> Response:
    """Redact the message that the item shows. Refused (409) while a turn of the conversation is not finished."""
    session, message_id = await _find(call, conversation), read_item_id(item)
    redaction = Redaction(call.owner_id, session.id, message_id, call.principal.actor)
    await call.services.database.messages.redact(redaction)
    return JsonResponse(_conversation_json(session))


async def _find(call: Call, name: str) -> Session:
    session_id = read_conversation_id(name)
    try:
        return await call.services.database.sessions.get(call.owner_id, session_id)
    except NotFound:
        raise NotFound(f"There is no conversation {name!r}.") from None


def _default_agent(call: Call) -> str:
    names = [agent.name for agent in call.services.agents.all()]
    return DEFAULT_AGENT if DEFAULT_AGENT in names else names[0]


async def _messages(request: Request, call: Call, items: Items) -> tuple[NewMessage, ...]:
    """Return the items' messages. Raises InvalidInput for system and developer messages."""
    instructed, messages = read_items(await with_referenced(call, items), source_of(request, call))
    if instructed:
        raise InvalidInput(
            "A conversation keeps no system or developer messages, because the agent has its own prompt. Send them as "
            "`instructions` of each response.",
            field="items",
        )
    return messages


def _items(added: Sequence[Message]) -> list[JsonDict]:
    """Return the items of messages that were added. Their calls came with the request, so they are the client's."""
    brought = (call.name for message in added for call in message.tool_calls)
    return items_of(added, CallKinds(frozenset(brought), {}))


def _conversation_json(session: Session) -> JsonDict:
    return {
        "id": conversation_id(SessionId(session.id)),
        "object": "conversation",
        "created_at": int(session.created_at.timestamp()),
        "metadata": dict(session.metadata),
    }
