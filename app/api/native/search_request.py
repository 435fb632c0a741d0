"""What a search of the history may be asked with; a value that could narrow nothing down is refused in words."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from app.api.native.requests import MAX_POSITION, Moment, QueryParameters
from app.domain.text import is_blank

POSITION_WORDS = (
    "Must be a position, a whole number. A day goes into the query: `before:2026-03-14`, or into `since` and `until`."
)


def _read_position(value: object) -> object:
    """Text that is no number is most often a day: say where days go."""
    if isinstance(value, str) and not value.strip().removeprefix("-").isdecimal():
        raise ValueError(POSITION_WORDS)
    return value


def _check_name(name: str) -> str:
    if is_blank(name):
        raise ValueError("Holds no name. Leave it out, or write one.")
    return name


Position: TypeAlias = Annotated[int, BeforeValidator(_read_position)]
Name: TypeAlias = Annotated[str, AfterValidator(_check_name), Field(max_length=200, json_schema_extra={"minLength": 1})]


class SearchHistory(QueryParameters):
    """What to look for, and which messages may be found; `after` and `before` are positions, neither is included."""

    q: str = Field(
        min_length=1,
        max_length=1_000,
        description='words; "words in quotes" must stand so in the text; `author:`, `role:`, `tool:`, and with a day '
        "`on:`, `before:` and `after:` narrow it down",
        examples=["gateway port", 'author:anna "release notes"'],
    )
    limit: int = Field(10, ge=1, le=50)
    role: Literal["user", "assistant", "tool"] | None = None
    tool: Name | None = Field(None, description="the tool whose results may be found")
    author: Name | None = None
    after: Annotated[Position, Field(ge=0, le=MAX_POSITION)] | None = None
    before: Annotated[Position, Field(ge=1, le=MAX_POSITION)] | None = None
    since: Moment | None = Field(None, description="written then or later")
    until: Moment | None = Field(None, description="written before then")
