"""Runs: the rows behind turns. A run holds its input, so a turn survives the death of any process."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from throughline.domain.ids import MessageId, RunId, SessionId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.lease import RowLease
from throughline.domain.message import Content, NewMessage, Role, Source, text_of
from throughline.domain.prompt import Usage
from throughline.domain.text import clean_content


class RunStatus(StrEnum):
    """Where a run stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self in {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED}


@dataclass(frozen=True, slots=True)
class RunInput:
    """What the user sent."""

    content: Content
    metadata: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: a stable `type`, and a sentence for the user that shows nothing of our inside."""

    type: str
    detail: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run as stored.

    `agent` is the session's agent when the message was accepted; `message_id` is the answer; `context` the context
    report taken when the run ended.
    """

    id: RunId
    session_id: SessionId
    owner_id: UserId
    agent: str
    seq: int
    status: RunStatus
    input: RunInput
    source: Source
    created_at: datetime
    author: str | None = None
    actor: str | None = None
    attempt: int = 0
    cancel_requested: bool = False
    usage: Usage = field(default_factory=Usage)
    error: RunError | None = None
    message_id: MessageId | None = None
    context: JsonObject | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


BYTES_PER_TOKEN = 4
"""Of English text, about; used until a message is counted."""

USER_STEP = "user"
"""The step under which a run's own message is stored, once."""


def user_message(run: Run) -> NewMessage:
    """Return the message the run was submitted with.

    It is not counted yet, so it has no counter; its size is estimated, for loading must be able to leave it out.
    """
    content = clean_content(run.input.content)
    return NewMessage(
        role=Role.USER,
        content=content,
        token_count=len(text_of(content).encode()) // BYTES_PER_TOKEN + 1,
        source=run.source,
        author=run.author,
        metadata=run.input.metadata,
    )


@dataclass(frozen=True, slots=True)
class Lease(RowLease):
    """The right to write for a run and to its session."""

    session_id: SessionId

    @property
    def run_id(self) -> RunId:
        """The run."""
        return RunId(self.id)


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run and the lease its claimer holds. `next_event` is the first free sequence number of its events."""

    run: Run
    lease: Lease
    next_event: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, written in one transaction with the answer and, if it is due, the job for the next summary."""

    status: RunStatus
    answer: NewMessage | None = None
    usage: Usage = field(default_factory=Usage)
    error: RunError | None = None
    context: JsonObject | None = None
    is_summary_due: bool = False


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims a run, and for how long before the lease must be renewed.

    `held` are runs it is at work on itself: their leases may have run out while the database was away. What was tried
    exactly so often as `passes_over` says is not taken over. With `only_for` it takes the runs of this owner alone.
    """

    worker: str
    lease_seconds: float
    held: tuple[UUID, ...] = ()
    passes_over: int | None = None
    only_for: UserId | None = None


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """The answer to a heartbeat for a lease that is still ours.

    `is_renewed` is False where somebody had the row locked, so that the lease was not extended this time.
    """

    is_cancel_requested: bool
    is_renewed: bool = True
