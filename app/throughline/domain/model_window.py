"""The window of a model, with its origin: operators are shown whether it is known or assumed."""

from dataclasses import dataclass
from enum import StrEnum


class WindowOrigin(StrEnum):
    """Where the number of a window comes from."""

    AGENT_FILE = "agent file"
    LEARNED = "learned"
    SERVER = "server"
    PROFILE = "profile"
    TABLE = "table"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A window in tokens. With the origin `unknown` it is assumed.

    `server` is the kind of server that was recognised, such as `vLLM`; '' if none was.
    """

    tokens: int
    origin: WindowOrigin
    server: str = ""

    @property
    def is_assumed(self) -> bool:
        """Whether nothing says what the model takes."""
        return self.origin is WindowOrigin.UNKNOWN
