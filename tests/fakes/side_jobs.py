"""The side jobs of a stage, with their real queue."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from fakes.raw_sql import until_sql
from fakes.stage import Stage
from fakes.waiting import HANG_SECONDS
from throughline.db.jobs.consumer import GIVEN_UP_AFTER
from throughline.db.jobs.kinds import INDEX_OWNER, PREPARE_SUMMARY
from throughline.worker.indexing import index_owner
from throughline.worker.jobs import JobRegistry, NotDone, Pauses, SideJobs, Work
from throughline.worker.shares import Shares
from throughline.worker.summaries_ahead import prepare_summary

STATUSES = "select status::text from throughline_jobs.pgqueuer"
SOON = Pauses(timedelta(seconds=0.01), timedelta(seconds=0.01))


def side_jobs(
    stage: Stage,
    kinds: Mapping[str, Work] | None = None,
    *,
    concurrency: int = 2,
    given_up_after: timedelta = GIVEN_UP_AFTER,
) -> SideJobs:
    """Return the jobs a worker of the stage does, or only those of `kinds`; what fails is tried again soon."""
    prepare = partial(prepare_summary, stage.parts, Shares(concurrency))
    index = partial(index_owner, stage.database.history)
    registry = JobRegistry(kinds or {PREPARE_SUMMARY: prepare, INDEX_OWNER: index}, pauses=SOON)
    consumer = stage.database.make_job_consumer(given_up_after=given_up_after)
    return SideJobs(stage.database.jobs, consumer, registry, stage.metrics, concurrency)


async def do_summary_job(stage: Stage, shares: Shares | None = None) -> NotDone | None:
    """Do the job of the stage's session once."""
    return await prepare_summary(stage.parts, shares or Shares(1), str(stage.session.id))


@asynccontextmanager
async def doing(jobs: SideJobs) -> AsyncIterator[None]:
    """Do jobs inside the block."""
    running = asyncio.create_task(jobs.run())
    yield
    await jobs.stop()
    async with asyncio.timeout(HANG_SECONDS):
        await running


async def until_jobs(url: str, statuses: list[str]) -> None:
    """Wait until these are the states of all jobs."""
    await until_sql(url, STATUSES, [(status,) for status in statuses])
