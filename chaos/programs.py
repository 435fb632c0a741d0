"""The service's processes: born, killed, stopped and let go on."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fakes.service_process import ROOT, free_port

START_SECONDS = 90.0
WORKER_LINE = "Throughline worker is running"


class StartFailed(Exception):
    """A process ended, or was not ready in time; the text holds the end of its log."""


@dataclass(slots=True)
class Program:
    """One process, whoever's child it is. `url` is empty for what serves nothing."""

    pid: int
    url: str
    log: Path
    _handle: int = -1
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Take a handle, by which the process is meant even after its id was given to another."""
        try:
            self._handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._end)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as we have been told."""
        return not self._ended.is_set()

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still."""
        try:
            told = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return told.rpartition(")")[2].split()[0] == "T"

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._ended.wait()

    async def kill(self) -> None:
        """Kill -9, and wait for its end."""
        self.tell(signal.SIGKILL)
        await self.wait()

    def tell(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.is_alive:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                return

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        self._ended.set()


@dataclass(slots=True)
class Nursery:
    """The process that bears the others."""

    process: asyncio.subprocess.Process
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def bear(self, birth: Mapping[str, object]) -> int:
        """Return the process id of a newborn."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self._asking:
            self.process.stdin.write(json.dumps(birth).encode() + b"\n")
            answer = await self.process.stdout.readline()
        if not answer:
            raise StartFailed("the nursery has ended")
        return int(answer)


@asynccontextmanager
async def open_nursery() -> AsyncGenerator[Nursery]:
    """Run a nursery; at the end it kills whom it has born, even where we are killed ourselves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "chaos.nursery",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **python_path()},
    )
    try:
        yield Nursery(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a process of the service: `arguments` follow the program's name."""

    nursery: Nursery
    folder: Path
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    is_traced: bool = False


async def start_server(start: Start, *, port: int | None = None) -> Program:
    """Start `serve` on `port` (None: a free one); returns once it is ready."""
    port = port or free_port()
    with_port = (start.arguments[0], "--port", str(port), *start.arguments[1:])
    program = await _bear(start, with_port, f"http://127.0.0.1:{port}")
    async with httpx.AsyncClient(base_url=program.url, timeout=5) as client:
        await _until_ready(program, lambda: _answers(client))
    return program


async def start_worker(start: Start) -> Program:
    """Start `worker`; returns once it says that it runs."""
    program = await _bear(start, start.arguments, "")

    async def says() -> bool:
        return program.log.exists() and WORKER_LINE in program.log.read_text()

    await _until_ready(program, says)
    return program


def python_path() -> dict[str, str]:
    """Return the environment in which our packages are found."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


async def _bear(start: Start, arguments: tuple[str, ...], url: str) -> Program:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    log = start.folder / f"{arguments[0]}-{time.time_ns()}.log"
    birth = {
        "arguments": arguments,
        "environment": {**kept, **python_path(), **start.environment},
        "folder": str(start.folder),
        "log": str(log),
        "is_traced": start.is_traced,
    }
    return Program(await start.nursery.bear(birth), url, log)


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health/ready")).is_success
    except httpx.TransportError:
        return False


async def _until_ready(program: Program, is_ready: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while program.is_alive and not await is_ready():
                await asyncio.sleep(0.03)
    except TimeoutError:
        await program.kill()
    if not program.is_alive:
        raise StartFailed(f"ended, or not ready after {START_SECONDS:g} s: {tail(program.log)}")


def tail(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text("utf-8", "replace")[-2000:] if log.exists() else ""
