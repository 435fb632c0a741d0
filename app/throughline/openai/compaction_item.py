"""The compaction item: a conversation's summary and its newest messages, as one text that only this service reads.

OpenAI's clients send it back as it is. It is not encrypted: it holds what the client itself has sent.
"""

import base64
import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from throughline.db.statements.sql import new_id
from throughline.http.body import parse_json, validate
from throughline.http.openai_messages import FOREIGN
from throughline.http.route_errors import InvalidRequest, MalformedBody

VERSION = 1
MAX_CONTENT = 20_000_000


class CompactionItem(BaseModel):
    """A conversation's summary and newest messages, as this service has returned them."""

    model_config = FOREIGN

    type: Literal["compaction"]
    encrypted_content: Annotated[str, Field(max_length=MAX_CONTENT)]


class CompactedContent(BaseModel):
    """What a compaction item stands for: the summary, '' without one, and the items that it does not cover."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: Literal[1]
    summary: str
    items: list[dict[str, JsonValue]]


def make_compaction_item(summary: str, items: Sequence[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return the item for a summary and the items of the messages that it does not cover."""
    content = json.dumps({"version": VERSION, "summary": summary, "items": list(items)}, ensure_ascii=False)
    encoded = base64.urlsafe_b64encode(content.encode()).decode()
    return {"type": "compaction", "id": f"cmp_{new_id().hex}", "encrypted_content": encoded}


def read_compaction_item(item: CompactionItem) -> CompactedContent | None:
    """Return what the item stands for, its texts cleaned as those of a body; None if this service did not make it."""
    try:
        content = base64.b64decode(item.encrypted_content, altchars=b"-_", validate=True)
        return validate(parse_json(content), CompactedContent)
    except (ValueError, MalformedBody, InvalidRequest):
        return None
