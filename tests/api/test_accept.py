"""Processes that share a listening socket accept equally many connections; one that is stopped holds up nobody."""

import array
import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import uvloop

from fakes.waiting import until
from throughline.http import accept
from throughline.http.accept import AWAY_SECONDS, MOST_PROCESSES, ConnectionCounts, EvenAcceptor

ELSEWHERE = 4_194_304
"""An id above those of processes (pid_max on Linux)."""


class Answering(asyncio.Protocol):
    """A connection of the process with this number, which it sends to its client."""

    def __init__(self, open_connections: set[object], number: int) -> None:
        self.open, self.number = open_connections, number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.open.add(self)
        cast("asyncio.Transport", transport).write(bytes([self.number]))  # uvloop's is none by its class

    def connection_lost(self, _error: Exception | None) -> None:
        self.open.discard(self)


@asynccontextmanager
async def accepting(
    file: BinaryIO,
    listener: socket.socket,
    number: int,
    duplicate: Callable[[socket.socket], socket.socket] = socket.socket.dup,
) -> AsyncGenerator[set[object]]:
    """Accept connections as the process with this number does; yields those that are open."""
    connections: set[object] = set()
    counts = ConnectionCounts(file.fileno(), number)
    with duplicate(listener) as own:  # an event loop watches a file descriptor once
        acceptor = EvenAcceptor(own, counts, connections, lambda: Answering(connections, number))
        acceptor.start(on_failure=lambda: pytest.fail("accepting has ended"))
        try:
            yield connections
        finally:
            await acceptor.stop()


async def connect(listener: socket.socket, stack: AsyncExitStack) -> int:
    """Open a connection that stays open; return the number of the process that has accepted it."""
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    stack.callback(writer.close)
    return (await reader.readexactly(1))[0]


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=100)


async def test_connections_that_come_at_once_are_divided_evenly() -> None:
    with ConnectionCounts.make_file() as file, listening() as listener:
        async with (
            AsyncExitStack() as clients,
            accepting(file, listener, 1),
            accepting(file, listener, 2),
            accepting(file, listener, 3),
        ):
            accepted = Counter(await asyncio.gather(*(connect(listener, clients) for _ in range(30))))

    assert accepted == {1: 10, 2: 10, 3: 10}


async def test_a_process_with_fewer_connections_gets_the_next_ones() -> None:
    with ConnectionCounts.make_file() as file, listening() as listener:
        async with AsyncExitStack() as clients, accepting(file, listener, 1):
            first = [await connect(listener, clients) for _ in range(4)]
            async with accepting(file, listener, 2):
                next_ones = [await connect(listener, clients) for _ in range(4)]

    assert first == [1] * 4
    assert next_ones == [2] * 4


async def test_a_stopped_process_is_not_waited_for_for_ever() -> None:
    with ConnectionCounts.make_file() as file, listening() as listener:
        async with AsyncExitStack() as clients, accepting(file, listener, 1):
            _show_of_another(file, 0)
            accepted = await asyncio.gather(*(connect(listener, clients) for _ in range(20)))

    assert accepted == [1] * 20


async def test_nothing_is_left_to_a_process_that_shows_nothing_any_more() -> None:
    with ConnectionCounts.make_file() as file:
        _show_of_another(file, 0, ago_seconds=2 * AWAY_SECONDS)
        counts = ConnectionCounts(file.fileno(), 1)
        counts.show(4)

        assert counts.has_most_room()


async def test_processes_get_places_of_their_own() -> None:
    with ConnectionCounts.make_file() as file:
        _show_of_another(file, 0)
        counts = ConnectionCounts(file.fileno(), MOST_PROCESSES - 1)
        counts.show(4)

        assert not counts.has_most_room()


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(65_536))
    with other.open("r+b") as file, pytest.raises(ValueError, match="not that of the connections' counts"):
        ConnectionCounts(file.fileno(), 1)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_is_being_accepted_when_accepting_stops_is_not_left_open(
    run: Callable[[Coroutine[None, None, None]], None],
) -> None:
    connections: set[object] = set()
    run(_stop_while_accepting(connections))

    assert not connections


async def _stop_while_accepting(connections: set[object]) -> None:
    """Stop accepting from within a connection's start; its client leaves then."""
    stopping: list[asyncio.Task[None]] = []

    def make_protocol() -> asyncio.Protocol:
        stopping.append(asyncio.create_task(acceptor.stop()))
        return Answering(connections, 1)

    with ConnectionCounts.make_file() as file, listening() as listener:
        acceptor = EvenAcceptor(listener, ConnectionCounts(file.fileno(), 1), connections, make_protocol)
        acceptor.start(on_failure=lambda: None)
        async with AsyncExitStack() as clients:
            assert await connect(listener, clients) == 1
            await asyncio.gather(*stopping)
        await until(lambda: not connections)


async def test_the_place_of_an_ended_process_counts_no_more() -> None:
    with ConnectionCounts.make_file() as file:
        _show_of_another(file, 3)
        counts = ConnectionCounts(file.fileno(), 1)
        counts.show(4)
        before = counts.has_most_room()
        counts.forget(ELSEWHERE)

        assert not before
        assert counts.has_most_room()


async def test_a_connection_for_which_the_system_has_no_room_is_accepted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accept, "PAUSE_SECONDS", 0.0)
    with ConnectionCounts.make_file() as file, listening() as listener:
        async with AsyncExitStack() as clients, accepting(file, listener, 1, FullSocket):
            accepted = await connect(listener, clients)

    assert accepted == 1


class FullSocket(socket.socket):
    """A listening socket whose process has no file descriptor left at first."""

    failures = 2

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=listener.dup().detach())

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(24, os.strerror(24))
        return super().accept()


def _show_of_another(file: BinaryIO, count: int, ago_seconds: float = 0.0) -> None:
    """Show connections of a process that accepts none, as it did so long ago."""
    cells = array.array("d", [ELSEWHERE, count, time.monotonic() - ago_seconds])
    os.pwrite(file.fileno(), cells.tobytes(), (MOST_PROCESSES - 1) * len(cells) * cells.itemsize)
