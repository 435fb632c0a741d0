"""Where runs, messages, events and what was learned of models are kept, as turns and summaries need it.

One method is one transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from throughline.context.calibration import Calibration
from throughline.domain.conversation import Conversation
from throughline.domain.events import NewEvent
from throughline.domain.ids import MessageId, RunId, SessionId, UserId
from throughline.domain.lease import RowLease
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import ClaimedRun, Claimer, Lease, LeaseRenewal, Outcome, Run, RunError
from throughline.domain.submission import Submission, Submitted
from throughline.domain.summary import MeasuredMessages, ReadLimits


class RunStore(Protocol):
    """Runs: from submission to the end. One method is one transaction."""

    async def submit(self, submission: Submission, claimer: Claimer | None) -> Submitted:
        """Store the run with its idempotency key; claim it at once for `claimer` if it is first in line.

        Raises NotFound (session), IdempotencyKeyReused, SessionBusy (on_busy=reject), QueueFull.
        """

    async def claim_next(self, claimer: Claimer) -> ClaimedRun | None:
        """Take a run whose lease has expired, else one that is first in its session's line, by owners in turn."""

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        """Extend these leases by the database's clock, in one statement; those no longer ours are not in the answer."""

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        """End the run: answer, usage, status and the last events in one transaction.

        The answer is stored under step `answer`, so that it exists at most once. `unstored` are events of the turn that
        are not stored yet; those of the end follow them, numbered from `next_seq`. Raises LeaseLost.
        """

    async def fail(self, lease: Lease, error: RunError) -> None:
        """End the run as failed and store nothing else: no answer, no event, no text of the user's. Raises LeaseLost.

        For a run whose end cannot be stored as `finish` does it; its readers are told of the end as it is stored.
        """

    async def give_back(self, lease: Lease, *, counts: bool = False) -> None:
        """Put the run back into the line, for another worker to resume; no error if the lease is gone.

        `counts`: it was an attempt of its own, of which there are only so many.
        """

    async def get_run(self, owner_id: UserId, run_id: RunId) -> Run:
        """Return the run. Raises NotFound, also for somebody else's."""


class MessageStore(Protocol):
    """The message log and the session's summary, as a turn uses them. One method is one transaction."""

    async def find_owner(self, session_id: SessionId) -> UserId:
        """Return whose session it is. Raises NotFound."""

    async def load_context(self, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> Conversation:
        """Load the session and its newest messages after `summary_through_id` in one query. Raises NotFound."""

    async def get_messages_after(
        self, session_id: SessionId, after_message_id: MessageId | None, limit: int = 200
    ) -> tuple[Message, ...]:
        """Return up to `limit` messages after the given one (None: from the first), oldest first."""

    async def measure(self, session_id: SessionId, first: int, last: int, limits: ReadLimits) -> MeasuredMessages:
        """Return what a summary reads of the messages `first` to `last`: of the newest that lie within the limits."""

    async def append_message(self, lease: Lease, step: str, message: NewMessage) -> Message:
        """Append `message` under the lease; if (run, step) exists already, return that row and write nothing.

        Raises LeaseLost.
        """


class EventStore(Protocol):
    """Run events: written by the run's holder, read by anybody who may read the run."""

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        """Store a batch and wake readers. A lost lease writes nothing and raises LeaseLost."""


class CalibrationStore(Protocol):
    """What was learned of each model's own counting."""

    async def load(self, model: str) -> Calibration | None:
        """Return what is known of the model, None for a model never called."""

    async def save(self, model: str, calibration: Calibration) -> None:
        """Keep what was learned; the last writer wins."""
