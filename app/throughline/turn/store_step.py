"""Storage of a turn's steps that survives an outage of the database.

A model's answer or a tool's result is kept and stored later, so that no finished step is run again because the database
was unavailable.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from throughline.domain.basic_types import RunId
from throughline.domain.errors import DatabaseBusy, DatabaseUnavailable
from throughline.domain.events import MessageCompleted, ToolCalled
from throughline.domain.message import Message, NewMessage
from throughline.domain.usage_report import ModelCall
from throughline.execution.error_boundary import ErrorBoundary
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
        return await _append(turn, step, message, calls)
    except Exception:
        turn.calls.unstored[:0] = calls
        raise


async def store_model_step(turn: Turn, step: str, message: NewMessage) -> Message:
    """Store a step with tool calls as `store_step` does, and show readers the message and its calls.

    Raises LeaseLost, and everything that `wait_for_database` raises.
    """
    storing = turn.storing
    storing.step, storing.message, storing.calls = step, message, tuple(turn.calls.unstored)
    return show_stored(turn, await store_step(turn, step, message))


async def settle_step(turn: Turn) -> bool:
    """Store and show the step whose storage a cancellation has interrupted, if there is one; it is stored only once.

    Return False, and show nothing, if that failed: the step may be stored or not.
    """
    storing = turn.storing
    if storing.message is None:
        return True
    with ErrorBoundary(log.warning, "interrupted step not stored", run_id=str(turn.lease.run_id)) as settling:
        show_stored(turn, await _append(turn, storing.step, storing.message, storing.calls))
    return settling.error is None


async def _append(turn: Turn, step: str, message: NewMessage, calls: Sequence[ModelCall]) -> Message:
    dependencies = turn.dependencies
    return await wait_for_database(
        dependencies,
        turn.lease.run_id,
        lambda: dependencies.messages.append_message(turn.lease, step, message, calls),
    )


def show_stored(turn: Turn, stored: Message) -> Message:
    """Show readers a stored message of the model and its calls."""
    turn.storing.message = None
    turn.events.emit(MessageCompleted(stored))
    for call in stored.tool_calls:
        turn.events.emit(ToolCalled(call, stored.id))
    return stored


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
