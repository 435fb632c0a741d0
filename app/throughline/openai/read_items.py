"""Pages of a session's items, and items named by id.

For a page only its messages are read, and the calls and results that belong to them.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from throughline.db.sessions.messages import MessageQuery, ReadPage
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import LAST_POSITION, Message, clean_text
from throughline.http.call import Call
from throughline.http.fields import QueryParameters
from throughline.openai.input_items import CallItem, Item, ItemReference, item_from
from throughline.openai.output_items import (
    CallKinds,
    JsonDict,
    call_item_id,
    items_by_message,
    pair_calls,
    read_item_id,
)
from throughline.openai.read_request import MOST_LISTED, Word, name_not_applied
from throughline.openai.response_object import awaited_kinds


class Include(QueryParameters):
    """The query parameter `include`: accepted without effect, and named in the header X-Not-Applied."""

    include: list[Word] | None = Field(None, max_length=MOST_LISTED, description="taken and not applied")
    include_in_brackets: list[Word] | None = Field(None, alias="include[]", max_length=MOST_LISTED)

    def not_applied(self) -> dict[str, str]:
        """Return the header that names the parameter; {} without it."""
        return name_not_applied(["include"] if self.include or self.include_in_brackets else [])


class ListItems(Include):
    """A page of items: how many, in which order, and after or before which one."""

    limit: int = Field(20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = Field(None, max_length=200)
    before: str | None = Field(None, max_length=200)


def list_json(items: Sequence[JsonDict], limit: int) -> JsonDict:
    """Return the first `limit` items as a list object, which says whether there are more."""
    page = items[:limit]
    return {
        "object": "list",
        "data": list(page),
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(items) > len(page),
    }


MOST_READ = 200
"""Messages that one statement reads."""


@dataclass(frozen=True, slots=True)
class ItemSource:
    """The items of the session's messages at positions smaller than `before`.

    `kinds` says whose the calls are. With None, calls that came with a request, or that waited for a result or an
    answer, are the client's.
    """

    call: Call
    session_id: SessionId
    before: int = LAST_POSITION
    kinds: CallKinds | None = None


async def read_page(source: ItemSource, query: ListItems) -> JsonDict:
    """Return the page of items in OpenAI's form.

    Raises InvalidInput if `after` or `before` is none of the items.
    """
    after = None if query.after is None else await _position_of(source, query.after, "after")
    before = None if query.before is None else await _position_of(source, query.before, "before")
    first, last = (after, before) if query.order == "asc" else (before, after)
    bounds = MessageQuery(
        after=None if first is None else first - 1,
        before=source.before if last is None else last + 1,
        limit=query.limit + 2,  # the item named by `after`, and one more to see whether the list goes on
        order=query.order,
    )
    page: list[JsonDict] = []
    is_begun = query.after is None
    async for item in _iterate_items(source, bounds):
        if item["id"] == query.before:
            break
        if is_begun:
            page.append(item)
        if len(page) > query.limit:
            break
        is_begun = is_begun or item["id"] == query.after
    return list_json(page, query.limit)


async def find_item(source: ItemSource, item_id: str) -> JsonDict | None:
    """Return the item with this id, None if there is none."""
    found = await _find(source, item_id)
    return None if found is None else found[1]


async def _position_of(source: ItemSource, item_id: str, field: str) -> int:
    found = await _find(source, item_id)
    if found is None:
        raise InvalidInput(f"The list has no item {item_id!r}.", field=field)
    return found[0].position


async def _find(source: ItemSource, item_id: str) -> tuple[Message, JsonDict] | None:
    """Return the item with this id and the message that it shows."""
    message = await _find_message(source, item_id)
    if message is None or message.position >= source.before:
        return None
    shown = await _shown(source, [message])
    return next(((message, item) for _, items in shown for item in items if item["id"] == item_id), None)


async def _find_message(source: ItemSource, item_id: str) -> Message | None:
    """Return the message that the item id names, None without one.

    The item of an approval has its call's id: then it is the last message with this call.
    """
    messages, owner_id = source.call.services.database.messages, source.call.owner_id
    try:
        return await messages.get_message(owner_id, source.session_id, read_item_id(item_id))
    except NotFound:
        called = ReadPage(source.before, source.before, source.before, (), [clean_text(item_id)])
        return next(iter(await messages.related_messages(source.session_id, called)), None)


async def _iterate_items(source: ItemSource, bounds: MessageQuery) -> AsyncIterator[JsonDict]:
    """Yield the items of the messages within the bounds, in the order of the bounds.

    Each statement reads twice as many messages as the one before, up to MOST_READ.
    """
    after, before, limit, is_ascending = bounds.after, bounds.before, bounds.limit, bounds.order == "asc"
    while True:
        query = MessageQuery(after=after, before=before, limit=limit, order=bounds.order)
        page = await source.call.services.database.messages.list_messages(
            source.call.owner_id, source.session_id, query
        )
        items = [item for _, shown in await _shown(source, page.items) for item in shown]
        for item in items if is_ascending else reversed(items):
            yield item
        if page.next_cursor is None:
            return
        position = page.items[-1].position
        after, before = (position, before) if is_ascending else (after, position)
        limit = min(2 * limit, MOST_READ)


async def _shown(source: ItemSource, page: Sequence[Message]) -> list[tuple[Message, list[JsonDict]]]:
    """Return each message of the page with its items, oldest first."""
    ordered = sorted(page, key=lambda message: message.position)
    if not ordered:
        return []
    paired = pair_calls(ordered)
    asked = ReadPage(
        ordered[0].position,
        ordered[-1].position,
        source.before,
        paired.calls_without_result,
        paired.results_without_call,
    )
    related = await source.call.services.database.messages.related_messages(source.session_id, asked)
    messages = sorted((*related, *ordered), key=lambda message: message.position)
    kinds = await _kinds(source, messages) if source.kinds is None else source.kinds
    known = {message.id for message in ordered}
    return [(message, items) for message, items in items_by_message(messages, kinds) if message.id in known]


async def _kinds(source: ItemSource, messages: Sequence[Message]) -> CallKinds:
    names = frozenset[str]()
    if any(message.tool_calls for message in messages):
        names = await source.call.services.database.messages.imported_tool_names(source.session_id)
    return CallKinds(names, awaited_kinds(messages))


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
