"""The window of a model, with its origin: operators are shown whether it is known or assumed."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.prompt import Usage


class WindowOrigin(StrEnum):
    """Where the number of a window comes from.

    `LEARNED`: a provider's refusal named it. `SERVER`: the model's server reports it. `PROFILE`: LangChain's profile of
    the model. `TABLE`: this service's table of well-known models. `UNKNOWN`: the number is assumed.
    """

    AGENT_FILE = "agent file"
    LEARNED = "learned"
    SERVER = "server"
    PROFILE = "profile"
    TABLE = "table"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A window in tokens. With the origin `unknown` it is assumed.

    `server` is the kind of server that was recognised, such as `vLLM`; '' if none was. `neighbour` is the
    table's name whose window was taken although the model's name goes on within the word: it may be misspelt.
    """

    tokens: int
    origin: WindowOrigin
    server: str = ""
    neighbour: str = ""

    @property
    def is_assumed(self) -> bool:
        """Whether the number is assumed, because no source names the model's window."""
        return self.origin is WindowOrigin.UNKNOWN


class ToolUse(StrEnum):
    """What came of the tool that the model was asked to call. `REFUSED`: the provider rejected the request with it."""

    CALLED = "called"
    NOT_CALLED = "not called"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The model of an agent and how its prompts are counted. `address` is '' for the provider's default.

    `has_tools`: the agent's turns need tools. `summary_seconds`: what a turn waits for a summary by this model;
    None if another model writes the agent's summaries.

    `window` is that of the agent, `model_window` that of the model: they differ if the agent's file sets one.
    """

    agent: str
    model: str
    address: str
    window: ModelWindow
    model_window: ModelWindow
    counter: str
    has_tools: bool = False
    summary_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """One call, with what it took and what the provider reported.

    - `counted_tokens`: the tokens of the prompt by the service's count.
    - `first_text_seconds`: until the first text; None if the answer had none.
    - `text_seconds`, `text_tokens`, `pieces`: the time from the first piece of text to the last, the tokens of the text
      by our count, and the number of its pieces.
    - `refusal`: why the provider refused the tool; '' if it did not.
    """

    counted_tokens: int
    usage: Usage
    first_text_seconds: float | None
    text_seconds: float
    text_tokens: int
    pieces: int
    finish_reason: str
    tools: ToolUse
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The check of an agent's model. Either the call was answered, or `failure` says why not and what to do."""

    checked: CheckedModel
    call: CheckedCall | None
    failure: str = ""

    @property
    def lacks_tools(self) -> bool:
        """Whether the agent has tools that its model refuses."""
        return self.checked.has_tools and self.call is not None and self.call.tools is ToolUse.REFUSED
