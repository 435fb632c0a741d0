"""Query parameters of lists. Unknown ones are refused."""

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from throughline.domain.basic_types import JsonObject
from throughline.domain.run import RunStatus
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.http.body import parse_json, validate
from throughline.http.fields import MAX_POSITION, Metadata
from throughline.http.route_errors import FieldError, InvalidRequest, MalformedBody

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

    def ids(self) -> tuple[UUID, UUID] | None:
        """Return the smallest and the largest id that begin with `id_prefix`, None without this filter."""
        if self.id_prefix is None:
            return None
        digits = self.id_prefix.replace("-", "")
        return UUID(digits.ljust(ID_DIGITS, "0")), UUID(digits.ljust(ID_DIGITS, "f"))

    def read_metadata(self) -> JsonObject | None:
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
    cursor: int | None = Field(None, ge=1, le=MAX_POSITION, description="`next_cursor` of the previous page")


class ListMessages(QueryParameters):
    """A page of the history. `after` and `before` are positions, and both are exclusive.

    `cursor` narrows that range: the list continues behind the page that returned the cursor, in the requested order.
    """

    limit: int = Field(50, ge=1, le=200)
    after: int | None = Field(None, ge=0, le=MAX_POSITION)
    before: int | None = Field(None, ge=1, le=MAX_POSITION)
    cursor: int | None = Field(None, ge=0, le=MAX_POSITION, description="`next_cursor` of the previous page")
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
