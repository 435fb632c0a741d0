"""An agent as the rest of the service sees it: one frozen value, whatever its file looked like."""

from dataclasses import dataclass, field
from enum import StrEnum

from app.context.policy import ContextPolicy


class RecallReach(StrEnum):
    """What the recall tools reach: the run's own session, or all sessions of its owner."""

    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """Model, prompt, tools and context policy under a name.

    An empty `model` is the setting `default_llm`; `base_url` is an OpenAI-compatible server, None for the provider's
    own. `context` has the precedence (agent, setting, default) already applied.
    """

    name: str
    model: str = ""
    base_url: str | None = None
    system_prompt: str = ""
    tools: tuple[str, ...] = ()
    max_tool_rounds: int = 10
    context: ContextPolicy = field(default_factory=ContextPolicy)
    description: str = ""
    recall: RecallReach = RecallReach.SESSION
