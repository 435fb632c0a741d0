"""What a service says of itself: its agents, its health, and what is wrong with a request."""

from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from throughline.wire.shape import Shape, one_of


class AgentOut(Shape):
    """An agent that sessions can be opened with; `context` is its context policy."""

    name: str
    description: str
    model: str = Field(description="empty: the setting `default_llm`")
    tools: list[str]
    max_tool_rounds: int
    context: dict[str, JsonValue]


class AgentList(Shape):
    """All agents by name."""

    data: list[AgentOut]


class Health(Shape):
    """Whether the service can do its work, check by check."""

    status: Annotated[str, one_of("ok", "degraded", "unavailable")]
    version: str
    checks: dict[str, bool]
    reasons: dict[str, str] = Field(
        default_factory=dict, description="of checks that fail: since when and why, where it is known"
    )


class FieldProblem(Shape):
    """One wrong value."""

    field: str
    detail: str


class Problem(Shape):
    """RFC 9457: what is wrong and what to do. `type` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list, description="for /problems/invalid_input")
    run_id: str | None = Field(None, description="the run that is meant, where there is one")
