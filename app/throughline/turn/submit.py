"""Accepting a message: the run row is durable before anybody is answered. Called by every door."""

from typing import Protocol

from throughline.domain.run import ClaimedRun, Claimer
from throughline.domain.submission import Submission, Submitted
from throughline.ports.storage import RunStore


class Slots(Protocol):
    """Room for turns in this process, so that a door may claim in its submit transaction."""

    def reserve(self) -> Claimer | None:
        """Reserve a slot; None if none is idle or earlier runs may wait. Every one ends in `start` or `release`."""

    def start(self, claimed: ClaimedRun) -> None:
        """Run the claimed run in the reserved slot."""

    def release(self) -> None:
        """Give the reserved slot back unused."""


async def submit_message(submission: Submission, runs: RunStore, slots: Slots | None) -> Submitted:
    """Store the submission as a run; take it at once in this process if a slot is idle and it is first in line.

    Raises NotFound, IdempotencyKeyReused, SessionBusy, QueueFull, DatabaseUnavailable. Nothing is stored then.
    """
    claimer = None if slots is None else slots.reserve()
    if slots is None or claimer is None:
        return await runs.submit(submission, None)
    try:
        submitted = await runs.submit(submission, claimer)
    except BaseException:
        slots.release()
        raise
    if submitted.claimed is None:
        slots.release()
    else:
        slots.start(submitted.claimed)
    return submitted
