"""The cores that a process may use: those of the machine, or of its container."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from throughline.assembly.serve_processes import auto_processes, few_processes_hint, usable_cores
from throughline.db.database import ConnectionLimit

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, ALL),
        ({"cpu.max": "max 100000\n"}, ALL),
        ({"cpu.max": "9900000 100000\n"}, min(ALL, 99)),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, ALL),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, min(ALL, 2)),
        ({"cpu.max": "nonsense"}, ALL),
        ({"cpu.max": "100000 0\n"}, ALL),
    ],
)
def test_usable_cores_respect_the_limit_of_the_container(tmp_path: Path, files: Mapping[str, str], cores: int) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("free", "each", "most"), [(97, 13, 4), (97, 3, 23), (35, 13, 1), (34, 13, 1), (0, 13, 1), (52, 13, 2)]
)
def test_automatic_processes_leave_a_quarter_of_the_free_connections_to_others(free: int, each: int, most: int) -> None:
    assert auto_processes(free, each) == most
    assert most == 1 or (most + 1) * each <= free * 3 / 4


@pytest.mark.parametrize(("own", "number"), [(39, 4), (60, 5), (200, 8)])
def test_the_number_beside_a_deployment_that_is_replaced_is_named(own: int, number: int) -> None:
    said = few_processes_hint(ConnectionLimit(allowed=300, free=60, own=own), each=13, cores=8)

    assert f"{own} connections are in use by other processes of Throughline" in said
    assert f"set PROCESSES={number}:" in said
    assert "Raise PostgreSQL's max_connections" in said


def test_without_connections_of_its_own_the_hint_names_none() -> None:
    said = few_processes_hint(ConnectionLimit(allowed=97, free=60, own=2), each=13, cores=8)

    assert said == "Raise PostgreSQL's max_connections, lower DB_POOL_SIZE, or put PgBouncer in between."
