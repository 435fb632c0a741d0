"""Several processes of the service on one database, killed, paused and started again while clients are at work."""

import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from chaos.grounds import Grounds
from chaos.programs import Program, Start, start_server, start_worker
from fakes.service_process import free_port


@dataclass(slots=True)
class Node:
    """One place in the cluster, whichever process fills it. `port` is None for one that only works."""

    start: Start
    port: int | None
    program: Program
    deaths: int = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    async def replace(self) -> None:
        """Kill it and start the next one in its place."""
        await self.program.kill()
        self.deaths += 1
        self.program = await _begin(self.start, self.port)

    async def pause(self, seconds: float) -> None:
        """Stop it where it stands for so long."""
        self.program.tell(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.program.tell(signal.SIGCONT)


async def _begin(start: Start, port: int | None) -> Program:
    return await (start_worker(start) if port is None else start_server(start, port=port))


@asynccontextmanager
async def open_cluster(
    grounds: Grounds, *roles: Sequence[str], settings: dict[str, str] | None = None
) -> AsyncGenerator[list[Node]]:
    """Start one process for each role (`("serve", "--no-worker")`, `("worker",)`) and kill them at the end."""
    nodes: list[Node] = []
    try:
        for role in roles:
            start = grounds.start(*role, **(settings or {}))
            port = free_port() if role[0] == "serve" else None
            nodes.append(Node(start, port, await _begin(start, port)))
        yield nodes
    finally:
        for node in nodes:
            await node.program.kill()


def servers(nodes: Sequence[Node]) -> list[str]:
    """Return the addresses of those that serve."""
    return [node.url for node in nodes if node.port is not None]


def any_of(nodes: Sequence[Node], dice: random.Random) -> Node:
    """Return one of them by chance."""
    return dice.choice(list(nodes))
