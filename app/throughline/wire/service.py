"""JSON shapes of the service itself: its agents, its health, and problems with requests."""

from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from throughline.domain.model_window import WindowOrigin
from throughline.wire.json_shape import Id, Shape, one_of


class AgentOut(Shape):
    """An agent that sessions can be opened with; `context` is its context policy."""

    name: str
    description: str
    model: str = Field(description="empty: the model of the setting `default_llm`")
    window: int = Field(description="tokens that the agent's next turn may use, prompt and answer together")
    window_from: Annotated[str, one_of(*WindowOrigin)] = Field(
        description="where `window` comes from; `learned`: a provider's refusal named it; `unknown`: it is assumed"
    )
    tools: list[str]
    max_tool_rounds: int
    max_client_rounds: int
    reasoning: str = Field("show", description="what becomes of what models write before an answer: show, store, drop")
    parameters: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="what is sent with every call of the model; of headers and body only the names",
    )
    daily_budget: dict[str, JsonValue] = Field(
        default_factory=dict, description="what each user may spend in a day: `usd` and `tokens`, null without a limit"
    )
    overrides: list[str] = Field(default_factory=list, description="what a request may change for its turn")
    override_models: list[str] = Field(default_factory=list, description="models that a request may name")
    context: dict[str, JsonValue]


class AgentList(Shape):
    """All agents, ordered by name."""

    data: list[AgentOut]


class Health(Shape):
    """Whether the answering process can work, with the result of each check."""

    status: Annotated[str, one_of("ok", "degraded", "unavailable")]
    version: str
    checks: dict[str, bool]
    reasons: dict[str, str] = Field(
        default_factory=dict, description="for failing checks: since when and why, if known"
    )


class FieldProblem(Shape):
    """One wrong value in a request."""

    field: str
    detail: str


class ProblemKindOut(Shape):
    """What all problems with the same `type` share: the cause, and what to do about it."""

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    cause: str
    remedy: str
    page: str | None = Field(description="the page of the manual that says more, below the project's folder; or null")


class Problem(Shape):
    """Problem document of RFC 9457: what is wrong and what to do. `type` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list, description="for /problems/invalid_input")
    run_id: Id | None = Field(None, description="the run that the problem is about, if any")
    provider_message: str | None = Field(
        None, description="what the model's provider itself said, for keys with the scope `operate`"
    )
