"""Retention as its schedule runs it, with the times that no setting changes."""

from fakes.manual_clock import ManualClock
from fakes.silent_metrics import SilentMetrics
from throughline.db.database import Database
from throughline.turn.worker.retention import Retention, RetentionConfig


async def delete_old_rows(database: Database) -> None:
    """Delete all that is old."""
    await Retention(database.retention, ManualClock(), SilentMetrics(), RetentionConfig()).run()
