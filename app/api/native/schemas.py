"""What clients get, for the OpenAPI document only: answers are rendered by `app.domain.wire`, not validated again."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from app.context.explain import ContextReport

Source = Literal["web", "slack", "worker", "cli", "api"]


class SessionOut(BaseModel):
    """A session."""

    id: str
    agent: str
    title: str
    source: Source
    message_count: int
    summarized_count: int = Field(description="messages the summary stands for")
    created_at: AwareDatetime
    updated_at: AwareDatetime
    metadata: dict[str, JsonValue]
    archived: bool


class SessionPage(BaseModel):
    """Sessions, newest first."""

    data: list[SessionOut]
    next_cursor: str | None


class ToolCallOut(BaseModel):
    """A tool call; `arguments` is the text the model wrote."""

    id: str
    name: str
    arguments: str


class MessageOut(BaseModel):
    """A stored message."""

    id: str
    position: int
    role: Literal["user", "assistant", "tool"]
    content: str | list[dict[str, JsonValue]]
    tool_calls: list[ToolCallOut]
    tool_call_id: str | None
    name: str | None
    run_id: str | None
    author: str | None
    token_count: int
    source: Source
    pinned: bool
    created_at: AwareDatetime
    metadata: dict[str, JsonValue]


class MessagePage(BaseModel):
    """Messages by position."""

    data: list[MessageOut]
    next_cursor: str | None = Field(description="hand it in as `cursor` to continue in the same order")


class PinnedGroup(BaseModel):
    """The messages a pin holds: the one that was named, and with a tool call all its results."""

    data: list[MessageOut]


class HitOut(BaseModel):
    """A message that matches."""

    session_id: str
    score: float = Field(description="to compare within one answer only; 0 where nothing was ranked")
    snippet: str = Field(description="the piece of the text that matches best, on one line")
    highlights: list[tuple[int, int]] = Field(description="the places in the snippet that match: from, to")
    link: str = Field(description="the message at its place in the history")
    message: MessageOut


class SearchOut(BaseModel):
    """The best matches first."""

    data: list[HitOut]
    is_complete: bool = Field(description="false where the newest messages could not be looked at in time")


class UsageOut(BaseModel):
    """Tokens as the provider reported them."""

    input_tokens: int | None
    output_tokens: int | None


class ErrorOut(BaseModel):
    """Why a run failed."""

    type: str
    detail: str


class RunOut(BaseModel):
    """A run: one user message and what follows until the answer."""

    id: str
    session_id: str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    source: Source
    author: str | None
    actor: str | None
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    attempt: int
    cancel_requested: bool
    usage: UsageOut
    error: ErrorOut | None
    message_id: str | None


class Accepted(BaseModel):
    """A run that was accepted, or that was found."""

    run: RunOut


class TurnOut(BaseModel):
    """A finished turn: the answer, and how full the context is now."""

    run: RunOut
    message: MessageOut | None
    context: ContextReport | None


class SummaryVersionOut(BaseModel):
    """A version of a session's summary. A prepared one is written and not yet used; its number comes with that."""

    id: str
    version: int | None
    state: Literal["prepared", "adopted", "superseded"]
    text: str = Field(description="as the model gets it, the ledger included")
    stretches: int = Field(description="of how many stretches the text is made")
    token_count: int
    through_id: str | None
    through_position: int
    model: str
    created_at: AwareDatetime


class SummaryList(BaseModel):
    """Versions, newest first."""

    data: list[SummaryVersionOut]
    next_cursor: str | None


class SummarizeOut(BaseModel):
    """What a forced summary came to."""

    outcome: Literal["adopted", "skipped", "failed"]
    detail: str
    tokens_before: int
    tokens_after: int
    session: SessionOut


class StretchToSummarise(BaseModel):
    """Messages that would be summarized before the model is called."""

    from_position: int
    through_position: int
    message_count: int


class PreviewedMessage(BaseModel):
    """One stored message and how the prompt would show it; of those before the cursor only pins are listed."""

    position: int
    role: Literal["user", "assistant", "tool"]
    form: Literal["whole", "pruned", "truncated", "folded", "summarised", "trimmed", "left_out"]
    reason: str = Field(description="why it is not shown whole, or why it is; may be empty")
    tokens: int = Field(description="what it takes in the prompt, 0 where it is not shown")
    pinned: bool


class PreviewOut(BaseModel):
    """The plan for one model call; nothing of it has been done. Tokens are the model's."""

    action: Literal["none", "prune", "compact", "adopt", "fit"]
    cause: Literal["threshold", "messages", "tokens", "manual", "overflow"] | None = Field(
        description="why room would be made"
    )
    fired: list[str] = Field(description="the rungs of the ladder that would change the view, in their order")
    tokens: int
    window: int
    usage_percent: float
    threshold_tokens: int
    budget_tokens: int = Field(description="the window less the reserve for the answer")
    floor_too_high: bool = Field(description="what always stays leaves too little room for a compaction to last")
    summarised_through: int = Field(description="the position the summary in use reaches, 0 where there is none")
    summarise: StretchToSummarise | None
    messages: list[PreviewedMessage]


class MemoryOut(BaseModel):
    """A kept text; `score` is set where it was searched for, to compare within one answer only."""

    id: str
    text: str
    metadata: dict[str, JsonValue]
    created_at: AwareDatetime
    updated_at: AwareDatetime
    score: float | None


class MemoryPage(BaseModel):
    """Memories, newest first."""

    data: list[MemoryOut]
    next_cursor: str | None


class MemoryList(BaseModel):
    """Memories, the best match first, and what they were found by: meaning and words together, or words alone."""

    data: list[MemoryOut]
    by: Literal["vector", "text"]


class AgentOut(BaseModel):
    """An agent that sessions can be opened with; `context` is its context policy."""

    name: str
    description: str
    model: str
    tools: list[str]
    max_tool_rounds: int
    context: dict[str, JsonValue]


class AgentList(BaseModel):
    """All agents by name."""

    data: list[AgentOut]


class Health(BaseModel):
    """Whether the service can do its work, check by check."""

    status: Literal["ok", "unavailable"]
    version: str
    checks: dict[str, bool]


class FieldProblem(BaseModel):
    """One wrong value."""

    field: str
    detail: str


class Problem(BaseModel):
    """RFC 9457: what is wrong and what to do. `type` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list, description="for /problems/invalid_input")
    run_id: str | None = Field(None, description="the run that is meant, where there is one")
