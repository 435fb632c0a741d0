"""What the benchmark of many workers makes of its figures, and the clients and processes it is made of."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.instant_service import SECONDS, make_instant
from benchmarks.processes import Running
from benchmarks.scale_meters import APIS, CLIENT, POSTGRES, WORKERS, Counted, Cpu, Samples, used_between
from benchmarks.scale_services import Cluster, Ground, run_cluster
from benchmarks.scale_table import Cell, jain, render, saturated
from benchmarks.servers import run_postgres
from benchmarks.throughput_load import Measured, Talk, press_doors

IDLE: Mapping[str, Sequence[float]] = {WORKERS: (0.1, 0.1), APIS: (0.1, 0.1), POSTGRES: (0.2,), CLIENT: (0.1,)}


def a_cell(processes: Mapping[str, Sequence[float]], machine: float, turn_seconds: float = 0.31) -> Cell:
    return Cell(
        workers=2,
        owners=3,
        model_seconds=0.3,
        cores=2,
        measured=Measured(10.0, ((turn_seconds,) * 4, (turn_seconds,) * 2)),
        cpu=Cpu({**IDLE, **processes}, machine),
        used=Counted(60, 12_000.0),
        samples=Samples(looks=2, waits=Counter({"IO:WalSync": 3, "on a CPU": 1}), queue_ages=[0.0, 0.5]),
    )


def test_jains_index_is_one_for_equal_shares_and_one_in_n_where_one_has_all() -> None:
    assert jain([7, 7, 7]) == pytest.approx(1.0)
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        pytest.param(a_cell({}, 0.8), "nothing: 97%", id="the model takes nearly all the time"),
        pytest.param(a_cell({}, 0.8, turn_seconds=1.2), "no processor: 75%", id="turns wait for something else"),
        pytest.param(a_cell({WORKERS: (0.95, 0.1)}, 1.4, turn_seconds=1.2), "workers: one", id="one worker is full"),
        pytest.param(a_cell({APIS: (0.95, 0.1)}, 1.4, turn_seconds=1.2), "APIs: one", id="one API is full"),
        pytest.param(a_cell({POSTGRES: (1.3,)}, 1.9), "the machine", id="all cores are full"),
        pytest.param(a_cell({}, 2.0), "not known", id="others fill the machine"),
    ],
)
def test_the_role_that_has_no_more_to_give_is_named(cell: Cell, told: str) -> None:
    assert saturated(cell).startswith(told)


def test_of_a_full_machine_the_role_that_uses_most_is_named() -> None:
    assert saturated(a_cell({POSTGRES: (1.3,)}, 1.9)).endswith("PostgreSQL most")


def test_a_row_has_turns_fairness_and_what_a_turn_costs() -> None:
    table = render([a_cell({}, 0.8)])

    assert "| 2 | 3 | 0.6 | 310 | 310 | 0 | 1.00 | 2-4 | 0.900 |" in table
    assert "| 10.0 | 2000 | 0.25 | 0.50 |" in table
    assert "2.0 connections not idle on average: IO:WalSync 75%, on a CPU 25%." in table


def test_cores_in_use_are_what_was_added_to_the_processor_time() -> None:
    before = {WORKERS: [1.0, 5.0], APIS: [0.0], POSTGRES: [2.0], CLIENT: [3.0], "": [100.0]}
    after = {WORKERS: [3.0, 5.0], APIS: [1.0], POSTGRES: [6.0], CLIENT: [3.0], "": [108.0]}

    cpu = used_between(before, after, 4.0)

    assert (cpu.processes[WORKERS], cpu.of(POSTGRES), cpu.machine) == ([0.5, 0.0], 1.0, 2.0)


def test_clients_are_spread_over_apis_and_owners() -> None:
    doors = Cluster((), (Running("http://a", 1), Running("http://b", 2))).doors(4, owners=3)

    assert [door.url for door in doors] == ["http://a", "http://b", "http://a", "http://b"]
    assert [door.headers["On-Behalf-Of"] for door in doors] == ["user-0", "user-1", "user-2", "user-0"]


def test_the_instant_model_takes_as_long_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "0.3")

    model = make_instant("any", None, idle_seconds=1, connect_seconds=1)

    assert getattr(model, "answer_seconds", None) == 0.3


@pytest.mark.proof
@pytest.mark.slow
async def test_workers_answer_what_two_apis_take(folder: Path) -> None:
    async with run_postgres(folder) as url:
        with run_cluster(Ground(folder, url, model_seconds=0.01), workers=1, apis=2) as cluster:
            measured = await press_doors(cluster.doors(4, owners=2), 0.1, Talk(turns_per_session=3))

    assert len(measured.sessions) >= 4
    assert all(1 <= len(session) <= 3 for session in measured.sessions)
