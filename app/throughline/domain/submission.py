"""What is handed in at a door, and what became of it."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.run import ClaimedRun, Run, RunInput


@dataclass(frozen=True, slots=True)
class Caps:
    """How many runs may wait in a session, and wait and run of one owner.

    Those per owner are counted without a lock: what arrives in the same moment in several sessions may exceed them by
    a few.
    """

    queued_per_session: int = 10
    queued_per_owner: int = 1_000
    running_per_owner: int = 250


class OnBusy(StrEnum):
    """What to do with a message for a session whose turn is still running."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True)
class Submission:
    """A message handed in at a door. `fingerprint` is a hash of the body, for the idempotency key.

    `actor` names the key that acted for the author, None where the author came with a key of their own.
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
    """What became of a submission.

    `claimed` is set where the submitting process took the run at once; `replayed` where the idempotency key had
    been used before with the same body.
    """

    run: Run
    claimed: ClaimedRun | None = None
    replayed: bool = False
