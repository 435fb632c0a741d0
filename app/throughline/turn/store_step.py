"""Storage of a turn's steps that survives an outage of the database.

A model's answer or a tool's result is kept and stored later, so that no finished step is run again because the database
was unavailable.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from throughline.domain.errors import DatabaseBusy, DatabaseUnavailable
from throughline.domain.ids import RunId
from throughline.domain.message import Message, NewMessage
from throughline.turn.state import Turn, TurnDependencies

PAUSE_SECONDS = 1.0
MOST_TRIES = 10
"""Number of tries after which DatabaseBusy is raised.

An available database that has refused a write this often is not expected to accept it.
"""

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def store_step(turn: Turn, step: str, message: NewMessage) -> Message:
    """Append the message under `step`, only once, and retry while the database is unavailable.

    The turn's model calls that are not stored yet are stored with it.

    Raises LeaseLost, and everything that `wait_for_database` raises.
    """
    calls = turn.calls.take()
    try:
        return await wait_for_database(
            turn.dependencies,
            turn.lease.run_id,
            lambda: turn.dependencies.messages.append_message(turn.lease, step, message, calls),
        )
    except Exception:
        turn.calls.unstored[:0] = calls
        raise


async def wait_for_database(dependencies: TurnDependencies, run_id: RunId, write: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `write`, and retry it while the database is unavailable, stalled or full.

    Raises DatabaseBusy if an available database did not finish the write in MOST_TRIES tries, and every other exception
    of `write`. The caller must keep the run's lease renewed meanwhile.
    """
    tries = 0
    while True:
        try:
            return await write()
        except DatabaseUnavailable as error:
            tries += isinstance(error, DatabaseBusy)
            if tries >= MOST_TRIES:
                raise
            log.warning("turn waiting for database", run_id=str(run_id), error=type(error).__name__)
            await dependencies.clock.sleep(PAUSE_SECONDS)
