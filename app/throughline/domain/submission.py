"""A message submitted through an interface, and the result of its submission."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.run import ClaimedRun, Run, RunInput


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
class Submission:
    """A submitted message. `fingerprint` is a hash of the request body, to detect a reused idempotency key.

    `actor` names the API key that acted for the author, None if the author used their own key.
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


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission.

    `claimed` is set if the submitting process claimed the run at once. `replayed` is True if the idempotency key had
    been used before with the same body.
    """

    run: Run
    claimed: ClaimedRun | None = None
    replayed: bool = False
