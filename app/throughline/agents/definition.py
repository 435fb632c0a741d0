"""An agent as the rest of the service uses it: one frozen value, independent of the agent file's form."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from throughline.context.policy import ContextPolicy, Range
from throughline.domain.prompt import NO_PARAMETERS, ModelParameters, OverrideField, ResponseFormat, ToolSpec
from throughline.domain.tool_server import ToolServer


class RecallReach(StrEnum):
    """Scope of the recall tools: the run's own session, or all sessions of its owner."""

    SESSION = "session"
    USER = "user"


class ReasoningUse(StrEnum):
    """What becomes of the reasoning of an agent's models.

    - SHOW: users see it while it is written, and may read it later.
    - STORE: it is stored for operators, and users do not see it.
    - DROP: it is not stored, except for what the provider wants back, until the run ends.
    """

    SHOW = "show"
    STORE = "store"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model that may answer instead of the agent's: a fallback model, or one that a request may name.

    `window` is this model's window in tokens as the agent file sets it; None: the window that the service finds out.
    `token_counter` counts for it, '' for the agent's counter.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    window: int | None = None
    parameters: ModelParameters = NO_PARAMETERS
    token_counter: str = ""


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """What each user may spend on an agent in a day of UTC, summaries included; None for no limit.

    `usd` are US dollars, `tokens` those read and written together.
    """

    usd: Annotated[float | None, Range(gt=0, le=1_000_000)] = None
    tokens: Annotated[int | None, Range(ge=1, le=10**12)] = None


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """Model, prompt, tools and context policy of a named agent. `yaml_schema.py` says what the fields of a file mean.

    - `model`: '' stands for the setting `default_llm`. `base_url`: None stands for the provider's own server.
    - `context`: the policy, with the precedence (agent, setting, default) already applied.
    - `max_tool_rounds`: the default is enough for a search with a few follow-ups, and limits the cost of a model that
      repeats itself. That of `max_client_rounds` is enough for long turns of coding clients.
    - `instructions`, `response_format`, `request_tools`, `max_output_tokens`, `tool_choice`, `allowed_tools`: those of
      a turn's request. An agent file has none of them.
    - `graph`: the LangGraph graph that answers in place of one model with tools, as `module:attribute`; '' for none.
    - `recall`: limited to the session unless an agent is given more, because messages elsewhere may have been said to
      other people.
    """

    name: str
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    system_prompt: str = ""
    tools: tuple[str, ...] = ()
    max_tool_rounds: Annotated[int, Range(ge=0, le=100)] = 10
    context: ContextPolicy = field(default_factory=ContextPolicy)
    description: str = ""
    recall: RecallReach = RecallReach.SESSION
    reasoning: ReasoningUse = ReasoningUse.SHOW
    parameters: ModelParameters = NO_PARAMETERS
    fallback_models: tuple[OtherModel, ...] = ()
    fallback_after_seconds: Annotated[float, Range(gt=0, le=600)] = 30.0
    daily_budget: DailyBudget = DailyBudget()
    is_fallback: bool = False
    overrides: frozenset[OverrideField] = frozenset()
    strict_overrides: bool = False
    override_models: tuple[OtherModel, ...] = ()
    instructions: str = ""
    response_format: ResponseFormat | None = None
    request_tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    tool_choice: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    needs_approval: frozenset[str] = frozenset()
    mcp_servers: tuple[ToolServer, ...] = ()
    client_tools: bool = True
    max_client_rounds: Annotated[int, Range(ge=1, le=10_000)] = 500
    wait_seconds: Annotated[float, Range(ge=1, le=30 * 86_400)] = 86_400.0
    graph: str = ""

    def asks_approval(self, tool: str) -> bool:
        """Return whether calls of the tool, by the name that the model knows, wait until a person approves them."""
        patterns = (f"{server.name}__{pattern}" for server in self.mcp_servers for pattern in server.needs_approval)
        return tool in self.needs_approval or any(fnmatchcase(tool, pattern) for pattern in patterns)

    def with_model(self, other: OtherModel) -> "AgentDefinition":
        """Return the agent with another model, and that model's window and parameters."""
        counter = other.token_counter or self.context.token_counter
        return replace(
            self,
            model=other.model,
            base_url=other.base_url,
            api_key_env=other.api_key_env,
            parameters=other.parameters,
            context=replace(self.context, window=other.window, token_counter=counter),
        )

    def variants(self) -> Iterator["AgentDefinition"]:
        """Yield the agent with its own model, then with each model that a request may name."""
        yield self
        for other in self.override_models:
            yield self.with_model(other)

    def fallbacks(self) -> Iterator["AgentDefinition"]:
        """Yield one copy of the agent for each fallback model, in order.

        A copy uses that model, is marked by `is_fallback`, and keeps only the later fallback models.
        """
        for number, fallback in enumerate(self.fallback_models, start=1):
            later = self.fallback_models[number:]
            yield replace(self.with_model(fallback), fallback_models=later, is_fallback=True)
