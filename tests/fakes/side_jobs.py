"""The side jobs of a stage, with their real queue."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from app.worker.jobs import JobRegistry, SideJobs, Work
from app.worker.summaries_ahead import PREPARE_SUMMARY, prepare_summary
from fakes.stage import Stage

SOON = timedelta(seconds=0.01)


def side_jobs(stage: Stage, kinds: Mapping[str, Work] | None = None, *, concurrency: int = 2) -> SideJobs:
    """Return the jobs a worker of the stage does, or only those of `kinds`; what fails is tried again soon."""
    registry = JobRegistry(kinds or {PREPARE_SUMMARY: partial(prepare_summary, stage.parts)}, first_delay=SOON)
    return SideJobs(stage.database.jobs, stage.database.make_job_consumer(), registry, concurrency)
