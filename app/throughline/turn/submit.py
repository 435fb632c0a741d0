"""Acceptance of a message: its run is stored before the client gets an answer. Every interface calls it."""

from typing import Protocol

from throughline.domain.run import ClaimedRun, Claimer, Submission, Submitted
from throughline.ports.storage import RunStore


class Slots(Protocol):
    """This process's slots for turns, with which an interface may claim a run in its own submit transaction."""

    def reserve(self) -> Claimer | None:
        """Reserve a slot; None if no slot is idle or earlier runs may be waiting.

        Each reservation ends with `start` or `release`.
        """

    def start(self, claimed: ClaimedRun) -> None:
        """Run the claimed run in the reserved slot."""

    def release(self) -> None:
        """Free the reserved slot, in which no turn was started."""


async def submit_message(submission: Submission, runs: RunStore, slots: Slots | None) -> Submitted:
    """Store the submission as a run, and start it in this process if a slot is idle and the run is next in line.

    Raises NotFound, IdempotencyKeyReused, SessionBusy, QueueFull or DatabaseUnavailable; nothing is stored then.
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
