"""Serving of the REST API on a listening socket, with or without turns in this process.

Serving ends when it is stopped, or when the claim loop fails; it then raises ClaimingFailed.
"""

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from throughline.assembly.database import database_location
from throughline.assembly.front_ends import routes
from throughline.assembly.runtime import Runtime
from throughline.db.connection.migrations import head_revision
from throughline.db.connection.replica import explain_refusal
from throughline.db.service_status import HEARTBEAT_SECONDS, ProcessRepository
from throughline.domain.basic_types import Clock, UserId
from throughline.domain.errors import ClaimingFailed
from throughline.domain.replica import ReplicaReport
from throughline.domain.service_status import Process, ProcessState, ServiceStatus
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.http.accept import ConnectionCounts
from throughline.http.app import Endpoint, FrontEndHealth, FrontEndProcess, add_interface, create_app
from throughline.http.server import HttpServer, Shutdown, limit_connections
from throughline.http.services import ApiConfig, Readiness, Services
from throughline.stopping import first_of
from throughline.turn.model_breakers import read_breakers
from throughline.turn.prompting.agent_windows import agent_window
from throughline.turn.submit import submit_message
from throughline.turn.tool_server_reports import read_tool_servers

YOUNG_OBJECTS = 8_000
YOUNG_PASSES = 10
MIDDLE_PASSES = 40
"""Thresholds of the collector's generations, in place of Python's own (700, 10, 10).

With Python's own, each turn paid for passes over all objects that the process keeps. After two minutes of load, these
passes took a tenth of the time, in pauses of a quarter of a second. Python counts created objects minus freed ones, so
under steady load a young pass visits up to five times YOUNG_OBJECTS.
"""


def tune_collector() -> None:
    """Exclude all objects that exist now from garbage collection, and collect others rarely.

    Each program calls it once its own set-up is complete: it runs for weeks.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, MIDDLE_PASSES)


LOOK_SECONDS = 0.5
FORGET_SECONDS = 2.0
"""Seconds that a process waits at its end for the deletion of its row. A row that stays is shown as silent."""

log = structlog.get_logger(__name__)


class ProcessHeartbeats:
    """Heartbeat that writes the process's row every HEARTBEAT_SECONDS.

    It also writes soon after the process began or stopped to take turns or to listen.
    """

    def __init__(
        self, processes: ProcessRepository, process: Process, read_state: Callable[[], ProcessState], clock: Clock
    ) -> None:
        """Prepare the heartbeat. Nothing is written before `run`."""
        self._processes = processes
        self._process = process
        self._read_state = read_state
        self._clock = clock
        self._started_at = self._written_at = clock.monotonic()
        self._shown: tuple[bool, bool] | None = None

    async def run(self) -> None:
        """Write the row at intervals until cancelled; failures are only logged."""
        while True:
            state, now = self._read_state(), self._clock.monotonic()
            shown = (state.is_claiming, state.is_listening)
            if shown != self._shown or now - self._written_at >= HEARTBEAT_SECONDS:
                self._written_at, self._shown = now, shown
                with ErrorBoundary(log.info, "process heartbeat failed"):
                    await self._processes.heartbeat(self._process, state, up_seconds=now - self._started_at)
            await self._clock.sleep(LOOK_SECONDS)

    async def forget(self) -> None:
        """Delete the process's row, if the database answers within FORGET_SECONDS; a failure is only logged."""
        with ErrorBoundary(log.info, "process heartbeat deletion failed"):
            async with asyncio.timeout(FORGET_SECONDS):
                await self._processes.forget(self._process.id)


@asynccontextmanager
async def noted(runtime: Runtime, *, has_worker: bool) -> AsyncGenerator[None]:
    """Keep the row of this process in the table `processes` up to date while the context is open.

    `has_worker`: this process runs turns of all users. The row is deleted at the end.
    """

    def read_state() -> ProcessState:
        worker = runtime.worker
        return ProcessState(
            concurrency=worker.concurrency if has_worker else 0,
            open_turns=worker.open_turns,
            jobs_in_hand=worker.jobs_in_hand,
            is_claiming=has_worker and worker.is_claiming,
            is_listening=runtime.database.notifier.is_as_set,
        )

    heartbeats = ProcessHeartbeats(
        runtime.database.processes, runtime.process, read_state, runtime.turn_dependencies.clock
    )
    try:
        async with running_concurrently(heartbeats.run, "process heartbeat"):
            yield
    finally:
        await heartbeats.forget()


def make_services(runtime: Runtime, *, has_worker: bool, front_ends: Sequence[FrontEndHealth] = ()) -> Services:
    """Return the dependencies of the REST routes.

    `has_worker`: turns run in this process. `front_ends`: the state of those that run in it.
    """
    database, context = runtime.database, runtime.context
    slots = runtime.worker if has_worker else None
    return Services(
        database=database,
        memories=runtime.recall.memories,
        history=runtime.recall.history,
        agents=runtime.turn_dependencies.agents,
        submit=lambda submission: submit_message(submission, database.runs, slots),
        report_context=context.report_with_quotations,
        preview_context=context.preview,
        pin_message=context.pin,
        unpin_message=context.unpin,
        check_input=context.check_input,
        check_input_for=context.check_input_for,
        summarize_now=context.summarize,
        check_summary=context.check_summary,
        estimate_summary=context.estimate,
        render_metrics=runtime.metrics.render,
        check_ready=partial(_check_ready, runtime, front_ends, has_worker=has_worker),
        read_status=partial(_read_status, runtime),
        count_messages=context.count,
        agent_window=partial(agent_window, runtime.turn_dependencies),
        clock=runtime.turn_dependencies.clock,
    )


def front_end_process(runtime: Runtime) -> FrontEndProcess:
    """Return what the front ends that run in this process get."""
    settings, dependencies = runtime.settings, runtime.turn_dependencies
    return FrontEndProcess(
        name=runtime.process.name,
        settings=settings,
        database=runtime.database,
        agents=dependencies.agents,
        context=runtime.context,
        clock=dependencies.clock,
        concurrency=settings.worker_concurrency,
        lease_seconds=settings.lease_seconds,
    )


async def _read_status(runtime: Runtime) -> ServiceStatus:
    found = await runtime.database.status.read()
    where = database_location(runtime.settings).description
    dependencies = runtime.turn_dependencies
    breakers, files = read_breakers(dependencies), dependencies.agents.describe_files()
    servers = read_tool_servers(dependencies)
    replica = runtime.database.reads.report()
    return replace(found, database=where, breakers=breakers, agent_files=files, tool_servers=servers, replica=replica)


async def _check_ready(runtime: Runtime, front_ends: Sequence[FrontEndHealth], *, has_worker: bool) -> Readiness:
    schema = await runtime.database.check_ready()
    checks = {"database": True}
    hints = {
        "schema": schema == head_revision(),  # a newer schema has all that this version needs
        "listener": runtime.database.notifier.is_as_set,  # without it, waiting calls poll: slower
    }
    if has_worker:
        checks |= {"worker": runtime.worker.is_claiming, "jobs": runtime.worker.is_taking_jobs}
    else:
        hints["workers"] = await runtime.database.processes.count_claiming() > 0
    ready = _with_replica(Readiness(checks, hints), runtime.database.reads.report())
    for each in front_ends:
        ready = each.added_to(ready)
    return ready


def _with_replica(ready: Readiness, replica: ReplicaReport | None) -> Readiness:
    """Return the readiness with a hint whether the replica answers. None: there is no replica."""
    if replica is None:
        return ready
    trouble = None
    if replica.is_refused:
        trouble = f"the primary answers in place of {replica.place}: {explain_refusal(replica.state)}"
    return ready.with_hint("replica", trouble)


CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServeMode:
    """How to serve the REST API until `stop` is set.

    `has_worker`: turns run in this process, with `only_for` those of this user alone. `endpoints` are served, too.
    `health` has further parts of the process's readiness. `counts`: other processes share the listening socket.
    """

    has_worker: bool = True
    only_for: UserId | None = None
    endpoints: tuple[Endpoint, ...] = ()
    health: tuple[FrontEndHealth, ...] = ()
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    counts: ConnectionCounts | None = None


@asynccontextmanager
async def serving_on(
    listener: socket.socket, runtime: Runtime, config: ApiConfig, mode: ServeMode
) -> AsyncGenerator[None]:
    """Serve the REST API on `listener` while the context is open. Raises ClaimingFailed if the claim loop crashed."""
    async with noted(runtime, has_worker=mode.has_worker and mode.only_for is None):
        serving = asyncio.create_task(serve_on(listener, runtime, config, mode))
        try:
            yield
        finally:
            mode.stop.set()
            await serving


async def serve_on(listener: socket.socket, runtime: Runtime, config: ApiConfig, mode: ServeMode) -> None:
    """Serve the REST API on `listener` until `mode.stop` is set or the claim loop crashes.

    At the end turns get their grace period; unfinished event streams are then aborted. Raises ClaimingFailed after a
    crash of the claim loop.
    """
    health = [*mode.health, *(endpoint.health for endpoint in mode.endpoints)]
    services = make_services(runtime, has_worker=mode.has_worker, front_ends=health)

    async def before_closing() -> None:
        await runtime.worker.drain()
        services.cut_off()

    app = create_app(services, config, routes(runtime.settings))
    for endpoint in mode.endpoints:
        add_interface(app, endpoint.path, endpoint.app)
    grace = runtime.settings.shutdown_grace_seconds + CLOSING_SECONDS
    limits = replace(
        limit_connections(runtime.settings.max_connections), max_message_bytes=runtime.settings.max_body_bytes
    )
    server = HttpServer(app, listener, Shutdown(before_closing, grace), limits, mode.counts)
    tune_collector()
    working = runtime.worker.working(only_for=mode.only_for) if mode.has_worker else nullcontext(asyncio.Event())
    async with working as broken:
        watching = asyncio.create_task(_stop_when(server, mode.stop, broken))
        await server.run_until_stopped()
        watching.cancel()
    check_unbroken(broken)


async def _stop_when(server: HttpServer, *events: asyncio.Event) -> None:
    await first_of(*events)
    server.stop()


def check_unbroken(broken: asyncio.Event) -> None:
    """Raise ClaimingFailed if `broken` is set, which means that the claim loop has crashed.

    The program then ends with an error, and its supervisor can start it again.
    """
    if broken.is_set():
        raise ClaimingFailed(
            "The claim loop crashed, see the log above: this process took no more turns and has ended."
        )
