"""What a compaction came to: as a turn goes on with it, and as `summarize_now` returns it to a door."""

from dataclasses import dataclass

from app.domain.conversation import Conversation
from app.domain.session import Session


@dataclass(frozen=True, slots=True)
class Compacted:
    """How it ended: `adopted`, `skipped` (not worth it, or another was first), `failed` or `cancelled` (by the hook).

    `conversation` is the one to go on with. `is_stale`: the stored session is no longer what it says; load it again.
    """

    conversation: Conversation
    outcome: str
    detail: str
    tokens_before: int
    tokens_after: int
    is_stale: bool = False

    @property
    def is_not_worth_it(self) -> bool:
        """Whether a summary would have been no smaller than what it replaces: it is tried again after more growth."""
        return self.outcome == "skipped" and not self.is_stale


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """`outcome` is `adopted`, `skipped` (not worth it, or another was first), `failed` or `cancelled` (by the hook).

    `session` is the session afterwards.
    """

    outcome: str
    detail: str
    tokens_before: int
    tokens_after: int
    session: Session
