"""Pages of items in OpenAI's form."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from throughline.api.native.query_parameters import QueryParameters
from throughline.api.openai.not_applied import MOST_LISTED, Word, name_not_applied
from throughline.api.openai.output_items import JsonDict


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
