"""Kill points: found by traces, named by what they do, obeyed once."""

import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from chaos.points import KillPoint, Orders, Place, Side, label_of, points_of, read_orders, read_trace
from chaos.trace import ORDERS, TRACE, Tracer


@pytest.fixture
def told() -> Generator[list[int]]:
    """The signals this process gets: SIGUSR2 in place of a deadly one."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR2, before)


def ordered(folder: Path, orders: Orders) -> Tracer:
    (folder / ORDERS).write_text(orders.written())
    tracer = Tracer(folder)
    tracer.obey()
    return tracer


async def test_a_trace_tells_each_passing_with_both_of_its_sides(tmp_path: Path) -> None:
    tracer = ordered(tmp_path, Orders())

    async with tracer.passing("a statement"), tracer.passing("another"):
        pass
    async with tracer.passing("a statement"):
        pass

    assert [str(point) for point in read_trace(tmp_path / TRACE)] == [
        "before a statement (1)",
        "before another (1)",
        "after another (1)",
        "after a statement (1)",
        "before a statement (2)",
        "after a statement (2)",
    ]


async def test_what_is_passed_before_any_orders_is_not_traced(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)

    async with tracer.passing("a statement"):
        pass

    assert not (tmp_path / TRACE).exists()


@pytest.mark.parametrize(("side", "expected"), [(Side.BEFORE, "before"), (Side.AFTER, "after")])
async def test_a_process_ends_itself_at_its_point_and_nowhere_else(
    tmp_path: Path, told: list[int], side: Side, expected: str
) -> None:
    tracer = ordered(tmp_path, Orders(KillPoint(Place("commit", 2), side), signal.SIGUSR2))
    seen = []

    for _ in range(4):
        async with tracer.passing("commit"):
            seen.append(("inside", len(told)))
        seen.append(("after", len(told)))

    assert told == [signal.SIGUSR2]
    assert seen[2] == ("inside", 1 if expected == "before" else 0)
    assert seen[3] == ("after", 1)


async def test_a_statement_that_fails_has_no_other_side(tmp_path: Path) -> None:
    tracer = ordered(tmp_path, Orders())

    with pytest.raises(ConnectionError):
        async with tracer.passing("a statement"):
            raise ConnectionError

    assert [point.side for point in read_trace(tmp_path / TRACE)] == [Side.BEFORE]


def test_orders_are_read_as_they_were_written() -> None:
    orders = Orders(KillPoint(Place('insert "x"', 3), Side.AFTER), signal.SIGSTOP)

    assert read_orders(orders.written()) == orders
    assert read_orders(Orders().written()) == Orders()


def test_statements_are_told_apart_even_where_they_write_to_the_same_table() -> None:
    first, second = label_of("insert into runs (id) values ($1)"), label_of("INSERT INTO runs (id, seq) values ($1, 2)")

    assert first.startswith("insert runs #")
    assert second.startswith("insert runs #")
    assert first != second


def test_a_statement_is_named_by_all_it_writes_and_not_by_its_locks() -> None:
    label = label_of(
        "with a as (update sessions set x = 1), b as (select 1 from runs for update skip locked) insert into messages"
    )

    assert label.startswith("update sessions + insert messages #")


def test_points_that_depend_on_timing_are_taken_once_and_others_whenever_they_come() -> None:
    def trace(*labels: tuple[str, int]) -> list[KillPoint]:
        return [KillPoint(Place(*label), Side.BEFORE) for label in labels]

    points = points_of([
        trace(("commit", 1), ("commit", 2), ("poll", 1), ("poll", 2)),
        trace(("commit", 1), ("commit", 2)),
        trace(("commit", 1), ("commit", 2), ("beat", 1)),
    ])

    assert points == tuple(trace(("beat", 1), ("commit", 1), ("commit", 2), ("poll", 1)))
