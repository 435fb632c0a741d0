"""A process of the service and the state that it reports regularly in the table `processes`."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import ProcessId


class ProcessKind(StrEnum):
    """The kind of a process; `command` is a command that serves its own user, such as `throughline chat`."""

    SERVE = "serve"
    WORKER = "worker"
    SLACK = "slack"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Process:
    """One start of a process. Its unique `name` is stored in the runs that the process holds."""

    id: ProcessId
    kind: ProcessKind
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The current work of a process; `concurrency` 0 means that it takes no turns, or only those of one user.

    `is_claiming`: its claim loop is open and the database answered lately. `is_listening`: it receives notifications.
    """

    concurrency: int
    open_turns: int
    jobs_in_hand: int
    is_claiming: bool
    is_listening: bool
