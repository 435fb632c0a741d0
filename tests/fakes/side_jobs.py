"""The side jobs of a stage, with their real queue."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from fakes.raw_sql import until_sql
from fakes.scripted_model import Hang, Step
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database, DatabaseConfig
from throughline.db.side_jobs import INDEX_OWNER, PREPARE_SUMMARY, Schedule
from throughline.turn.worker.jobs import JobRegistry, JobsConfig, NotDone, SideJobs, Work, index_owner, prepare_summary

STATES = "select case when lease_until is null then 'queued' else 'held' end from jobs"
SOON = timedelta(seconds=0.01)


def side_jobs(
    stage: Stage,
    kinds: Mapping[str, Work] | None = None,
    *,
    concurrency: int = 2,
    lease_seconds: float = 30.0,
    schedules: Sequence[Schedule] = (),
) -> SideJobs:
    """Return the jobs a worker of the stage does, or only those of `kinds`; what fails is tried again soon."""
    history = stage.database.history
    prepare = partial(prepare_summary, stage.dependencies, history.index_session)
    index = partial(index_owner, history, None)
    known = {PREPARE_SUMMARY: prepare, INDEX_OWNER: index}
    registry = JobRegistry(known if kinds is None else kinds, schedules)
    config = JobsConfig("worker", concurrency, lease_seconds, poll_seconds=0.2, first_pause=SOON, longest_pause=SOON)
    return SideJobs(stage.database.jobs, registry, stage.metrics, config)


async def do_summary_job(stage: Stage) -> NotDone | None:
    """Do the job of the stage's session once."""
    return await prepare_summary(stage.dependencies, stage.database.history.index_session, str(stage.session.id))


@asynccontextmanager
async def doing(jobs: SideJobs) -> AsyncIterator[None]:
    """Do jobs inside the block."""
    running = asyncio.create_task(jobs.run())
    yield
    jobs.stop()
    async with asyncio.timeout(HANG_SECONDS):
        await running


async def until_jobs(url: str, states: list[str]) -> None:
    """Wait until these are the states of all jobs."""
    await until_sql(url, STATES, [(state,) for state in states])


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
