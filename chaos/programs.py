"""The service's processes: started, killed, stopped and let go on."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from fakes import programs
from fakes.service_process import fork, free_port, is_ready, tail

START_SECONDS = 90.0
WORKER_LINE = "Throughline worker is running"


class StartFailed(Exception):
    """A process ended, or was not ready in time; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """One process. `url` is empty for what serves nothing."""

    process: programs.Program
    url: str
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still."""
        try:
            told = Path(f"/proc/{self.process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return told.rpartition(")")[2].split()[0] == "T"

    async def kill(self) -> None:
        """Kill -9, and wait for its end."""
        self.tell(signal.SIGKILL)
        await self.process.wait()

    def tell(self, number: int) -> None:
        """Send it a signal, if it lives."""
        self.process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a process of the service: `arguments` follow the program's name."""

    folder: Path
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    is_traced: bool = False


async def start_server(start: Start, *, port: int | None = None) -> Program:
    """Start `serve` on `port` (None: a free one); returns once it is ready."""
    port = port or free_port()
    with_port = (start.arguments[0], "--port", str(port), *start.arguments[1:])
    program = await _started(start, with_port, f"http://127.0.0.1:{port}")
    async with httpx.AsyncClient(base_url=program.url, timeout=5) as client:
        await _until_ready(program, lambda: is_ready(client))
    return program


async def start_worker(start: Start) -> Program:
    """Start `worker`; returns once it says that it runs."""
    program = await _started(start, start.arguments, "")

    async def says() -> bool:
        return WORKER_LINE in program.log.read_text()

    await _until_ready(program, says)
    return program


async def _started(start: Start, arguments: tuple[str, ...], url: str) -> Program:
    log = start.folder / f"{arguments[0]}-{time.time_ns()}.log"
    module = "chaos.worker_under_trace" if start.is_traced else "throughline.main"
    process = await fork(programs.Start(start.folder, start.environment, arguments, log, module))
    return Program(process, url, log)


async def _until_ready(program: Program, has_begun: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while program.is_alive and not await has_begun():
                await asyncio.sleep(0.03)
    except TimeoutError:
        await program.kill()
    if not program.is_alive:
        raise StartFailed(f"ended, or not ready after {START_SECONDS:g} s: {tail(program.log)}")
