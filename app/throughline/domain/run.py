"""Runs: the rows behind turns. A run stores its input, so that a turn survives the death of any process."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from throughline.domain.basic_types import JsonObject, MessageId, RunId, SessionId, UserId
from throughline.domain.message import Content, NewMessage, Role, Source, clean_content, text_of
from throughline.domain.prompt import NO_OVERRIDES, Overrides, ToolSpec, Usage
from throughline.domain.session import NewSession
from throughline.domain.tool import NewWait, Wait
from throughline.domain.usage_report import ModelCall

# The lease on a claimed row: a side job, a Slack delivery or a run.
#
# A run's lease (domain/run.py) adds the session.


@dataclass(frozen=True, slots=True)
class RowLease:
    """The right to write on behalf of a claimed row; valid while the row is claimed and has this fence number."""

    id: UUID
    fence: int


class RunStatus(StrEnum):
    """The status of a run; the last three are final. A waiting run needs something from outside before it goes on."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self in {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED}

    @property
    def needs_worker(self) -> bool:
        """Whether the run goes on as soon as a worker works on it."""
        return self in {RunStatus.QUEUED, RunStatus.RUNNING}


@dataclass(frozen=True, slots=True)
class WaitingTurns:
    """How many turns of all users have this status, and how many seconds ago the message of the oldest was taken."""

    status: RunStatus
    turns: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class RunInput:
    """The user's message of a run, what its request overrides of the agent, and the tools that the client runs.

    `steps_brought` is how many steps with tool calls the request brought with it. `echo` is what the interface shows of
    the request again, as it wrote it; no other part of the service reads it.
    """

    content: Content
    metadata: JsonObject = field(default_factory=dict)
    overrides: Overrides = NO_OVERRIDES
    client_tools: tuple[ToolSpec, ...] = ()
    steps_brought: int = 0
    echo: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunError:
    """The reason why a run failed: a stable `type`, and a sentence for the user that reveals no internals.

    `provider_message` is what the model's provider itself said, for operators only; '' if it said nothing.
    """

    type: str
    detail: str
    provider_message: str = ""


def open_wait(status: RunStatus, wait: Wait | None) -> Wait | None:
    """Return the wait of a run with the calls only that were given nothing yet; None unless the run waits."""
    if status is not RunStatus.WAITING or wait is None:
        return None
    return replace(wait, calls=wait.open_calls)


@dataclass(frozen=True, slots=True)
class Run:
    """A stored run.

    `agent` is the session's agent when the message was accepted. `user_message_id` is the id under which the user's
    message is or will be stored, `message_id` that of the answer. `context` is the context report made when the run
    ended. `wait` is the run's last wait, None before the first and after the end; `wait_count` is how often it has
    waited. `attempt` counts from 0 again after each wait.
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
    user_message_id: MessageId
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
    wait: Wait | None = None
    wait_count: int = 0

    @property
    def waiting_for(self) -> Wait | None:
        """The run's wait, with the calls only that were given nothing yet; None unless the run waits."""
        return open_wait(self.status, self.wait)


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of any user, as operators list it: without the texts of its messages.

    `owner` is the name of the session's owner. `worker` is the process that runs it, and `lease_seconds` the rest of
    its lease, negative if that has expired; both are None unless the run is running.
    """

    id: RunId
    session_id: SessionId
    owner: str
    agent: str
    seq: int
    status: RunStatus
    source: Source
    attempt: int
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    lease_seconds: float | None
    error: RunError | None
    waiting_for: Wait | None


BYTES_PER_TOKEN = 4
"""Approximate bytes per token of English text, used until a message has been counted."""

USER_STEP = "user"
"""Step name of a run's user message; (run, step) is unique, so the message is stored once."""


def user_message_id(run_id: RunId) -> MessageId:
    """Return the id under which the run's user message will be stored.

    It follows from the run's id, so that every attempt and every process knows it before the message is stored. Only
    the last bit differs, so that new rows of messages stay close together in indexes.
    """
    return MessageId(UUID(int=run_id.int ^ 1))


def user_message(run: Run) -> NewMessage:
    """Return the user message that the run was submitted with.

    Its tokens are not counted yet, so `counter` is empty and `token_count` is an estimate. Loading needs a size to be
    able to leave the message out.
    """
    content = clean_content(run.input.content)
    return NewMessage(
        id=run.user_message_id,
        role=Role.USER,
        content=content,
        token_count=len(text_of(content).encode()) // BYTES_PER_TOKEN + 1,
        source=run.source,
        author=run.author,
        metadata=run.input.metadata,
    )


@dataclass(frozen=True, slots=True)
class Lease(RowLease):
    """The right to write for a run and to the run's session."""

    session_id: SessionId

    @property
    def run_id(self) -> RunId:
        return RunId(self.id)


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A claimed run with its lease. `next_event` is the first unused sequence number of its events."""

    run: Run
    lease: Lease
    next_event: int = 1

    @property
    def is_first_after_wait(self) -> bool:
        """Whether this is the first claim since the run waited, so that nothing has been done since."""
        return self.run.wait is not None and self.lease.fence == self.run.wait.fence + 1


@dataclass(frozen=True, slots=True)
class ClaimedRuns:
    """The runs of one claim, in the order of their turns; empty if no run can be claimed.

    `is_contended`: others held rows at that moment, so that a claim right after this one may find more runs.
    """

    runs: tuple[ClaimedRun, ...]
    is_contended: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run, stored in one transaction with its answer and, if one is due, the job for the next summary.

    With the status `waiting` and `wait`, the run does not end but begins to wait.

    `calls` are the model calls that are not stored yet; `usage` is that of all calls since the run began, or since it
    last waited.
    """

    status: RunStatus
    answer: NewMessage | None = None
    usage: Usage = field(default_factory=Usage)
    error: RunError | None = None
    context: JsonObject | None = None
    is_summary_due: bool = False
    calls: tuple[ModelCall, ...] = ()
    wait: NewWait | None = None


@dataclass(frozen=True, slots=True)
class Claimer:
    """The claiming worker, and the seconds after which its leases expire unless renewed; it claims up to `most` runs.

    `held` are rows this process is already working on, which are not claimed again; their leases may have expired
    during a database outage. Expired runs with exactly `skipped_attempt` attempts are not claimed. At most one of those
    with exactly `spaced_attempt` attempts is claimed, and none after one with more. With `only_for` only this owner's
    runs are claimed.
    """

    worker: str
    lease_seconds: float
    held: tuple[UUID, ...] = ()
    skipped_attempt: int | None = None
    spaced_attempt: int | None = None
    most: int = 1
    only_for: UserId | None = None


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """The result of a heartbeat for a lease that is still valid.

    `is_renewed` is False if another transaction had locked the row, so that the lease was not extended this time.
    """

    is_cancel_requested: bool
    is_renewed: bool = True


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on the runs that may wait in one session, and wait or run for one owner.

    The limits per owner are counted without a lock, so that simultaneous messages in several sessions may exceed them
    slightly.
    """

    queued_per_session: int = 10
    queued_per_owner: int = 1_000
    running_per_owner: int = 250


class OnBusy(StrEnum):
    """The treatment of a message for a session whose turn is still running."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True)
class CopiedMessages:
    """The messages of a session up to a position, to be copied into another session of its owner."""

    session_id: SessionId
    through_position: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What is stored in the transaction that stores a submission, before its run.

    `session` is created (None: the session exists already). `replaces` is a session that loses its external id to it,
    and of which `history` repeats messages. `copied` are messages of another session that come first. `history` are
    messages before the submitted one. `steps` are the run's own messages after it: model messages with
    tool calls, and their results. The run goes on after them.
    """

    session: NewSession | None = None
    history: tuple[NewMessage, ...] = ()
    steps: tuple[NewMessage, ...] = ()
    replaces: SessionId | None = None
    copied: CopiedMessages | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted message. `fingerprint` is a hash of the request body, to detect a reused idempotency key.

    `actor` names the API key that acted for the author, None if the author used their own key. `session_id` is that of
    the new session if the opening has one. `agent` becomes the session's, None leaves it as it is. With
    `refuses_waiting` the message is refused while a turn of the session waits.
    """

    owner_id: UserId
    session_id: SessionId
    input: RunInput
    source: Source
    author: str | None = None
    actor: str | None = None
    idempotency_key: str | None = None
    fingerprint: str = ""
    on_busy: OnBusy = OnBusy.ENQUEUE
    opening: Opening | None = None
    agent: str | None = None
    refuses_waiting: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission.

    `claimed` is set if the submitting process claimed the run at once. `replayed` is True if the idempotency key had
    been used before with the same body.
    """

    run: Run
    claimed: ClaimedRun | None = None
    replayed: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether this process has just started the run, so that none of its events is stored yet."""
        return self.claimed is not None and self.claimed.next_event == 1
