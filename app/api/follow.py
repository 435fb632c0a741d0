"""Reading a run's events as they are stored, from any point on; no database connection is held while waiting."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeAlias

from app.api.call import Call
from app.api.refusals import StreamAborted
from app.db.wakeup import RunNews
from app.domain.errors import NotFound
from app.domain.events import EventType, RunEvent
from app.domain.json_types import JsonObject
from app.domain.message import Message
from app.domain.run import Run, RunError, RunStatus
from app.domain.wire import message_json, run_json

POLL_SECONDS = 1.0
PAGE = 500
STAND_IN_END = 999_999_999
"""The id of an end that stands in for erased events: whoever comes back with it has seen all there is."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing has happened for a heartbeat's time; the run as it stands now."""

    run: Run


Followed: TypeAlias = tuple[RunEvent, ...] | Idle


async def follow_run(call: Call, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
    """Yield the events after `after` in batches, and Idle now and then, up to the run's last event.

    `is_fresh`: this process has just begun the run, so there is nothing to read yet. Events that were erased (short
    retention, a crash of the database) are stood in for by `reset` and the stored end. Raises StreamAborted once the
    process stops, NotFound once the run is erased.
    """
    beat = _Beat(call)
    async with call.services.database.hub.subscribe(run.id) as news:
        is_over = was_woken = False
        while not is_over:
            events = await _new_events(call, run, after, news=None if is_fresh else news)
            is_fresh = False
            if events:
                yield events
                beat.restart()
                after = events[-1].seq
                was_woken, is_over = False, events[-1].type.is_last
            elif run.status.is_final:
                yield await stand_in(call, run)
                is_over = True
            elif was_woken:  # without events: ended, or erased with its session
                was_woken, run = False, await beat.look_again(run)
            else:
                _stop_if_stopping(call)
                was_woken = await news.wait(min(POLL_SECONDS, call.config.heartbeat_seconds))
            if not is_over and beat.is_due():
                run = await beat.look_again(run)
                yield Idle(run)


async def _new_events(call: Call, run: Run, after: int, *, news: RunNews | None) -> tuple[RunEvent, ...]:
    """Take what the news brought, else look into the table; without `news` there is nothing yet."""
    if news is None:
        return ()
    return news.after(after) or await call.services.database.events.read_events(run.id, after, PAGE)


def _stop_if_stopping(call: Call) -> None:
    if call.services.shutting_down.is_set():
        raise StreamAborted


class _Beat:
    """When the next sign of life is due."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._clock = call.services.clock
        self._seconds = call.config.heartbeat_seconds
        self._last = self._clock.monotonic()

    def restart(self) -> None:
        self._last = self._clock.monotonic()

    async def look_again(self, run: Run) -> Run:
        self.restart()
        return await self._call.services.database.runs.get_run(self._call.owner_id, run.id)

    def is_due(self) -> bool:
        return self._clock.monotonic() - self._last >= self._seconds


async def find_start(call: Call, run: Run, last_seen: int) -> int | None:
    """Return after which event a reader that saw `last_seen` goes on; None where it has seen the last event.

    A sequence number that is not stored (any more) means that the numbering began anew: -1, start over.
    """
    if last_seen <= 0:
        return 0
    if last_seen == STAND_IN_END and run.status.is_final:
        return None
    anchor = await call.services.database.events.read_events(run.id, last_seen - 1, 1)
    if not anchor or anchor[0].seq != last_seen:
        return -1
    return None if anchor[0].type.is_last else last_seen


def reset_event(run: Run, seq: int = 0) -> RunEvent:
    """Return the event that tells a reader to forget what it was shown of the run."""
    return RunEvent(run.id, seq, EventType.RESET, {"attempt": run.attempt})


async def stand_in(call: Call, run: Run) -> tuple[RunEvent, ...]:
    """Return `reset` and the last event of an ended run, made from what is stored."""
    last_type, data = await ending_of(call, run)
    return reset_event(run, STAND_IN_END - 1), RunEvent(run.id, STAND_IN_END, last_type, data)


async def ending_of(call: Call, run: Run) -> tuple[EventType, JsonObject]:
    """Return type and data of an ended run's last event, from the stored run and message."""
    message = await _answer(call, run)
    shown = None if message is None else message_json(message)
    match run.status:
        case RunStatus.SUCCEEDED:
            context = None if run.context is None else dict(run.context)
            return EventType.RUN_COMPLETED, {"run": run_json(run), "message": shown, "context": context}
        case RunStatus.CANCELLED:
            return EventType.RUN_CANCELLED, {"run": run_json(run), "message": shown}
        case _:
            error = run.error or RunError("internal_error", "The run failed. The message is kept; send it again.")
            return EventType.RUN_FAILED, {
                "run": run_json(run),
                "error": {"type": error.type, "detail": error.detail},
            }


async def _answer(call: Call, run: Run) -> Message | None:
    if run.message_id is None:
        return None
    try:
        return await call.services.database.messages.get_message(call.owner_id, run.session_id, run.message_id)
    except NotFound:
        return None
