"""The window of a model, with its origin: operators are shown whether it is known or assumed."""

from dataclasses import dataclass
from enum import StrEnum


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
