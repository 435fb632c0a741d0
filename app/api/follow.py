"""Following a run for a request: as `db/run_follow.py` reads it, until the process stops."""

from app.api.call import Call
from app.api.refusals import StreamAborted
from app.db.run_follow import Following


def following_of(call: Call) -> Following:
    """Return how this request follows runs; waiting raises StreamAborted once the process stops."""

    def stop_if_stopping() -> None:
        if call.services.shutting_down.is_set():
            raise StreamAborted

    return Following(
        database=call.services.database,
        monotonic=call.services.clock.monotonic,
        heartbeat_seconds=call.config.heartbeat_seconds,
        before_waiting=stop_if_stopping,
    )
