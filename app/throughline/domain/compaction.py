"""How an attempt to compact a conversation ended: within a turn, on demand, or ahead of a turn."""

from dataclasses import dataclass, field
from enum import StrEnum

from throughline.domain.session import Session


class CompactionOutcome(StrEnum):
    """The closed set of outcomes, as they stand on the wire, in metrics and in logs.

    `ADOPTED`: a summary came into use. `PREPARED`: one was written ahead. `PRUNED` and `FITTED`: the prompt was made
    smaller without one. `SKIPPED`: nothing was due, it was not worth it, or another was first. `CANCELLED`: by the
    agent's hook.
    """

    ADOPTED = "adopted"
    PREPARED = "prepared"
    PRUNED = "pruned"
    FITTED = "fitted"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Spent:
    """What was paid to summary models: calls, the tokens they read and wrote, and the seconds they took together."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The outcome, and the session to go on with; `detail` says why no more was achieved.

    The tokens are those of the prompt before and after, in the model's count. `is_stale`: the stored session is another
    by now; load it again. Another attempt is of no use before `delay_seconds`.
    """

    outcome: CompactionOutcome
    session: Session
    detail: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    is_stale: bool = False
    delay_seconds: float = 0.0
    spent: Spent = field(default_factory=Spent)

    @property
    def is_not_worth_it(self) -> bool:
        """Whether a summary would have been no smaller than what it replaces: it is tried again after more growth."""
        return self.outcome is CompactionOutcome.SKIPPED and not self.is_stale
