"""JSON shapes of sessions, of the versions of their summaries, and of memories."""

from typing import Annotated

from pydantic import AliasChoices, Field, JsonValue

from throughline.domain.message import Source
from throughline.domain.summary import SummaryState
from throughline.wire.json_shape import Id, Shape, Time, one_of
from throughline.wire.messages import CITATIONS, CitationOut


class MemoryOut(Shape):
    """A memory: a short text that a user stored."""

    id: Id
    text: str
    metadata: dict[str, JsonValue]
    created_at: Time
    updated_at: Time
    score: float | None = Field(description="only in search results; comparable within one response")


class MemoryPage(Shape):
    """A page of memories, newest first."""

    data: list[MemoryOut]
    next_cursor: str | None


class MemoryList(Shape):
    """Memories found by a search, the best match first.

    `by` is how they were found: by meaning and words together, or by words alone.
    """

    data: list[MemoryOut] = Field(validation_alias=AliasChoices("data", "memories"))
    by: Annotated[str, one_of("vector", "text")]


class SessionOut(Shape):
    """A conversation of one owner with one agent, without its messages."""

    id: Id
    agent: str
    title: str
    source: Annotated[str, one_of(*Source)]
    message_count: int
    summarized_count: int = Field(
        validation_alias=AliasChoices("summarized_count", "summary_through_position"),
        description="number of messages that the summary covers",
    )
    created_at: Time
    updated_at: Time
    external_id: str | None = Field(description="the caller's own id for the session, unique for its owner")
    metadata: dict[str, JsonValue]
    archived: bool
    summary_instructions: str = Field(description="instructions for every summary of the session")


class CopiesOut(Shape):
    """A session with copies of another session's messages."""

    session_id: Id
    message_count: int = Field(description="number of the copies")


class DeletedSessionOut(Shape):
    """A deleted session of which imports of an export have kept copies."""

    id: Id
    copies: list[CopiesOut] = Field(description="sessions that a user has imported: they keep their copies")


class SessionPage(Shape):
    """A page of sessions, the last updated first."""

    data: list[SessionOut]
    next_cursor: str | None


class SummaryVersionOut(Shape):
    """A version of a session's summary. A prepared version is not in use yet and gets its number when adopted."""

    id: Id
    version: int | None
    state: Annotated[str, one_of(*SummaryState)]
    text: str = Field(description="the text that the model reads, with the kept facts")
    segments: int = Field(description="number of segments in the text")
    token_count: int
    through_id: Id | None
    through_position: int
    model: str
    created_at: Time
    citations: list[CitationOut] = Field(default_factory=list, description=CITATIONS)


class SummaryList(Shape):
    """A page of summary versions: prepared ones first, then by number, the newest first."""

    data: list[SummaryVersionOut]
    next_cursor: str | None


class SpentOut(Shape):
    """The cost of calls to summary models."""

    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float = Field(description="seconds of all calls together")


class SummaryCostOut(Shape):
    """Estimate of what a summary on demand would read and cost. Text that is stored already costs nothing again."""

    from_position: int
    through_position: int
    message_count: int
    calls: int
    input_tokens: int
    output_tokens: int = Field(description="at most")
    seconds: float | None = Field(description="null if the session has no earlier summary to estimate from")


class SummarizeOut(Shape):
    """The result of a summary on demand, and the session afterwards."""

    outcome: Annotated[str, one_of("adopted", "skipped", "failed", "cancelled")] = Field(
        description="skipped: not worthwhile, or another summary came first; cancelled: by the agent's hook"
    )
    detail: str
    tokens_before: int
    tokens_after: int
    spent: SpentOut
    session: SessionOut
