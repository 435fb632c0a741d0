"""Programs note in the database that they are there, with or without work, and take that back when they end."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.programs import Program
from fakes.raw_sql import run_sql
from fakes.service_process import ServiceProcess, run_worker
from fakes.waiting import until_found

pytestmark = pytest.mark.slow


async def noted(url: str) -> dict[object, list[object]]:
    """Return of each process id of the operating system, which is part of the name, what was noted."""
    rows = await run_sql(url, "select split_part(name, ':', 2)::integer, kind, concurrency, is_claiming from processes")
    return {pid: rest for pid, *rest in rows}


async def test_idle_processes_are_known_and_one_that_ended_is_not(
    folder: Path, settings: Mapping[str, str], server: ServiceProcess
) -> None:
    url = settings["DATABASE_URL"]

    async def takes_turns(worker: Program) -> bool:
        return (await noted(url)).get(worker.pid) == ["worker", 3, True]

    async with (
        run_worker(folder, settings, "--concurrency", "3", name="first") as first,
        run_worker(folder, settings, "--concurrency", "3", name="second") as second,
    ):
        await until_found(lambda: takes_turns(first))
        await until_found(lambda: takes_turns(second))
        both = await noted(url)
        first.terminate()
        ended = await first.wait()
        one_ended = await noted(url)
        second.kill()
        await second.wait()
    killed = await noted(url)

    assert ended == 0
    assert both[server.process.pid] == ["serve", 0, False]
    assert set(both) == {server.process.pid, first.pid, second.pid}
    assert set(one_ended) == set(killed) == {server.process.pid, second.pid}
