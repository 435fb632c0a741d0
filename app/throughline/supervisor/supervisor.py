"""The supervisor: it starts child processes that serve one port, replaces those that die, and stops all of them.

The supervisor holds the listening socket and hands it to each child. So no connection is refused while children are
replaced: those that nobody has accepted yet wait for the next child.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from throughline.stopping import first_of
from throughline.supervisor.child_process import ChildProcess, ChildProgram
from throughline.supervisor.line import ChildCount

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """How many children there are, and the times in seconds of supervision.

    - A child that has died is replaced after `first_pause`. The pause doubles, up to `longest_pause`, until a child has
      served for `healthy`.
    - A child whose event loop reports nothing for `silent` is killed.
    - A child that replaces a running one must serve within `start`.
    - A child that was asked to stop is killed after `end`.
    """

    children: int
    first_pause: float = 0.1
    longest_pause: float = 30.0
    healthy: float = 10.0
    silent: float = 60.0
    start: float = 300.0
    end: float = 60.0


@dataclass(slots=True)
class Slot:
    """One of the children that are kept running. `replaced` is set when another child takes the slot."""

    child: ChildProcess
    replaced: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Child processes that serve one listening socket.

    `replacing` asks for a replacement of all children, one after another, each time it is set.
    """

    def __init__(
        self,
        program: ChildProgram,
        listener: socket.socket,
        config: SupervisorConfig,
        replacing: asyncio.Event,
        on_end: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare the supervisor; `run` starts the children. `on_end` is called with the id of each ended process."""
        self.replacing = replacing
        self._program, self._listener, self._config = program, listener, config
        self._on_end = on_end
        self._number = 0
        self._children: set[ChildProcess] = set()
        self._noting: set[asyncio.Task[None]] = set()
        self._slots: list[Slot] = []
        self._stop = asyncio.Event()

    @property
    def children(self) -> frozenset[ChildProcess]:
        """The child processes that have not ended."""
        return frozenset(self._children)

    async def run(self, stop: asyncio.Event, on_started: Callable[[], None] = lambda: None) -> int:
        """Run the children until `stop` is set, then stop them. Return 0.

        If a child ends before it has served, at the first start, return its exit code; the others are stopped. The
        first child starts alone, so that what is wrong is told once.
        """
        self._stop = stop
        try:
            failed = await self._start_all()
            if failed is not None:
                return self._tell_failure(failed)
            on_started()
            keeping = [asyncio.create_task(self._keep(slot), name="keep child process") for slot in self._slots]
            keeping.append(asyncio.create_task(self._replace_when_asked(), name="replace child processes"))
            await stop.wait()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            self._listener.close()  # else new connections would wait for the end of all children
        finally:
            await asyncio.gather(*(child.end(self._config.end) for child in tuple(self._children)))
        return 0

    @staticmethod
    def _tell_failure(failed: ChildProcess) -> int:
        """Return the exit code for a child that ended in its start. It says itself why, unless a signal ended it."""
        if failed.exit_code < 0:
            log.error("child process killed in its start", process=failed.number, signal=-failed.exit_code)
        return failed.exit_code if failed.exit_code > 0 else 1

    async def _start_all(self) -> ChildProcess | None:
        """Start all children; return one that has failed, None if all serve."""
        first = await self._start()
        if not await first.is_started():
            return first
        others = [await self._start() for _ in range(self._config.children - 1)]
        started = await asyncio.gather(*(child.is_started() for child in others))
        self._slots = [Slot(child) for child in (first, *others)]
        self._tell_count()
        return next((child for child, is_started in zip(others, started, strict=True) if not is_started), None)

    async def _start(self) -> ChildProcess:
        self._number += 1
        child = await ChildProcess.start(self._program, self._listener, self._number, self._config.silent)
        self._children.add(child)
        noting = asyncio.create_task(self._note_changes(child), name=f"note child process {child.number}")
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
        return child

    async def _keep(self, slot: Slot) -> None:
        """Replace the slot's child each time it has died."""
        pause = self._config.first_pause
        while True:
            child = slot.child
            slot.replaced.clear()
            await first_of(child.ended, slot.replaced)
            if slot.child is not child:
                continue
            if child.served_seconds >= self._config.healthy:
                pause = self._config.first_pause
            log.error("child process died", process=child.number, exit_code=child.exit_code, pause_seconds=pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(2 * pause, self._config.longest_pause)
            await self._restart(slot, child)

    async def _restart(self, slot: Slot, dead: ChildProcess) -> None:
        """Start a child for the slot of a dead one, unless a replacement has taken the slot meanwhile.

        A child that does not serve in time is killed. If none can be started, the dead one stays in the slot.
        """
        child = await self._start_again() if slot.child is dead else None
        if child is None:
            return
        if slot.child is not dead:
            await child.end(self._config.end)
            return
        slot.child = child
        if not await child.is_started(self._config.start):
            child.kill()

    async def _start_again(self) -> ChildProcess | None:
        """Start a child; None if the system cannot start one now."""
        try:
            return await self._start()
        except OSError as error:
            log.error("child process not started", error=error.strerror or type(error).__name__)
            return None

    async def _replace_when_asked(self) -> None:
        while True:
            await self.replacing.wait()
            self.replacing.clear()
            await self._replace_all()

    async def _replace_all(self) -> None:
        """Replace each child: start another one, and stop the old one once the new one serves.

        If a new child fails, the remaining old ones go on.
        """
        log.info("child processes replaced one after another", children=len(self._slots))
        for slot in self._slots:
            new = await self._start_again()
            if new is None:
                return
            if not await new.is_started(self._config.start):
                log.error("new child process failed, replacement given up", process=new.number)
                await new.end(0)
                return
            old, slot.child = slot.child, new
            slot.replaced.set()
            await old.end(self._config.end)
        log.info("child processes replaced", children=len(self._slots))

    async def _note_changes(self, child: ChildProcess) -> None:
        """Tell all children the new count when this one is ready, and when it has ended."""
        await first_of(child.ready, child.ended)
        self._tell_count()
        await child.ended.wait()
        self._children.discard(child)
        self._on_end(child.pid)
        self._tell_count()

    def _tell_count(self) -> None:
        serving = min(sum(child.is_serving for child in self._children), self._config.children)
        for child in self._children:
            child.tell(ChildCount(serving, self._config.children))
