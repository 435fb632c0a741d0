"""Assembly of statements from the service's own SQL fragments, such as column lists; values are always parameters."""

import base64
import binascii
import json
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from throughline.db.connection.pool import Statement, statement
from throughline.domain.errors import IdempotencyKeyReused, InvalidInput

MAX_KEY_LENGTH = 255


def check_key(key: str | None) -> str | None:
    """Return the idempotency key unchanged, None if there is none. Raises InvalidInput if it is empty or too long."""
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(
            f"An idempotency key has 1 to {MAX_KEY_LENGTH} characters, not {len(key)}.", field="Idempotency-Key"
        )
    return key


def key_reused(key: str | None) -> IdempotencyKeyReused:
    """Return the error for a key that was used with another request body before."""
    return IdempotencyKeyReused(
        f"The idempotency key {key!r} was used before with another request. Use a new key for a new request."
    )


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


def new_id() -> UUID:
    """Return a new id. Ids grow with time, but messages are ordered by their positions, never by ids."""
    return uuid7()


def sql(template: str, **pieces: str) -> Statement:
    """Return the statement with each `{name}` replaced by the fragment of that name; `{{}}` stands for `{}`.

    Without fragments the template is used unchanged.
    """
    return statement(template.format_map(pieces) if pieces else template)
