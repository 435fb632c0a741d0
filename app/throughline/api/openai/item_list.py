"""Pages of items in OpenAI's form."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from throughline.api.native.query_parameters import QueryParameters
from throughline.api.openai.output_items import JsonDict
from throughline.domain.errors import InvalidInput


class ListItems(QueryParameters):
    """A page of items: how many, in which order, and after or before which one."""

    limit: int = Field(20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = Field(None, max_length=200)
    before: str | None = Field(None, max_length=200)
    include: list[str] | None = Field(None, max_length=0, description="nothing can be included further")


def page_of(items: Sequence[JsonDict], query: ListItems) -> JsonDict:
    """Return a page of the items, which are in the order of the conversation.

    Raises InvalidInput if `after` or `before` is none of the items.
    """
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    first = 0 if query.after is None else _index_of(ordered, query.after, "after") + 1
    last = len(ordered) if query.before is None else _index_of(ordered, query.before, "before")
    chosen = ordered[first:last]
    page = chosen[: query.limit]
    return {
        "object": "list",
        "data": list(page),
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(chosen) > len(page),
    }


def _index_of(items: Sequence[JsonDict], item_id: str, field: str) -> int:
    for index, item in enumerate(items):
        if item["id"] == item_id:
            return index
    raise InvalidInput(f"The list has no item {item_id!r}.", field=field)
