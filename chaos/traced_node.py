"""A traced process of the service: takes orders, dies where it is told to, and is followed by the next one."""

import asyncio
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.points import ORDERED, KillPoint, Orders, read_trace
from chaos.programs import Program, Start, start_server, start_worker
from chaos.trace import ORDERS, TRACE
from chaos.worker_under_trace import FOLDER

ORDERS_SECONDS = 30.0


@dataclass(slots=True)
class TracedNode:
    """Starts traced processes one after the other, at the same `port` (None: one that serves nothing).

    The next one is started as soon as one has died, as any supervisor would.
    """

    start: Start
    port: int | None
    folder: Path
    program: Program | None = None
    deaths: int = 0
    _trace: Path = field(default_factory=Path)

    @property
    def running(self) -> Program:
        """The process of now. It was started before."""
        assert self.program is not None, "begin first"
        return self.program

    async def begin(self) -> None:
        """Start a process that kills nothing yet."""
        folder = self.folder / f"life-{self.deaths}"
        folder.mkdir(parents=True)
        self._trace = folder / TRACE
        environment = {**self.start.environment, FOLDER: str(folder)}
        start = replace(self.start, environment=environment, is_traced=True)
        self.program = await (start_worker(start) if self.port is None else start_server(start, port=self.port))

    async def order(self, orders: Orders) -> bool:
        """Give orders; return once they are in force, False where the process has died of the ones before."""
        fresh = self._trace.with_name(f"{ORDERS}.new")
        fresh.write_text(orders.written())
        fresh.replace(self._trace.with_name(ORDERS))
        before = self._count_orders()
        self.running.tell(signal.SIGUSR1)
        async with asyncio.timeout(ORDERS_SECONDS):
            while self._count_orders() == before and self.running.is_alive:
                await asyncio.sleep(0.01)
        return self._count_orders() > before

    def trace(self) -> tuple[KillPoint, ...]:
        """Return what was passed since the last orders."""
        return read_trace(self._trace)

    async def follow(self) -> None:
        """Start the next process; the one before is dead."""
        self.deaths += 1
        await self.begin()

    async def end(self) -> None:
        """Kill what runs."""
        if self.program is not None:
            await self.program.kill()

    def _count_orders(self) -> int:
        return self._trace.read_text().count(f'"side": "{ORDERED}"') if self._trace.exists() else 0
