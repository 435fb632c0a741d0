"""The interface to stored runs, messages, events and calibrations, for turns and summaries.

Each method is one transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from throughline.context.calibration import Calibration
from throughline.domain.conversation import Conversation
from throughline.domain.events import HistoryQuoted, NewEvent
from throughline.domain.ids import MessageId, RunId, SessionId, UserId
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import (
    ClaimedRun,
    Claimer,
    Lease,
    LeaseRenewal,
    Outcome,
    RowLease,
    Run,
    RunError,
    Submission,
    Submitted,
)
from throughline.domain.summary import MeasuredMessages, ReadLimits
from throughline.domain.usage_report import ModelCall


class RunStore(Protocol):
    """Storage of runs, from submission to their end. Each method is one transaction."""

    async def submit(self, submission: Submission, claimer: Claimer | None) -> Submitted:
        """Store the run with its idempotency key; claim it for `claimer` if no earlier run has to go first.

        Raises NotFound (session), IdempotencyKeyReused, SessionBusy (on_busy=reject), QueueFull.
        """

    async def claim_next(self, claimer: Claimer) -> ClaimedRun | None:
        """Claim a run with an expired lease, else the first queued run of a session, fairly between owners.

        Return None if no run can be claimed.
        """

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        """Extend the leases in one statement, by the database's clock; the result lacks leases that are lost."""

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        """End the run in one transaction: answer, usage, status and the last events.

        The answer is stored as step `answer`, so it exists at most once. `unstored` are the turn's events that are not
        stored yet. The closing events follow them, numbered from `next_seq`. Raises LeaseLost.
        """

    async def fail(self, lease: Lease, error: RunError) -> None:
        """End the run as failed and store nothing else: no answer, no event, no user text. Raises LeaseLost.

        For runs whose end `finish` cannot store. Readers are notified of the end.
        """

    async def give_back(self, lease: Lease, *, counts: bool = False) -> None:
        """Put the run back into the queue, for another worker to resume; no error if the lease is lost.

        With `counts` it counts as one of the run's limited attempts.
        """

    async def get_run(self, owner_id: UserId, run_id: RunId) -> Run:
        """Return the run. Raises NotFound if it is missing or another user's."""


class MessageStore(Protocol):
    """The message log of a session as turns use it. Each method is one transaction."""

    async def find_owner(self, session_id: SessionId) -> UserId:
        """Return the session's owner. Raises NotFound."""

    async def load_context(self, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> Conversation:
        """Load the session and its newest messages after the summary's cursor, up to `max_tokens`, in one query.

        Pinned messages and those of the run `run_id` are loaded in any case. Raises NotFound.
        """

    async def get_messages_after(
        self, session_id: SessionId, after_message_id: MessageId | None, limit: int = 200
    ) -> tuple[Message, ...]:
        """Return up to `limit` messages after the given one, oldest first.

        With None, or an id that the session does not have, they are the first messages.
        """

    async def measure(self, session_id: SessionId, first: int, last: int, limits: ReadLimits) -> MeasuredMessages:
        """Return number, tokens and first position of the newest messages that a summary can read within the limits.

        Only the positions from `first` to `last` are considered.
        """

    def new_message_id(self) -> MessageId:
        """Return an id for a message that readers are shown before it is stored."""

    async def append_message(
        self, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
    ) -> Message:
        """Append `message` to the session of the lease's run, as the run's message `step`, and return it.

        It is stored under `message.id`, or under a new id if that is None.
        If (run, step) is already stored, return that message and write nothing. `calls` are the model calls that the
        message cost; they are stored with it. Raises LeaseLost.
        """


class EventStore(Protocol):
    """Run events: written by the run's lease holder, read by users who may read the run."""

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        """Store a batch of events and notify readers. Raises LeaseLost, and then writes nothing."""

    async def newest_quoted(self, session_id: SessionId) -> HistoryQuoted | None:
        """Return what the prompt of the session's newest turn quoted; None if nothing, or if its events are deleted.

        The newest turn is that of the newest message.
        """


class CalibrationStore(Protocol):
    """Storage of calibrations: how each model's own token count differs from the service's."""

    async def load(self, model: str) -> Calibration | None:
        """Return the model's calibration, None if the model was never called."""

    async def save(self, model: str, calibration: Calibration) -> None:
        """Store the model's calibration; the last writer wins."""
