"""A tool call as a tool sees it, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass

from throughline.domain.ids import RunId, SessionId, UserId


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """How much a result may take of the prompt: `tokens`, as the agent's own counter counts them."""

    tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the call.

    `idempotency_key` is `run:tool_call_id`: no other call has it, and a call that is made again after a crash has the
    same. `may_recall_all`: recall tools may reach all sessions of the owner, not this one alone. A result larger than
    `room` is not shown whole; None: not known.
    """

    session_id: SessionId
    owner_id: UserId
    run_id: RunId
    idempotency_key: str
    may_recall_all: bool = False
    room: ResultRoom | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's answer for the model; an error is an answer too."""

    text: str
    is_error: bool = False
