"""Storing a step of a turn: what a model said or a tool did is not done again because the database was away."""

import structlog

from app.domain.errors import DatabaseUnavailable
from app.domain.message import Message, NewMessage
from app.turn.state import Turn

PAUSE_SECONDS = 1.0
log = structlog.get_logger(__name__)


async def keep_step(turn: Turn, step: str, message: NewMessage) -> Message:
    """Append the message under `step`, once, and wait for the database as long as it takes. Raises LeaseLost."""
    while True:
        try:
            return await turn.parts.store.append_message(turn.lease, step, message)
        except DatabaseUnavailable:
            log.warning("a step waits for the database", run_id=str(turn.lease.run_id))
            await turn.parts.clock.sleep(PAUSE_SECONDS)
