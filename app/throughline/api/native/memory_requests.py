"""Request bodies and query parameters of the memory routes."""

from pydantic import BaseModel, Field

from throughline.api.native.query_parameters import QueryParameters
from throughline.api.native.requests import STRICT, Metadata, Text
from throughline.domain.memory import MAX_MEMORY_CHARACTERS


class CreateMemory(BaseModel):
    """A text to store as a memory."""

    model_config = STRICT

    text: Text = Field(max_length=MAX_MEMORY_CHARACTERS, examples=["Anna's cat is called Miso."])
    metadata: Metadata = Field(default_factory=dict)


class ChangeMemory(BaseModel):
    """Changes to a memory. An omitted field stays as it is; metadata is replaced as a whole."""

    model_config = STRICT

    text: Text = Field("-", max_length=MAX_MEMORY_CHARACTERS)
    metadata: Metadata = Field(default_factory=dict)


class SearchMemories(BaseModel):
    """A search in the caller's memories."""

    model_config = STRICT

    query: Text = Field(max_length=1_000, examples=["the name of the cat"])
    limit: int = Field(10, ge=1, le=50, description="default: 10")


class ListMemories(QueryParameters):
    """A page of the list of memories, newest first."""

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=512, description="`next_cursor` of the previous page")
