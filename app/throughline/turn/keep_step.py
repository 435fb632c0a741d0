"""Storing a step of a turn: what a model said or a tool did is not done again because the database was away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from throughline.domain.errors import DatabaseBusy, DatabaseUnavailable
from throughline.domain.ids import RunId
from throughline.domain.message import Message, NewMessage
from throughline.turn.state import Turn, TurnDependencies

PAUSE_SECONDS = 1.0
MOST_TRIES = 10
"""What a database that is there refuses so often, it will refuse again."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def keep_step(turn: Turn, step: str, message: NewMessage) -> Message:
    """Append the message under `step`, once, and wait for the database. Raises LeaseLost, and as wait_for_database."""
    return await wait_for_database(
        turn.dependencies,
        turn.lease.run_id,
        lambda: turn.dependencies.messages.append_message(turn.lease, step, message),
    )


async def wait_for_database(dependencies: TurnDependencies, run_id: RunId, write: Callable[[], Awaitable[T]]) -> T:
    """Return what `write` returns, tried again as long as the database is away, stalls or is full.

    Raises DatabaseBusy where it was there and did not do it in time in MOST_TRIES tries, and whatever else `write`
    raises. The run's lease must be renewed meanwhile.
    """
    tries = 0
    while True:
        try:
            return await write()
        except DatabaseUnavailable as error:
            tries += isinstance(error, DatabaseBusy)
            if tries >= MOST_TRIES:
                raise
            log.warning("a turn waits for the database", run_id=str(run_id), error=type(error).__name__)
            await dependencies.clock.sleep(PAUSE_SECONDS)
