"""What the queue's tables are called, as migration 0003 made them."""

from functools import cache

from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel

CHANNEL = Channel("throughline_jobs")


@cache
def queue_names() -> DBSettings:
    """Return PgQueuer's settings with every value written out.

    Made without its constructor, which would read PGQUEUER_… and even QUEUE_TABLE or CHANNEL from the environment:
    somebody else's variables must not lead us to other tables.
    """
    return DBSettings.model_construct(
        prefix="",
        db_schema="throughline_jobs",
        channel=CHANNEL,
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.balanced,
        widen_id=False,
    )
