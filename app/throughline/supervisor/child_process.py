"""A supervisor's view of one of its child processes, from its start until its end."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from throughline.stopping import first_of
from throughline.supervisor.line import READY, ChildCount

PARTS = 6
"""Parts in which the time is waited for after which a silent child is killed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """The program of all child processes.

    `command` returns its arguments for three numbers: the file descriptors of the listening socket and of the line,
    and the number of the child: 1, 2, 3 … in the order of their starts. `environment` is the whole of theirs.
    `descriptors` are those of further files that they inherit.
    """

    command: Callable[[int, int, int], Sequence[str]]
    environment: Mapping[str, str]
    descriptors: Sequence[int] = ()


class ChildProcess:
    """A child process. `ready` is set once it serves, `ended` once it has ended.

    It is killed if its event loop reports nothing for `silent_seconds` after it was ready.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process, silent_seconds: float) -> None:
        """Use a started process; `start` makes one."""
        self.number = number
        self.ready, self.ended = asyncio.Event(), asyncio.Event()
        self._process = process
        self._silent_seconds = silent_seconds
        self._ready_at: float | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._following: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, program: ChildProgram, listener: socket.socket, number: int, silent_seconds: float
    ) -> "ChildProcess":
        """Start a child process, in a session of its own: signals of a terminal reach the supervisor only.

        Raises OSError if the system cannot start one now.
        """
        own, other = socket.socketpair()
        with other:
            try:
                process = await asyncio.create_subprocess_exec(
                    *program.command(listener.fileno(), other.fileno(), number),
                    env=dict(program.environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(listener.fileno(), other.fileno(), *program.descriptors),
                    start_new_session=True,
                )
            except BaseException:
                own.close()
                raise
        child = cls(number, process, silent_seconds)
        try:
            reader, child._writer = await asyncio.open_unix_connection(sock=own)
        except BaseException:  # nobody else knows the process yet
            own.close()
            child.kill()
            await process.wait()
            raise
        child._following = asyncio.create_task(child._follow(reader), name=f"follow child process {number}")
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int:
        """The exit code after the end; for a process that a signal ended, the signal's number, negative."""
        return self._process.returncode or 0

    @property
    def is_serving(self) -> bool:
        """Whether the process serves."""
        return self.ready.is_set() and not self.ended.is_set()

    @property
    def served_seconds(self) -> float:
        """The seconds since the process was ready, 0 if it never was."""
        return 0.0 if self._ready_at is None else time.monotonic() - self._ready_at

    async def is_started(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the process is ready or has ended, and return whether it is ready. False after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await first_of(self.ready, self.ended)
        return self.is_serving

    def tell(self, count: ChildCount) -> None:
        """Write the count on the line."""
        if self._writer is not None and not self.ended.is_set():
            self._writer.write(count.written())

    def terminate(self) -> None:
        """Ask the process to end its turns, then itself."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    async def end(self, timeout_seconds: float) -> None:
        """Ask the process to end, and return once it has; it is killed after the timeout."""
        self.terminate()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.ended.wait()
        except TimeoutError:
            log.error("child process did not stop, killed", process=self.number, pid=self.pid)
            self.kill()
            await self.ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Read the child's line until it ends, then wait for the process."""
        waiting = asyncio.create_task(self._process.wait(), name=f"wait for child process {self.number}")
        try:
            if await reader.readline() == READY:
                self._ready_at = time.monotonic()
                self.ready.set()
                await self._until_silent(reader)
        except OSError:
            log.info("line of child process broken", process=self.number)
        await waiting
        self.ended.set()
        if self._writer is not None:
            self._writer.close()

    async def _until_silent(self, reader: asyncio.StreamReader) -> None:
        """Read reports until the line ends. If none comes for `silent_seconds`, kill the process.

        The time is waited for in parts: after a pause of the whole machine one of them is over at once, and the reports
        that have come are read before the next.
        """
        silent = 0
        while silent < PARTS:
            try:
                report = await asyncio.wait_for(reader.readline(), self._silent_seconds / PARTS)
            except TimeoutError:
                silent += 1
                continue
            if not report:
                return
            silent = 0
        log.error("child process silent, killed", process=self.number, pid=self.pid, seconds=self._silent_seconds)
        self.kill()
