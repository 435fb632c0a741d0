"""Where the time of the tests goes: a pytest plugin that prints tables at the end (`make durations`).

Set-up, call and tear-down of all tests, by folder, by file and by test, the slowest first. Seconds are those of the
clock: processes share the cores, and tests that wait count as much as tests that work.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import pytest

from benchmarks.figures import aligned

MOST_ROWS = 30
PHASES = ("setup", "call", "teardown")
SECONDS: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
"""What the phases of each test took, by its name."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add one phase of a test; what its subtests take is in it."""
    if not isinstance(report, pytest.SubtestReport):
        SECONDS[report.nodeid][report.when] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables; only the process that prints has any."""
    for name, key in (("folder", _folder_of), ("file", _file_of), ("test", str)):
        terminalreporter.write_line(f"\n{_table(name, SECONDS, key)}")


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _folder_of(test: str) -> str:
    return _file_of(test).rpartition("/")[0]


def _table(name: str, tests: Mapping[str, dict[str, float]], key: Callable[[str], str]) -> str:
    groups: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for test, seconds in tests.items():
        groups[key(test)].append(seconds)
    slowest = sorted(groups.items(), key=lambda group: -_sum(group[1]))[:MOST_ROWS]
    rows = [
        [title, str(len(group)), f"{_sum(group):.1f}", *(f"{_sum(group, when):.1f}" for when in PHASES)]
        for title, group in slowest
    ]
    return aligned([[name, "tests", "seconds", *PHASES], *rows])


def _sum(group: Iterable[Mapping[str, float]], *phases: str) -> float:
    return sum(seconds[when] for seconds in group for when in phases or PHASES)
