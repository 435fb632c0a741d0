"""Items of a request that are named by their ids alone, as clients do that expect each response to be stored."""

from collections.abc import Mapping, Sequence

from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.http.admitted_request import Call
from throughline.openai.ids import call_item_id, read_item_id
from throughline.openai.input_items import CallItem, Item, ItemReference, item_from
from throughline.openai.read_items import ItemSource, find_item

MAX_REFERENCES = 1_000
"""Different items that a request may name; each of them is read."""


async def with_referenced(call: Call, items: str | Sequence[Item]) -> str | Sequence[Item]:
    """Return the items with those that are named in place of their references; one that is named twice stands once.

    Raises InvalidInput for more than MAX_REFERENCES, and for an item that is missing or another user's.
    """
    if isinstance(items, str):
        return items
    named = {item.id: _message_of(item.id) for item in items if isinstance(item, ItemReference)}
    if not named:
        return items
    if len(named) > MAX_REFERENCES:
        raise InvalidInput(
            f"The input names {len(named):,} items by their ids. At most {MAX_REFERENCES:,} can be: send the items "
            "themselves.",
            field="input",
        )
    sessions = await call.services.database.messages.sessions_of(call.owner_id, list(named.values()))
    whole: list[Item] = []
    for item in items:
        if not isinstance(item, ItemReference):
            whole.append(item)
        elif (message_id := named.pop(item.id, None)) is not None:
            whole.append(await _referenced(call, sessions, message_id, item.id))
    return whole


def _message_of(item_id: str) -> MessageId:
    try:
        return read_item_id(item_id)
    except NotFound:
        raise _missing(item_id) from None


async def _referenced(call: Call, sessions: Mapping[MessageId, SessionId], message_id: MessageId, item_id: str) -> Item:
    session_id = sessions.get(message_id)
    found = None if session_id is None else await find_item(ItemSource(call, session_id), item_id)
    if session_id is None or found is None:
        raise _missing(item_id)
    if found["type"] == "mcp_call" and found["output"] is None:
        # While its turn waits, a call of the client's tool is shown as the service's own, without its call id.
        message = await call.services.database.messages.get_message(call.owner_id, session_id, message_id)
        (asked,) = (made for place, made in enumerate(message.tool_calls) if call_item_id(message_id, place) == item_id)
        return CallItem(type="function_call", call_id=asked.id, name=asked.name, arguments=asked.arguments)
    return item_from(found)


def _missing(item_id: str) -> InvalidInput:
    return InvalidInput(
        f"There is no item {item_id[:80]!r} to refer to. Send the item itself: many clients do with `store: false`.",
        field="input",
    )
