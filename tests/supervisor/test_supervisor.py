"""A supervisor keeps its child processes running, replaces them, and stops them."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from fakes import supervised_child
from fakes.waiting import HANG_SECONDS, until
from throughline.supervisor.child_process import ChildProcess, ChildProgram
from throughline.supervisor.supervisor import Supervisor, SupervisorConfig

QUICK = SupervisorConfig(children=2, first_pause=0.01, longest_pause=0.04, silent=30.0, start=20.0, end=20.0)

STEADY_LOOKS = 50
"""So often must a state be found again to count as the last one."""


@dataclass
class Supervised:
    """A supervisor of small children in a folder; `ended` has the ids of ended processes.

    The program of the children `missing` is not there, and those that are `hanging` never serve.
    """

    folder: Path
    listener: socket.socket
    config: SupervisorConfig = QUICK
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[int] = field(default_factory=list)
    missing: frozenset[int] = frozenset()
    hanging: frozenset[int] = frozenset()
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        program = ChildProgram(self.command, {"CHILD_FOLDER": str(self.folder), "PATH": os.environ["PATH"]})
        self.supervisor = Supervisor(program, self.listener, self.config, asyncio.Event(), self.ended.append)

    def command(self, listener: int, line: int, number: int) -> list[str]:
        if number in self.missing:
            return [str(self.folder / "nothing")]
        if number in self.hanging:
            return ["sleep", "1000"]
        return [sys.executable, "-S", supervised_child.__file__, str(listener), str(line), str(number)]

    async def run(self) -> int:
        return await self.supervisor.run(self.stop, self.started.set)

    def mark(self, name: str) -> None:
        (self.folder / name).touch()

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    async def ask(self) -> int:
        """Connect to the port and return the number of the child that has answered, 0 if it died meanwhile."""
        reader, writer = await asyncio.open_connection(*self.listener.getsockname())
        try:
            return int(await reader.read() or 0)
        finally:
            writer.close()

    async def until_answered_by(self, number: int) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while await self.ask() != number:
                await asyncio.sleep(0.01)

    def last_count(self, number: int) -> dict[str, int]:
        lines = (self.folder / f"counts-{number}").read_text().splitlines()
        return dict(json.loads(lines[-1])) if lines else {}


@pytest.fixture
def listener() -> Generator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server


@asynccontextmanager
async def running(supervised: Supervised) -> AsyncGenerator[asyncio.Task[int]]:
    task = asyncio.create_task(supervised.run())
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await supervised.started.wait()
        yield task
    finally:
        supervised.stop.set()
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(task, return_exceptions=True)


def pid_of(supervised: Supervised, number: int) -> int:
    return next(child.pid for child in supervised.supervisor.children if child.number == number)


async def test_all_children_serve_the_port_and_are_asked_to_stop(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener)
    async with running(supervised) as task:
        for number in (1, 2):
            await supervised.until_answered_by(number)
        await until(lambda: all(supervised.last_count(n) == {"serving": 2, "wanted": 2} for n in (1, 2)))
    assert task.result() == 0
    assert supervised.has("stopped-1")
    assert supervised.has("stopped-2")


async def test_while_all_children_stop_new_connections_are_refused(tmp_path: Path, listener: socket.socket) -> None:
    supervised, place = Supervised(tmp_path, listener, replace(QUICK, end=2.0)), listener.getsockname()
    supervised.mark("stays-1")
    running = asyncio.create_task(supervised.run())
    await supervised.started.wait()

    supervised.stop.set()
    await until(lambda: supervised.has("stopped-1"))
    with suppress(ConnectionRefusedError):
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                _, writer = await asyncio.open_connection(*place)
                writer.close()
                await asyncio.sleep(0.01)

    assert await running == 0


async def test_a_killed_child_is_replaced_and_the_others_serve_meanwhile(
    tmp_path: Path, listener: socket.socket
) -> None:
    supervised = Supervised(tmp_path, listener)
    async with running(supervised):
        killed = pid_of(supervised, 1)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: killed in supervised.ended)
        await supervised.until_answered_by(2)
        await supervised.until_answered_by(3)
        await until(lambda: supervised.last_count(2) == {"serving": 2, "wanted": 2})
        told = [json.loads(line)["serving"] for line in (tmp_path / "counts-2").read_text().splitlines()]
    assert told[-2:] == [1, 2]


@pytest.mark.parametrize("number", [1, 2])
async def test_a_child_that_fails_at_the_first_start_stops_the_others(
    tmp_path: Path, listener: socket.socket, number: int
) -> None:
    supervised = Supervised(tmp_path, listener)
    supervised.mark(f"fails-{number}")
    async with asyncio.timeout(HANG_SECONDS):
        assert await supervised.run() == 3
    assert not supervised.started.is_set()
    assert supervised.has("stopped-1") == (number == 2)
    assert not supervised.has("counts-2")


async def test_pauses_grow_while_children_die_at_once(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener)
    for number in (3, 4, 5, 6):
        supervised.mark(f"dies-{number}")
    with capture_logs() as logs:
        async with running(supervised):
            os.kill(pid_of(supervised, 1), signal.SIGKILL)
            await supervised.until_answered_by(7)
    died = [(line["process"], line["exit_code"], line["pause_seconds"]) for line in logs if "pause_seconds" in line]
    assert died == [(1, -9, 0.01), (3, 4, 0.02), (4, 4, 0.04), (5, 4, 0.04), (6, 4, 0.04)]


async def test_a_child_that_reports_nothing_is_killed_and_replaced(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener, SupervisorConfig(children=1, first_pause=0.01, silent=2.0))
    supervised.mark("silent-1")
    async with running(supervised):
        await supervised.until_answered_by(2)
        assert not supervised.has("stopped-1")


async def test_replacing_refuses_no_connection_and_stops_the_old_ones(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener)
    async with running(supervised):
        supervised.supervisor.replacing.set()
        answers = set()
        async with asyncio.timeout(HANG_SECONDS):
            while not (supervised.has("stopped-1") and supervised.has("stopped-2")):
                answers.add(await supervised.ask())
        await until(lambda: len(supervised.ended) == 2)
        assert {child.number for child in supervised.supervisor.children} == {3, 4}
        assert answers <= {0, 1, 2, 3, 4}


async def test_a_replacement_that_fails_leaves_the_old_children(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener)
    supervised.mark("fails-4")
    async with running(supervised):
        supervised.supervisor.replacing.set()
        await until(lambda: len(supervised.ended) == 2)
        assert {child.number for child in supervised.supervisor.children} == {2, 3}
        assert not supervised.has("stopped-2")
        supervised.supervisor.replacing.set()  # the next one works
        await until(lambda: {child.number for child in supervised.supervisor.children} == {5, 6})


async def test_children_that_die_while_all_are_replaced_leave_as_many_as_wanted(
    tmp_path: Path, listener: socket.socket
) -> None:
    supervised = Supervised(tmp_path, listener)
    async with running(supervised):
        for _ in range(3):
            supervised.supervisor.replacing.set()
            for child in supervised.supervisor.children:
                child.kill()  # its id may be free already
            await asyncio.sleep(0.05)
        steady = 0

        def is_steady() -> bool:
            nonlocal steady
            children = supervised.supervisor.children
            steady = steady + 1 if len(children) == 2 and all(child.is_serving for child in children) else 0
            return steady == STEADY_LOOKS

        await until(is_steady)
        assert all(child.number > 2 for child in supervised.supervisor.children)


async def test_a_child_is_replaced_once_the_system_can_start_one_again(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener, missing=frozenset({3, 4}))
    with capture_logs() as logs:
        async with running(supervised):
            os.kill(pid_of(supervised, 1), signal.SIGKILL)
            await supervised.until_answered_by(5)
    assert [line["error"] for line in logs if line["event"] == "child process not started"] == [
        "No such file or directory"
    ] * 2


async def test_a_replacement_that_cannot_be_started_is_given_up_and_the_next_is_made(
    tmp_path: Path, listener: socket.socket
) -> None:
    supervised = Supervised(tmp_path, listener, missing=frozenset({3}))
    with capture_logs() as logs:
        async with running(supervised):
            supervised.supervisor.replacing.set()
            await until(lambda: any(line["event"] == "child process not started" for line in logs))
            supervised.supervisor.replacing.set()
            await until(lambda: {child.number for child in supervised.supervisor.children} == {4, 5})
            assert supervised.has("stopped-1")


async def test_a_child_that_hangs_in_its_start_is_killed_and_replaced(tmp_path: Path, listener: socket.socket) -> None:
    config = replace(QUICK, start=1.0)
    supervised = Supervised(tmp_path, listener, config, hanging=frozenset({3}))
    async with running(supervised):
        os.kill(pid_of(supervised, 1), signal.SIGKILL)
        await until(lambda: len(supervised.ended) == 2)
        assert {child.number for child in supervised.supervisor.children} <= {2, 4, 5, 6}


async def test_a_child_killed_in_the_first_start_is_told_of(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener, hanging=frozenset({1}))
    task = asyncio.create_task(supervised.run())
    await until(lambda: bool(supervised.supervisor.children))
    with capture_logs() as logs:
        os.kill(pid_of(supervised, 1), signal.SIGKILL)
        async with asyncio.timeout(HANG_SECONDS):
            assert await task == 1
    assert [(line["event"], line["signal"]) for line in logs] == [("child process killed in its start", 9)]


async def test_a_stop_during_the_start_ends_all(tmp_path: Path, listener: socket.socket) -> None:
    supervised = Supervised(tmp_path, listener)
    task = asyncio.create_task(supervised.run())
    await until(lambda: supervised.has("counts-1"))
    task.cancel()
    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(task, return_exceptions=True)
    assert not supervised.supervisor.children


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_no_process(listener: socket.socket, steps: int) -> None:
    program = ChildProgram(lambda *_: ["sleep", "1000"], {"PATH": os.environ["PATH"]})
    starting = asyncio.create_task(ChildProcess.start(program, listener, 1, silent_seconds=30.0))
    for _ in range(steps):
        await asyncio.sleep(0)
    if starting.done():
        await (await starting).end(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)

    assert not [child for child in psutil.Process().children() if "sleep" in child.cmdline()]
