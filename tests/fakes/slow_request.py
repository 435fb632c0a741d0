"""A request that takes long, as the pool of connections sees it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fakes.raw_sql import BACKENDS, hold_rows, until_sql
from throughline.db.database import Database

WAITING = f"select 1 from {BACKENDS} where wait_event_type = 'Lock'"


@asynccontextmanager
async def slow_request(database: Database, url: str) -> AsyncGenerator[None]:
    """Have a request hold a connection of the pool until the block ends: it waits for a table."""
    async with hold_rows(url, "lock table token_calibration"):
        asking = asyncio.create_task(database.calibrations.load("any"))
        await until_sql(url, WAITING)
        yield
    await asyncio.gather(asking, return_exceptions=True)  # it may have waited for longer than requests do
