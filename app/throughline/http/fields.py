"""Query parameters of lists and searches, and the fields that several bodies have. Unknown ones are refused."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal, TypeAlias
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import JsonObject
from throughline.domain.message import LAST_POSITION, Role, clean_text, is_blank
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.domain.run import RunStatus
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.http.body import parse_json, validate
from throughline.http.problem_documents import TIME_WORDS
from throughline.http.route_errors import FieldError, InvalidRequest, MalformedBody

MAX_TITLE = 200
MAX_BLOCKS = 100
MAX_METADATA_KEYS = 256
MAX_METADATA_BYTES = 16_384
MAX_METADATA_DEPTH = 32
IMAGE_URL = r"^(https://|data:image/[a-z.+-]+;base64,)"
IMAGE = re.compile(IMAGE_URL)
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


ID_DIGITS = 32
ID_PREFIX = r"^(?:[0-9A-Fa-f]-?){4,32}$"


class QueryParameters(BaseModel):
    """Query parameters of a request; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListSessions(QueryParameters):
    """A page of the list of sessions, the last updated first, and filters for it."""

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=512, description="`next_cursor` of the previous page")
    agent: str | None = Field(None, max_length=100)
    q: str | None = Field(None, max_length=200, description="part of the title")
    external_id: str | None = Field(None, max_length=MAX_EXTERNAL_ID, description="your own id for the session")
    metadata: str | None = Field(
        None, description="JSON object that the metadata contain", examples=['{"project": "atlas"}']
    )
    id_prefix: str | None = Field(
        None,
        max_length=36,
        pattern=ID_PREFIX,
        description="first characters of the id, at least four",
        examples=["01947c2e-51"],
    )
    include_archived: bool = False

    def as_query(self) -> SessionQuery:
        """Return the sessions to list. Raises InvalidRequest for a wrong filter of metadata."""
        return SessionQuery(
            limit=self.limit,
            cursor=self.cursor,
            agent=_clean(self.agent),
            q=_clean(self.q),
            external_id=_clean(self.external_id),
            metadata=self._read_metadata(),
            ids=self._ids(),
            include_archived=self.include_archived,
        )

    def _ids(self) -> tuple[UUID, UUID] | None:
        """Return the smallest and the largest id that begin with `id_prefix`, None without this filter."""
        if self.id_prefix is None:
            return None
        digits = self.id_prefix.replace("-", "")
        return UUID(digits.ljust(ID_DIGITS, "0")), UUID(digits.ljust(ID_DIGITS, "f"))

    def _read_metadata(self) -> JsonObject | None:
        """Return the object that the sessions' metadata have to contain, None without this filter.

        Raises InvalidRequest for text that is no JSON object or has more than metadata may have.
        """
        if self.metadata is None:
            return None
        try:
            return validate({"metadata": parse_json(self.metadata.encode())}, MetadataFilter).metadata
        except MalformedBody as error:
            detail = error.detail
        except InvalidRequest as error:
            detail = error.errors[0].detail
        raise InvalidRequest((FieldError("metadata", detail.replace("he body", "he text")),))


class MetadataFilter(BaseModel):
    """The object in a filter for sessions, with the limits of metadata."""

    metadata: Metadata


class ListRuns(QueryParameters):
    """A page of a session's runs, the last submitted first, and a filter for it."""

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=100, description="`next_cursor` of the previous page")
    status: RunStatus | None = None


class ListSummaries(QueryParameters):
    """A page of the versions of a session's summary: prepared ones first, then the newest numbers."""

    limit: int = Field(50, ge=1, le=200)
    cursor: int | None = Field(None, ge=1, le=LAST_POSITION, description="`next_cursor` of the previous page")


class ListMessages(QueryParameters):
    """A page of the history. `after` and `before` are positions, and both are exclusive.

    `cursor` narrows that range: the list continues behind the page that returned the cursor, in the requested order.
    """

    limit: int = Field(50, ge=1, le=200)
    after: int | None = Field(None, ge=0, le=LAST_POSITION)
    before: int | None = Field(None, ge=1, le=LAST_POSITION)
    cursor: int | None = Field(None, ge=0, le=LAST_POSITION, description="`next_cursor` of the previous page")
    order: Literal["asc", "desc"] = "asc"
    include: Literal["reasoning"] | None = Field(None, description="`reasoning`: what models wrote before messages")

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the exclusive positions (after, before) with the cursor applied."""
        if self.cursor is None:
            return self.after, self.before
        if self.order == "asc":
            return max(self.cursor, self.after or 0), self.before
        return self.after, self.cursor if self.before is None else min(self.cursor, self.before)

    def reasoning(self, *, reads_all: bool) -> Literal["none", "shown", "all"]:
        """Return which reasoning to read: that for users, or with `reads_all` that for operators too."""
        if self.include is None:
            return "none"
        return "all" if reads_all else "shown"


POSITION_WORDS = (
    "Must be a position, a whole number. Write a day in the query (`before:2026-03-14`) or in `since` and `until`."
)


def _read_position(value: object) -> object:
    """Return `value` unchanged. Raises ValueError for text that is no whole number.

    Such text is usually a day; the error says where to write days.
    """
    if isinstance(value, str) and not value.strip().removeprefix("-").isdecimal():
        raise ValueError(POSITION_WORDS)
    return value


def _check_name(name: str) -> str:
    if is_blank(name):
        raise ValueError("Is blank. Leave it out, or write a name.")
    return name


Name: TypeAlias = Annotated[str, AfterValidator(_check_name), Field(max_length=200, json_schema_extra={"minLength": 1})]


class SearchHistory(QueryParameters):
    """A search and its filters. `after` and `before` are positions, and both are exclusive."""

    q: str = Field(
        min_length=1,
        max_length=1_000,
        description='words; "words in quotes" must appear in the text exactly so; filters are `author:`, `role:`, '
        "`tool:`, and with a day `on:`, `before:` and `after:`",
        examples=["gateway port", 'author:anna "release notes"'],
    )
    limit: int = Field(10, ge=1, le=50)
    role: Literal["user", "assistant", "tool"] | None = None
    tool: Name | None = Field(None, description="find only results of this tool")
    author: Name | None = None
    after: Annotated[int, Field(ge=0, le=LAST_POSITION), BeforeValidator(_read_position)] | None = None
    before: Annotated[int, Field(ge=1, le=LAST_POSITION), BeforeValidator(_read_position)] | None = None
    since: Moment | None = Field(None, description="find only messages written at this time or later")
    until: Moment | None = Field(None, description="find only messages written before this time")

    def as_query(self, today: date) -> HistoryQuery:
        """Return the search; `today` is the day that its words, such as "yesterday", refer to."""
        only = HistoryFilter(
            role=None if self.role is None else Role(self.role),
            tool=_clean(self.tool),
            author=_clean(self.author),
            after=self.after,
            before=self.before,
            since=self.since,
            until=self.until,
        )
        return HistoryQuery(clean_text(self.q), self.limit, only, today)


def _clean(text: str | None) -> str | None:
    return None if text is None else clean_text(text)
