"""An agent as the rest of the service sees it: one frozen value, whatever its file looked like."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from throughline.context.policy import ContextPolicy, Range


class RecallReach(StrEnum):
    """What the recall tools reach: the run's own session, or all sessions of its owner."""

    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """Model, prompt, tools and context policy under a name.

    An empty `model` is the setting `default_llm`; `base_url` is an OpenAI-compatible server, None for the provider's
    own, and `api_key_env` names the environment variable with the key for it. `context` has the precedence (agent,
    setting, default) already applied. `max_tool_rounds` are the steps of a turn that may call tools (chosen: enough for
    a search with a few follow-ups; it bounds what a model in a circle costs), after which it is called once without.
    `recall` stays in the session unless an agent is given more: what was said elsewhere may have been said to others.
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
