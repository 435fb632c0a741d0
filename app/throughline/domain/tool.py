"""The context that a tool receives with a call, and the result that it returns."""

from collections.abc import Callable
from dataclasses import dataclass

from throughline.domain.ids import RunId, SessionId, UserId

ASK_USER = "ask_user"
"""Name of the built-in tool whose calls wait for a person's answer."""


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """The space that a tool result may take in the prompt: `tokens`, as the agent's own counter `count` counts them."""

    tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Information about a tool call that the tool may use.

    `idempotency_key` is `run:tool_call_id`: unique per call, and the same if the call is repeated after a crash. With
    `may_recall_all` recall tools may read all sessions of the owner, else only this one. A result larger than `room` is
    shortened in the prompt; None if the limit is unknown.
    """

    session_id: SessionId
    owner_id: UserId
    run_id: RunId
    idempotency_key: str
    may_recall_all: bool = False
    room: ResultRoom | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's result for the model; an error is a result too."""

    text: str
    is_error: bool = False
