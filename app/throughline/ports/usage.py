"""The interface to stored model calls and what they cost."""

from collections.abc import Sequence
from typing import Protocol

from throughline.domain.ids import RunId, UserId
from throughline.domain.usage_report import DaySpending, ModelCall, Payer


class UsageStore(Protocol):
    """Storage of the model calls that are not stored together with a step or the end of a turn."""

    async def store_calls(self, payer: Payer, calls: Sequence[ModelCall]) -> None:
        """Store the calls in one statement; nothing happens without calls."""

    async def spent_today(self, owner_id: UserId, agent: str, run_id: RunId | None = None) -> DaySpending:
        """Return what the user's calls of the agent, summaries included, have used since midnight UTC.

        The running turns are those that were claimed before the run `run_id`; all of them without it.
        """
