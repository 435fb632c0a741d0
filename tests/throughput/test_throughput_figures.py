"""The throughput benchmark's own judgement: what is fair, what a turn costs, and which aims are missed."""

from dataclasses import replace

import pytest

from benchmarks.throughput_cost import Cost, Used, cost_of
from benchmarks.throughput_load import Measured
from benchmarks.throughput_table import Cell, Side, missed, render

COST = Cost(statements=12.25, commits=6.0, wal_bytes=4015.4, cpu_ms=7.75)
EVEN = Measured(2.0, ((0.010, 0.010), (0.010, 0.010)))


def side(*rounds: Measured) -> Side:
    return Side(rounds, COST)


def cell(ours: Measured, *, clients: int = 64) -> Cell:
    return Cell("http", clients, ours=side(ours), bare=side(EVEN))


def test_fairness_is_the_slowest_sessions_mean_turn_over_that_of_the_median_session() -> None:
    measured = Measured(10.0, ((1.0, 1.0), (1.0, 3.0), (3.0, 5.0)))

    assert measured.fairness == 2.0
    assert EVEN.fairness == 1.0


def test_a_session_with_one_turn_counts_as_much_as_a_whole_one() -> None:
    assert Measured(10.0, ((1.0,) * 10, (1.0,) * 10, (9.0,))).fairness == 9.0


def test_rates_and_percentiles_are_taken_over_the_turns_of_all_sessions() -> None:
    measured = Measured(2.0, ((0.1, 0.2), (0.3, 0.4)))

    assert measured.rate == 2.0
    assert measured.milliseconds(50) == pytest.approx(300)
    assert measured.milliseconds(99) == pytest.approx(400)


def test_what_an_idle_service_uses_is_no_turns_cost() -> None:
    idle = Used(seconds=5, cpu_seconds=0.5, wal_bytes=50, statements=10, transactions=5)
    timed = [
        Used(seconds=10, turns=60, cpu_seconds=3.0, wal_bytes=60_100),
        Used(seconds=10, turns=40, cpu_seconds=1.0, wal_bytes=40_100),
    ]
    counted = Used(seconds=2.5, turns=10, statements=105, transactions=42.5)

    cost = cost_of(timed, counted, idle)

    assert cost.cpu_ms == pytest.approx(20.0)
    assert cost.wal_bytes == pytest.approx(1000)
    assert (cost.statements, cost.commits) == (10.0, 4.0)


def test_a_service_as_quick_as_the_bare_one_misses_nothing() -> None:
    assert missed([cell(EVEN, clients=clients) for clients in (1, 16, 64, 256)]) == []


@pytest.mark.parametrize(("clients", "is_missed"), [(1, True), (16, True), (64, True), (256, False)])
def test_fewer_turns_a_second_are_a_miss_with_up_to_64_clients(clients: int, *, is_missed: bool) -> None:
    slow = replace(EVEN, seconds=2.6)

    assert bool(missed([cell(slow, clients=clients)])) is is_missed


def test_slow_turns_are_a_miss_at_64_clients_alone() -> None:
    slow = Measured(2.0, ((0.016, 0.016), (0.016, 0.016)))

    assert missed([cell(slow, clients=16)]) == []
    assert missed([cell(slow)]) == ["http model, 64 clients: p99 is 1.60 times the bare one (aim: 1.5 at most)"]


def test_a_session_that_is_much_slower_than_the_others_is_a_miss() -> None:
    unfair = Measured(2.0, ((0.005,), (0.005,), (0.005,), (0.011,)))

    assert missed([cell(unfair, clients=256)]) == [
        "http model, 256 clients: the slowest session takes 2.20 times the median (aim: 2 at most)"
    ]


def test_ratio_and_figures_are_medians_over_the_rounds() -> None:
    rounds = [Measured(seconds, ((0.010,) * 4,)) for seconds in (2.0, 4.0, 8.0)]
    judged = Cell("http", 1, ours=side(*rounds), bare=side(*[rounds[0]] * 3))

    assert judged.ratio == 0.5
    assert judged.ours.median(lambda one: one.rate) == 1.0


def test_both_services_have_a_row_with_what_a_turn_costs() -> None:
    ours, bare = render([cell(EVEN)]).splitlines()[2:]

    figures = "2.0 10 10 1.00 0 12.2 6.0 4015 7.8"
    assert " ".join(ours.replace("|", "").split()) == f"http 64 ours {figures} 1.00"
    assert " ".join(bare.replace("|", "").split()) == f"http 64 bare {figures}"
