"""A worker that takes jobs and never ends one: its `main` takes an address and says when a model is being asked."""

import asyncio
import sys

from fakes.scripted_model import Hang, Step
from fakes.side_jobs import side_jobs
from fakes.stage import open_stage, with_context
from throughline.db.database import Database, DatabaseConfig

LEASE_SECONDS = 1.0
BEGUN = "begun"


async def _take_jobs(url: str) -> None:
    def hang(_request: object) -> Step:
        print(BEGUN, flush=True)  # noqa: T201  # what the test waits for
        return Hang("half a summary")

    database = await Database.open(DatabaseConfig(url=url))
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = hang
    await side_jobs(stage, lease_seconds=LEASE_SECONDS).run()


def main() -> None:
    """Take jobs until killed."""
    asyncio.run(_take_jobs(sys.argv[1]))
