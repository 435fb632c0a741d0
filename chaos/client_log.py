"""What the clients know: every message they sent, and what they were told of it. The checker believes nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as a client received it."""

    id: str
    position: int
    content: str


@dataclass(slots=True)
class Sent:
    """One message under one idempotency key, sent until it was answered or given up. Times are of one clock."""

    session_id: str
    key: str
    text: str
    sent_at: float = 0.0
    accepted_at: float | None = None
    run_id: str = ""
    answered_at: float | None = None
    answer: Answer | None = None
    refusals: list[str] = field(default_factory=list)
    """What else was answered, in order: statuses, and `cut` for lost connections."""

    def accept(self, run: Mapping[str, object], at: float) -> None:
        """Note that the message was accepted: from here on it must not be lost."""
        if self.accepted_at is None:
            self.accepted_at, self.run_id = at, str(run["id"])

    @property
    def is_accepted(self) -> bool:
        """Whether a client was told that the message is stored."""
        return self.accepted_at is not None


ClientLog = Sequence[Sent]
