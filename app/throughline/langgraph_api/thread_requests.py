"""The bodies and queries of requests for threads, in LangGraph's form."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, JsonValue

from throughline.http.fields import STRICT, Metadata, QueryParameters
from throughline.langgraph_api.request import Names

MOST_SEARCHED = 1_000
"""Threads that a search looks at, the last updated first."""

Status: TypeAlias = Literal["idle", "busy", "interrupted", "error"]
Select: TypeAlias = Annotated[list[str], Field(max_length=20)]


class CreateThread(BaseModel):
    """A new thread. `graph_id` or `assistant_id` among its metadata name the agent."""

    model_config = STRICT

    thread_id: str | None = Field(None, json_schema_extra={"format": "uuid"})
    metadata: Metadata | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: JsonValue = Field(None, description="not served: threads stay until they are deleted")
    supersteps: JsonValue = Field(None, description="not served: the state of a thread cannot be written")


class ChangeThread(BaseModel):
    """Metadata to add to those of a thread."""

    model_config = STRICT

    metadata: Metadata = Field(default_factory=dict)
    ttl: JsonValue = Field(None, description="not served: threads stay until they are deleted")


class CountThreads(BaseModel):
    """Filters of threads."""

    model_config = STRICT

    metadata: Metadata | None = None
    status: Status | None = None
    ids: Annotated[list[str] | None, Field(max_length=MOST_SEARCHED)] = None
    values: JsonValue = Field(None, description="not served: a search for messages is GET /v1/search")


class SearchThreads(CountThreads):
    """A page of the list of threads, the last updated first."""

    limit: int = Field(10, ge=1, le=100)
    offset: int = Field(0, ge=0, le=MOST_SEARCHED)
    sort_by: Literal["updated_at"] | None = None
    sort_order: Literal["desc"] | None = None
    select: Select | None = None
    extract: JsonValue = Field(None, description="not served")


class ReadCheckpoint(BaseModel):
    """The checkpoint whose state is read."""

    model_config = STRICT

    checkpoint: dict[str, JsonValue]
    subgraphs: bool | None = None
    select: Select | None = None


class ReadHistory(BaseModel):
    """A page of a thread's states at the ends of turns, the newest first."""

    model_config = STRICT

    limit: int = Field(10, ge=1, le=100)
    before: str | dict[str, JsonValue] | None = None
    metadata: dict[str, JsonValue] | None = Field(None, description="not served")
    checkpoint: dict[str, JsonValue] | None = Field(None, description="taken without effect: there are no subgraphs")
    select: Select | None = None


class ReadState(QueryParameters):
    """The members of a state that are wanted."""

    select: Names | None = None
    subgraphs: bool | None = Field(None, description="taken without effect: there are no subgraphs")


class ListHistory(QueryParameters):
    """A page of a thread's states at the ends of turns, the newest first."""

    limit: int = Field(10, ge=1, le=100)
    before: str | None = Field(None, description="the id of a checkpoint")
