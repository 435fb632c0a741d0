"""The state of the whole service as operators see it: processes, queues and held work."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from throughline.domain.basic_types import ProcessId
from throughline.domain.replica import ReplicaReport
from throughline.domain.tool_server import ServerReport
from throughline.domain.usage_report import CallPurpose


class ProcessKind(StrEnum):
    """The kind of a process; `command` is a command that serves its own user, such as `throughline chat`."""

    SERVE = "serve"
    WORKER = "worker"
    SLACK = "slack"
    COMMAND = "command"


AUTO_PROCESSES, MOST_PROCESSES = "auto", 256
"""The word for one process for each core, and the largest number of processes of one command."""


def check_process_count(text: str) -> str:
    """Return a number of processes as written: `auto` or a number. Raises ValueError for other texts."""
    is_short_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_PROCESSES))
    if text == AUTO_PROCESSES or (is_short_number and 1 <= int(text) <= MOST_PROCESSES):
        return text
    raise ValueError(f"{text[:20]!r} is neither `{AUTO_PROCESSES}` nor a number from 1 to {MOST_PROCESSES}")


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

    `is_claiming`: its claim loop is open and the database answered lately. `is_listening`: it receives notifications,
    or is set to poll alone.
    """

    concurrency: int
    open_turns: int
    jobs_in_hand: int
    is_claiming: bool
    is_listening: bool


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A process at its last heartbeat, by the database's clock.

    `is_silent`: heartbeats are overdue, so it may have died.
    """

    process: Process
    state: ProcessState
    started_at: datetime
    heartbeat_at: datetime
    up_seconds: float
    since_heartbeat_seconds: float
    is_silent: bool

    @property
    def takes_turns(self) -> bool:
        """Whether this process can take waiting turns."""
        return self.state.is_claiming and not self.is_silent


@dataclass(frozen=True, slots=True)
class QueueState:
    """State of a queue: the number of waiting items, and the seconds that the oldest has waited, None if empty."""

    waiting: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class HeldRuns:
    """The running turns of one process. The leases of `expired` turns have ended, so any worker may claim them.

    `lease_seconds` is the time left until the first lease ends, negative if it has ended.
    """

    worker: str
    runs: int
    expired: int
    lease_seconds: float
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """Work of one kind: waiting, in progress, and finally failed in the last 24 hours.

    `retrying` counts the waiting items that have failed before.
    """

    kind: str
    line: QueueState
    in_hand: int
    failed: int
    retrying: int = 0


@dataclass(frozen=True, slots=True)
class ModelBreaker:
    """The circuit breaker of a model in one process, for its answers or for its summaries.

    `state` is closed, open or half_open. `retry_after_seconds` is the rest of the cool-down, 0 unless open.
    """

    model: str
    purpose: CallPurpose
    state: str
    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class AgentOrigin:
    """Where the definition of an agent in use comes from.

    `file` is the name of its file in AGENTS_DIR, None for a shipped agent. `read_at` is the time at which this
    definition was read first, None if it was read from no file.
    """

    agent: str
    file: str | None
    read_at: datetime | None


@dataclass(frozen=True, slots=True)
class AgentFileError:
    """Why an agent file cannot be used; `file` is None if the error is not one file's alone."""

    file: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class RefusedAgentFiles:
    """The errors of agent files that were read `at` this time. The agents in use stay as they were before."""

    at: datetime
    errors: tuple[AgentFileError, ...]


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The agents of one process with their files. `refused` is None if the files as they are now are in use."""

    agents: tuple[AgentOrigin, ...]
    refused: RefusedAgentFiles | None


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A snapshot of the service's state.

    `held` lists processes with expired leases first. `slack` is None if Slack is not used. `database` names the
    database. `breakers`, `agent_files` and `tool_servers` are those of the process that reports, None if the status is
    read from the database alone. `replica` is None without one.
    """

    schema: str
    processes: tuple[ProcessReport, ...]
    queued: QueueState
    held: tuple[HeldRuns, ...]
    jobs: tuple[WorkQueue, ...]
    slack: WorkQueue | None
    database: str = ""
    breakers: tuple[ModelBreaker, ...] | None = None
    agent_files: AgentFiles | None = None
    tool_servers: tuple[ServerReport, ...] | None = None
    replica: ReplicaReport | None = None

    @property
    def claiming_processes(self) -> int:
        """The number of processes that can take turns."""
        return sum(noted.takes_turns for noted in self.processes)

    @property
    def unclaimed_turns(self) -> int:
        """The number of turns that no process works on: queued turns, and running ones whose lease has expired."""
        return self.queued.waiting + sum(held.expired for held in self.held)

    @property
    def is_stuck(self) -> bool:
        """Whether turns wait although no process can take them."""
        return self.unclaimed_turns > 0 and self.claiming_processes == 0
