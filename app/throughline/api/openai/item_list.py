"""Pages of items in OpenAI's form."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from throughline.api.native.query_parameters import QueryParameters
from throughline.api.openai.output_items import JsonDict


class ListItems(QueryParameters):
    """A page of items: how many, in which order, and after or before which one."""

    limit: int = Field(20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = Field(None, max_length=200)
    before: str | None = Field(None, max_length=200)
    include: list[str] | None = Field(None, max_length=0, description="nothing can be included further")


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
