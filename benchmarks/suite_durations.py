"""Where the time of the tests goes: a pytest plugin that prints tables at the end (`make durations`).

Set-up, call and tear-down of all tests, by how long they take, by folder and by file; the slowest tests; and how each
test process begins: the seconds until it is configured, until its tests are collected, and in fixtures of the session.
Seconds are those of the clock: processes share the cores, and tests that wait count as much as tests that work.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

BOUNDS = (0.1, 0.5, 1.0, 2.0, 5.0, float("inf"))
MOST_ROWS = 30
LEAST_SECONDS = 0.05
PHASES = ("setup", "call", "teardown")
OUTPUT = "suite_durations"
"""What a test process hands to the one that prints."""


@dataclass(slots=True)
class Test:
    """Seconds of one test's three phases."""

    node: str
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def total(self) -> float:
        """All phases together."""
        return sum(self.seconds.values())

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.node.split("::")[0]

    @property
    def folder(self) -> str:
        """The folder of its file."""
        return self.file.rpartition("/")[0]


@dataclass(slots=True)
class Start:
    """How a test process began: `steps` are seconds, in order."""

    began: float
    steps: dict[str, float] = field(default_factory=dict)

    def reached(self, step: str) -> None:
        """Note that a step ended now, once."""
        if step not in self.steps:
            self.steps[step] = time.time() - self.began - sum(self.steps.values())


class Durations:
    """Collects the reports of all test processes and prints the tables."""

    def __init__(self) -> None:
        """Know of no test yet."""
        self._tests: dict[str, Test] = {}
        self._starts: dict[str, dict[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test; what its subtests take is in it."""
        if isinstance(report, pytest.SubtestReport):
            return
        test = self._tests.setdefault(report.nodeid, Test(report.nodeid))
        test.seconds[report.when] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401  # xdist ships no types
        """Take what a test process noted of its own start."""
        self._starts[node.gateway.id] = getattr(node, "workeroutput", {}).get(OUTPUT, {})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables."""
        for line in self._lines():
            terminalreporter.write_line(line)

    def _lines(self) -> Iterable[str]:
        tests = sorted(self._tests.values(), key=lambda test: -test.total)
        yield from _table("test takes", _by(tests, _class_of), list(map(_class_name, BOUNDS)))
        yield from _table("folder", _by(tests, lambda test: test.folder))
        yield from _table("file", _by(tests, lambda test: test.file))
        yield from _table("slowest test", _by(tests[:MOST_ROWS], lambda test: test.node))
        yield "\n| process | seconds until configured, until collected, in fixtures of the session |\n|---|---|"
        for name, steps in sorted(self._starts.items()):
            told = [f"{step} {seconds:.1f}" for step, seconds in steps.items() if seconds > LEAST_SECONDS]
            yield f"| {name} | {', '.join(told)} |"


class OneProcess:
    """Notes how this test process begins."""

    def __init__(self, config: pytest.Config) -> None:
        """Count from the start of the process."""
        self._config = config
        self._start = Start(psutil.Process().create_time())
        self._start.reached("configured")

    def pytest_collection_finish(self) -> None:
        """Note the end of the collection."""
        self._start.reached("collected")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Note what a fixture of the session takes, without those it asks for."""
        began = time.time()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "session":
                self._start.steps[fixturedef.argname] = time.time() - began

    def pytest_sessionfinish(self) -> None:
        """Hand over what was noted."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = self._start.steps


def pytest_configure(config: pytest.Config) -> None:
    """Print in the process that prints, note in those that test."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(OneProcess(config))
    else:
        config.pluginmanager.register(Durations())


def _by(tests: Iterable[Test], key: Callable[[Test], str]) -> dict[str, list[Test]]:
    groups: defaultdict[str, list[Test]] = defaultdict(list)
    for test in tests:
        groups[key(test)].append(test)
    return groups


def _class_of(test: Test) -> str:
    return _class_name(next(bound for bound in BOUNDS if test.total < bound))


def _class_name(bound: float) -> str:
    return f"up to {bound:g} s" if bound < BOUNDS[-1] else f"over {BOUNDS[-2]:g} s"


def _table(name: str, groups: dict[str, list[Test]], order: list[str] | None = None) -> Iterable[str]:
    yield f"\n| {name} | tests | seconds | set-up | call | tear-down | ms each |\n|---|--:|--:|--:|--:|--:|--:|"
    sums = {key: sum(test.total for test in tests) for key, tests in groups.items()}
    for key in [key for key in order or sorted(sums, key=lambda key: -sums[key]) if key in groups][:MOST_ROWS]:
        tests = groups[key]
        phases = " | ".join(f"{sum(test.seconds[when] for test in tests):.0f}" for when in PHASES)
        yield f"| {key} | {len(tests)} | {sums[key]:.0f} | {phases} | {1000 * sums[key] / len(tests):.0f} |"
