"""Cursors for keyset paging: mostly time and id of a page's last row, encoded as base64."""

import base64
import binascii
import json
from datetime import UTC, datetime
from uuid import UUID

from throughline.domain.errors import InvalidInput


def encode_cursor(time: datetime, row_id: UUID) -> str:
    """Return the cursor of the page that follows the row with this time and id, in a list ordered by both."""
    return base64.urlsafe_b64encode(json.dumps([time.isoformat(), str(row_id)]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Return the time and id that `encode_cursor` encoded. Raises InvalidInput for any other text."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        time, row_id = json.loads(text)
        parsed = datetime.fromisoformat(time).astimezone(UTC), UUID(row_id)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, binascii.Error):
        raise invalid_cursor() from None
    return parsed


def invalid_cursor() -> InvalidInput:
    """Return the error for a cursor that no page has returned."""
    return InvalidInput("The cursor is not valid. Use `next_cursor` of the previous page.", field="cursor")
