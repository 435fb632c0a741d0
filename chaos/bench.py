"""A bench: one database with a process on it that dies or stops where it is told to, and a client that goes on."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.client import Client, GaveUp, open_client
from chaos.client_log import Sent
from chaos.findings import Fault, Finding
from chaos.grounds import GRACE_SECONDS, LEASE_SECONDS, Grounds
from chaos.points import KillPoint, Orders, points_of
from chaos.programs import Program, start_server, start_worker
from chaos.stored import forget_calibration
from chaos.traced_node import TracedNode
from chaos.turns import TurnKind, lead_up
from fakes.service_process import free_port

TRACES = 3
AFTERMATH_SECONDS = 1.5
"""How long after its answer a turn may still come past a place."""

LONGEST_SECONDS = 40.0
WAKING_SECONDS = 0.7
"""What a process that was stopped gets to do whatever it still wants to do."""


@dataclass(frozen=True, slots=True)
class Form:
    """Which process is killed: one that serves and works, or a worker alone beside a server that lives."""

    name: str
    serves: bool


FORMS = (Form("serve", serves=True), Form("worker", serves=False))


@dataclass(slots=True)
class Bench:
    """One database with its node, and the client that talks to it."""

    form: Form
    node: TracedNode
    client: Client
    database_url: str
    server: Program | None
    calls_log: Path
    hits: int = 0
    recoveries: list[float] = field(default_factory=list)
    late: list[Finding] = field(default_factory=list)
    turns: int = 0

    async def kill_at(self, kind: TurnKind, point: KillPoint) -> bool:
        """Play a turn of the kind whose process dies at the point; False where the turn did not come past it."""
        self.turns += 1
        sent = await lead_up(self.client, kind, f"{self.form.name}-{kind.name}-{self.turns}")
        await self.node.order(Orders(point))
        answering = asyncio.create_task(self.client.send(sent, timeout_seconds=LONGEST_SECONDS))
        if not await self._dies(answering) and await self.node.order(Orders()):
            await answering
            return False
        died = time.monotonic()
        self.hits += 1
        await forget_calibration(self.database_url)
        await self.node.follow()
        await self._recover(answering, sent, died, f"{self.form.name}/{kind.name}: {point}")
        return True

    async def stop_at(self, kind: TurnKind, point: KillPoint) -> bool:
        """Play a turn of the kind whose process stops at the point, and goes on when another has ended the turn."""
        self.turns += 1
        sent = await lead_up(self.client, kind, f"{self.form.name}-{kind.name}-{self.turns}")
        await self.node.order(Orders(point, signal.SIGSTOP))
        answering = asyncio.create_task(self.client.send(sent, timeout_seconds=LONGEST_SECONDS))
        if not await self._stops(answering) and await self.node.order(Orders()):
            await answering
            return False
        stopped = time.monotonic()
        self.hits += 1
        other = await start_worker(self.node.start)
        await self._recover(answering, sent, stopped, f"{self.form.name}/{kind.name}: {point}")
        self.node.running.tell(signal.SIGCONT)
        await asyncio.sleep(WAKING_SECONDS)
        await other.kill()
        return True

    async def points(self, kind: TurnKind) -> tuple[KillPoint, ...]:
        """Return the points of a kind of turn, from several traces."""
        return points_of([await self.trace(kind) for _ in range(TRACES)])

    async def trace(self, kind: TurnKind) -> tuple[KillPoint, ...]:
        """Play a turn of the kind undisturbed and return what it came past."""
        self.turns += 1
        sent = await lead_up(self.client, kind, f"{self.form.name}-{kind.name}-{self.turns}")
        await self.node.order(Orders())
        await self.client.send(sent)
        await asyncio.sleep(AFTERMATH_SECONDS)
        return self.node.trace()

    async def _dies(self, answering: "asyncio.Task[Sent]") -> bool:
        death = asyncio.create_task(self.node.running.process.wait())
        await asyncio.wait({death, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not death.done():
            await asyncio.wait({death}, timeout=AFTERMATH_SECONDS)
        death.cancel()
        return death.done() and not death.cancelled()

    async def _stops(self, answering: "asyncio.Task[Sent]") -> bool:
        answered: float | None = None
        while answered is None or time.monotonic() - answered < AFTERMATH_SECONDS:
            if self.node.running.is_stopped:
                return True
            if answered is None and answering.done():
                answered = time.monotonic()
            await asyncio.sleep(0.02)
        return False

    async def _recover(self, answering: "asyncio.Task[Sent]", sent: Sent, lost_at: float, where: str) -> None:
        """Wait for the answer; it is late when it comes 5 s after the lease was over and somebody there to take it."""
        due = max(time.monotonic(), lost_at + LEASE_SECONDS)
        try:
            await answering
        except GaveUp as error:
            self.late.append(Finding(Fault.STUCK, f"{where}: {error}"))
            return
        answered = sent.answered_at or time.monotonic()
        self.recoveries.append(max(answered - lost_at, 0))
        if answered > due + GRACE_SECONDS:
            self.late.append(Finding(Fault.STUCK, f"{where}: answered {answered - due:.1f} s after it could be"))


@asynccontextmanager
async def open_bench(grounds: Grounds, form: Form, url: str) -> AsyncGenerator[Bench]:
    """Start what the form needs, on a database of its own."""
    port = free_port()
    settings = {"DATABASE_URL": url}
    server = None
    if form.serves:
        node = TracedNode(grounds.start("serve", **settings), port, grounds.folder / f"{form.name}-{port}")
    else:
        server = await start_server(grounds.start("serve", "--no-worker", **settings), port=port)
        node = TracedNode(grounds.start("worker", **settings), None, grounds.folder / f"{form.name}-{port}")
    try:
        await node.begin()
        async with open_client([f"http://127.0.0.1:{port}"]) as client:
            yield Bench(form, node, client, url, server, grounds.calls_log)
    finally:
        await node.end()
        if server is not None:
            await server.kill()
