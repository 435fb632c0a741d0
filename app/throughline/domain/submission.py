"""A message submitted through an interface, and the result of its submission."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import NewMessage, Source
from throughline.domain.run import ClaimedRun, Run, RunInput
from throughline.domain.session import NewSession


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
