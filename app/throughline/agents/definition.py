"""An agent as the rest of the service uses it: one frozen value, independent of the agent file's form."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from throughline.context.policy import ContextPolicy, Range
from throughline.domain.model_parameters import NO_PARAMETERS, ModelParameters


class RecallReach(StrEnum):
    """Scope of the recall tools: the run's own session, or all sessions of its owner."""

    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class FallbackModel:
    """A model that takes an agent's calls while the models before it are unavailable.

    `window` is this model's window in tokens as the agent file sets it; None: the window that the service finds out.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    window: int | None = None
    parameters: ModelParameters = NO_PARAMETERS


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """What each user may spend on an agent in a day of UTC, summaries included; None for no limit.

    `usd` are US dollars, `tokens` those read and written together.
    """

    usd: Annotated[float | None, Range(gt=0, le=1_000_000)] = None
    tokens: Annotated[int | None, Range(ge=1, le=10**12)] = None


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """Model, prompt, tools and context policy of a named agent.

    - `model`: '' stands for the setting `default_llm`.
    - `base_url`: an OpenAI-compatible server, None for the provider's own. `api_key_env` names the environment variable
      with the key for it, or for the provider's own server.
    - `context`: the policy, with the precedence (agent, setting, default) already applied.
    - `max_tool_rounds`: steps of a turn that may call tools; afterwards the model is called once without tools. The
      default is enough for a search with a few follow-ups, and limits the cost of a model that repeats itself.
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
    parameters: ModelParameters = NO_PARAMETERS
    fallback_models: tuple[FallbackModel, ...] = ()
    daily_budget: DailyBudget = DailyBudget()
    is_fallback: bool = False

    def fallbacks(self) -> Iterator["AgentDefinition"]:
        """Yield one copy of the agent for each fallback model, in order.

        A copy uses that model, is marked by `is_fallback`, and keeps only the later fallback models.
        """
        for number, fallback in enumerate(self.fallback_models, start=1):
            yield replace(
                self,
                model=fallback.model,
                base_url=fallback.base_url,
                api_key_env=fallback.api_key_env,
                parameters=fallback.parameters,
                context=replace(self.context, window=fallback.window),
                fallback_models=self.fallback_models[number:],
                is_fallback=True,
            )
