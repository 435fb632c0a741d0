"""`throughline status`: what is shown fits the screen, JSON says the same, and the exit code says whether to look."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result

from fakes.fake_dependencies import IDLE_SERVICE, FakeWorld
from throughline.cli.commands_status import draw_status, duration
from throughline.cli.dependencies import LocalOptions
from throughline.cli.printable import printable
from throughline.cli.screen import Screen
from throughline.domain.basic_types import ProcessId
from throughline.domain.service_status import (
    HeldRuns,
    Line,
    Process,
    ProcessKind,
    ProcessReport,
    ProcessState,
    ServiceStatus,
    WorkQueue,
)

Throughline = Callable[..., Result]
TIME = datetime(2026, 5, 4, 12, tzinfo=UTC)
TURNS = ProcessState(concurrency=500, open_turns=12, jobs_in_hand=2, is_claiming=True, is_listening=True)
NO_TURNS = ProcessState(concurrency=0, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=False)


def noted(number: int, kind: ProcessKind, state: ProcessState, *, is_silent: bool = False) -> ProcessReport:
    process = Process(ProcessId(UUID(int=number)), kind, f"a-pod-of-a-cluster-{number}:1:{number:08x}", "0.1.0")
    return ProcessReport(process, state, TIME, TIME, 7261, 3661 if is_silent else 2, is_silent=is_silent)


BUSY = ServiceStatus(
    schema="0019",
    processes=(
        noted(1, ProcessKind.SERVE, NO_TURNS),
        noted(2, ProcessKind.WORKER, TURNS),
        noted(3, ProcessKind.WORKER, TURNS, is_silent=True),
    ),
    queued=Line(1_234, 75.9),
    held=(
        HeldRuns("a-pod-of-a-cluster-3:1:00000003", runs=4, expired=3, lease_seconds=-5.2, oldest_seconds=300),
        HeldRuns("a-pod-of-a-cluster-2:1:00000002", runs=12, expired=0, lease_seconds=6.5, oldest_seconds=20),
    ),
    jobs=(WorkQueue("prepare_summary", Line(5, 3.0), in_hand=2, failed=1, retrying=4),),
    slack=WorkQueue("slack", Line(0, None), in_hand=1, failed=0),
)
STUCK = replace(BUSY, processes=BUSY.processes[:1], held=())


def drawn(status: ServiceStatus, width: int) -> list[str]:
    out = StringIO()
    screen = Screen(out=out, err=StringIO(), width=width)
    for drawing in draw_status(status):
        screen.draw(drawing)
    return printable(out.getvalue()).splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_shown_fits_the_screen_and_loses_nothing(width: int) -> None:
    lines = drawn(BUSY, width)
    whole = "".join("".join(lines).split())

    assert max(len(line.rstrip()) for line in lines) <= width
    for told in (
        "12/500",
        "2h 1m",
        "1234, the oldest for 1m 15s",
        "3 EXPIRED",
        "expired 5s ago",
        "6s",
        "silent",
        "0.1.0",
    ):
        assert told.replace(" ", "") in whole


def test_on_a_wide_screen_each_process_is_one_line() -> None:
    lines = drawn(BUSY, 120)

    assert [line.split()[0] for line in lines[2:5]] == ["serve", "worker", "worker"]
    assert "receives no notifications" in lines[2]
    assert lines[3].split()[1:2] == ["a-pod-of-a-cluster-2:1:00000002"]
    assert lines[3].rstrip().endswith("ok")


def test_of_many_silent_processes_the_last_are_shown_and_the_others_counted() -> None:
    dead = [noted(number, ProcessKind.WORKER, TURNS, is_silent=True) for number in range(10, 50)]
    ages = [replace(one, since_heartbeat_seconds=60.0 * age) for age, one in enumerate(dead, start=1)]

    lines = drawn(replace(BUSY, processes=(*BUSY.processes[:2], *ages)), 120)

    assert lines[0].startswith("Processes: 2, taking turns: 1")
    assert [line.split()[1][:22] for line in lines[4:9]] == [
        f"a-pod-of-a-cluster-{number}:" for number in range(10, 15)
    ]
    assert lines[9].startswith("and 35 more")


def test_leases_that_are_over_are_shown_first() -> None:
    lines = drawn(BUSY, 120)
    first = next(number for number, line in enumerate(lines) if line.startswith("Held by"))

    assert "EXPIRED" in lines[first + 1]
    assert lines[first + 2].rstrip().endswith("ok")


def test_processes_of_several_versions_are_told_apart() -> None:
    newer = replace(BUSY.processes[1], process=replace(BUSY.processes[1].process, version="0.2.0"))

    lines = drawn(replace(BUSY, processes=(*BUSY.processes[:1], newer)), 120)

    assert "0.1.0, 0.2.0" in lines[0]
    assert lines[3].rstrip().endswith("ok, 0.2.0")


def test_an_idle_service_is_no_failure(world: FakeWorld, throughline: Throughline, tmp_path: Path) -> None:
    world.status = replace(IDLE_SERVICE, database="chat at db:5432 (DATABASE_URL)")
    result = throughline("status", "--data-dir", str(tmp_path))

    assert result.exit_code == 0
    assert result.stdout.startswith("Database: chat at db:5432 (DATABASE_URL)\n")
    assert "Processes: 0" in result.stdout
    assert "Waiting turns: 0" in result.stdout
    assert world.opened == [LocalOptions(tmp_path)]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_turns_that_nobody_can_take_are_a_failure_that_says_what_to_do(
    world: FakeWorld, throughline: Throughline, arguments: tuple[str, ...]
) -> None:
    world.status = STUCK

    result = throughline("status", *arguments)

    assert result.exit_code == 1
    assert "1234" in result.stdout
    assert "throughline worker" in result.stderr


def test_json_holds_all_of_it(world: FakeWorld, throughline: Throughline) -> None:
    world.status = BUSY

    result = throughline("status", "--json")
    found = json.loads(result.stdout)

    assert result.exit_code == 0
    assert set(found) == {"database", "schema", "is_stuck", "processes", "queued", "held", "jobs", "slack"}
    assert found["processes"][1] == {
        "id": str(UUID(int=2)),
        "kind": "worker",
        "name": "a-pod-of-a-cluster-2:1:00000002",
        "version": "0.1.0",
        "started_at": "2026-05-04T12:00:00+00:00",
        "beat_at": "2026-05-04T12:00:00+00:00",
        "up_seconds": 7261,
        "since_beat_seconds": 2,
        "is_silent": False,
        "takes_turns": True,
        "concurrency": 500,
        "open_turns": 12,
        "jobs_in_hand": 2,
        "is_listening": True,
    }
    assert found["queued"] == {"waiting": 1_234, "oldest_seconds": 75.9}
    assert found["held"][0]["expired"] == 3
    assert found["jobs"] == [
        {"kind": "prepare_summary", "waiting": 5, "oldest_seconds": 3.0, "retrying": 4, "in_hand": 2, "failed": 1}
    ]
    assert found["slack"]["in_hand"] == 1
    world.status = IDLE_SERVICE
    assert json.loads(throughline("status", "--json").stdout)["slack"] is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-1, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m 0s"), (3_599, "59m 59s"), (3_600, "1h 0m"), (200_000, "2d 7h")],
)
def test_ages_are_told_in_their_two_largest_units(seconds: float, told: str) -> None:
    assert duration(seconds) == told
