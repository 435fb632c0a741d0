"""Results of attempts to compact a conversation: within a turn, on demand, or in advance of a turn."""

from dataclasses import dataclass, field
from enum import StrEnum

from throughline.domain.session import Session


class CompactionOutcome(StrEnum):
    """Outcomes of a compaction, as they appear in events, metrics and logs.

    `ADOPTED`: a summary came into use. `PREPARED`: a summary was written for later use. `PRUNED` and `FITTED`: the
    prompt was made smaller without a summary. `SKIPPED`: no summary was due or worth it, or another writer was first.
    `CANCELLED`: the agent's hook cancelled it.
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
    """The cost of calls of summary models: number of calls, tokens read and written, and total seconds."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The outcome of a compaction, and the session to continue with.

    `detail` says why no more was achieved, '' if there is nothing to explain. The token numbers are the prompt's size
    before and after, as the model counts. With `is_stale` the stored session has changed meanwhile and must be loaded
    again. Another attempt is useless before `delay_seconds` have passed.
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
        """Whether no summary was due, or none would be smaller than the messages it replaces.

        An attempt that another writer overtook (`is_stale`) does not count. The caller retries after more growth.
        """
        return self.outcome is CompactionOutcome.SKIPPED and not self.is_stale
