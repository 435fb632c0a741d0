"""Storing a step of a turn: what a model said or a tool did is not done again because the database was away."""

import structlog

from app.domain.errors import DatabaseBusy, DatabaseUnavailable
from app.domain.message import Message, NewMessage
from app.turn.state import Turn

PAUSE_SECONDS = 1.0
MOST_TRIES = 10
"""What a database that is there refuses so often, it will refuse again."""

log = structlog.get_logger(__name__)


async def keep_step(turn: Turn, step: str, message: NewMessage) -> Message:
    """Append the message under `step`, once, and wait for a database that is away as long as it takes.

    Raises LeaseLost, and DatabaseBusy where it was there and did not take the message in MOST_TRIES tries.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return await turn.parts.store.append_message(turn.lease, step, message)
        except DatabaseUnavailable as error:
            if isinstance(error, DatabaseBusy) and tries >= MOST_TRIES:
                raise
            log.warning("a step waits for the database", run_id=str(turn.lease.run_id))
            await turn.parts.clock.sleep(PAUSE_SECONDS)
