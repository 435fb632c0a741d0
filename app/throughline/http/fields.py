"""Types and limits of fields that the bodies of several front ends have."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field, JsonValue

from throughline.domain.message import is_blank
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.http.problem_documents import TIME_WORDS

MAX_TITLE = 200
MAX_BLOCKS = 100
MAX_METADATA_KEYS = 256
MAX_METADATA_BYTES = 16_384
MAX_METADATA_DEPTH = 32
MAX_POSITION = 2**31 - 1
IMAGE_URL = r"^(https://|data:image/[a-z.+-]+;base64,)"
VISIBLE = r"[^\s\u200b-\u200d]"
"""Pattern for texts with a visible character, in the OpenAPI document."""

DATED = re.compile(r"\d{4}-\d\d-\d\d")
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


def _check_metadata(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    keys, depth = _measure(metadata)
    if depth > MAX_METADATA_DEPTH:
        raise ValueError(f"nested deeper than {MAX_METADATA_DEPTH} levels")
    if keys > MAX_METADATA_KEYS:
        raise ValueError(f"has {keys} keys; at most {MAX_METADATA_KEYS} are allowed")
    size = len(json.dumps(metadata, ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"has {size} bytes; at most {MAX_METADATA_BYTES} are allowed")
    return metadata


def _measure(metadata: dict[str, JsonValue]) -> tuple[int, int]:
    """Return the total number of keys and the depth of nesting."""
    level: list[JsonValue] = [metadata]
    keys = depth = 0
    while level and depth <= MAX_METADATA_DEPTH:
        depth += 1
        below: list[JsonValue] = []
        for item in level:
            keys += len(item) if isinstance(item, dict) else 0
            below += [value for value in _values(item) if isinstance(value, (dict, list))]
        level = below
    return keys, depth


def _values(item: JsonValue) -> Iterable[JsonValue]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def check_external_id(text: str) -> str:
    """Return the external id unchanged. Raises ValueError if it is blank but not empty."""
    if text and is_blank(text):
        raise ValueError("is blank; send an id, or leave it out")
    return text


def _check_is_written_out(value: object) -> object:
    """Raise ValueError unless `value` is text that begins with a date.

    Numbers are refused, also as text: pydantic would read them as seconds since 1970.
    """
    if not isinstance(value, str) or not DATED.match(value):
        raise ValueError(TIME_WORDS)
    return value


def _check_is_kept(time: datetime) -> datetime:
    """Raise ValueError for a time on the first or last day of the calendar.

    Such a time is infinite in the database, or has no equivalent in other time zones.
    """
    if not EARLIEST <= time < LATEST + timedelta(days=1):
        raise ValueError(f"Must be a time from {EARLIEST.date()} to {LATEST.date()}; leave it out if it is not known.")
    return time


def _in_utc(time: datetime) -> datetime:
    """Return the time in UTC. Raises ValueError if it does not exist there, within a day of year 1 or 9999."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError(TIME_WORDS) from None


Moment: TypeAlias = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_check_is_written_out), AfterValidator(_in_utc)
]
StorableTime: TypeAlias = Annotated[Moment, AfterValidator(_check_is_kept)]
"""Time that is stored, and that can be shown in any time zone."""

Metadata: TypeAlias = Annotated[
    dict[str, JsonValue], AfterValidator(_check_metadata), Field(json_schema_extra={"maxProperties": MAX_METADATA_KEYS})
]
Title: TypeAlias = Annotated[str, Field(max_length=MAX_TITLE)]


ExternalId: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=MAX_EXTERNAL_ID, json_schema_extra={"pattern": VISIBLE}),
    AfterValidator(check_external_id),
]


def content_kind(value: object) -> str:
    """Return the union tag of a content value, for validation and its errors.

    The tag is in parentheses, so that it differs from any field name.
    """
    return "(blocks)" if isinstance(value, (list, tuple)) else "(text)"


def optional_content_kind(value: object) -> str:
    """Return the union tag of a content value that may be None."""
    return "(none)" if value is None else content_kind(value)
