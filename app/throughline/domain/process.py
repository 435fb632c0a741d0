"""The words for a process of the service: what it is, and what it says of itself now and then."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import ProcessId


class ProcessKind(StrEnum):
    """What was started; `command` is a command that serves its own user, such as `throughline chat`."""

    SERVE = "serve"
    WORKER = "worker"
    SLACK = "slack"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Process:
    """One start of a process. `name` is in the runs it holds; no other start has the same."""

    id: ProcessId
    kind: ProcessKind
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What a process has in hand; `concurrency` 0 means that it takes no turns, or those of one user only.

    `is_claiming`: it looks for turns, and lately was answered. `is_listening`: notifications reach it.
    """

    concurrency: int
    open_turns: int
    jobs_in_hand: int
    is_claiming: bool
    is_listening: bool
