"""Puts the parts together: the only file that names concrete parts. The console script starts here."""

import asyncio
import gc
import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import uvloop

from app.agents.registry import AgentDefaults, AgentRegistry, load_agents
from app.api.access import check_access
from app.api.app import create_app
from app.api.config import ApiConfig
from app.api.server import Ending, HttpServer, TcpAddress, bind_tcp, bind_unix, bound_url, ignore_repeated_signals
from app.api.services import Readiness, Services
from app.cli.parts import DatabaseStatus, KeyAdmin, LocalOptions, Parts, ServeOptions, WorkerOptions
from app.cli.root import build_cli
from app.context.explain import ContextReport
from app.context.transcript import SUMMARISER_SYSTEM_PROMPT
from app.db.database import Database, DatabaseConfig
from app.db.migrations import status, upgrade
from app.db.opening import Whereabouts, open_address, open_database
from app.domain.ids import SessionId, UserId
from app.domain.principal import Scope
from app.llm.counters import make_counter, warm_counter
from app.llm.registry import OFFLINE, ModelRegistry, ModelsConfig
from app.settings import Settings, read_settings
from app.telemetry import PrometheusMetrics, set_up_logging
from app.tools.toolbox import ToolBox
from app.turn.calibrate import CalibrationCache
from app.turn.compact_result import CompactionResult
from app.turn.context_report import report_context
from app.turn.force import summarize_now
from app.turn.process_message import check_agent
from app.turn.state import TurnConfig, TurnParts
from app.turn.submit import submit_message
from app.worker.worker import Worker, WorkerConfig

VERSION = version("throughline")
MAX_TOOL_RESULT_BYTES = 5_000_000
CLOSING_SECONDS = 5.0


def main() -> None:
    """Run the command line."""
    parts = Parts(
        serve=lambda options: _run(_serve(options)),
        worker=lambda options: _run(_work(options)),
        open_local_service=open_local_service,
        keys=open_keys,
        upgrade_database=upgrade_database,
        database_status=database_status,
    )
    build_cli(parts)()


def _run(program: Coroutine[None, None, None]) -> None:
    ignore_repeated_signals()
    uvloop.run(program)


class SystemClock:
    """The real clock; everybody else is handed this one."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)  # noqa: TID251  # this is the clock that others ask

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


# ------------------------------------------------------------------------------------------------- the shared parts


@dataclass(frozen=True, slots=True)
class Runtime:
    """One process's share of the service: what turns need, and the worker that runs them."""

    settings: Settings
    database: Database
    agents: AgentRegistry
    turn_parts: TurnParts
    worker: Worker
    metrics: PrometheusMetrics


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncGenerator[Runtime]:
    """Yield the parts. Raises at once where an agent, its model or a tool of its cannot be used."""
    metrics, clock = PrometheusMetrics(), SystemClock()
    agents = load_agents([settings.agents_dir] if settings.agents_dir else [], _agent_defaults(settings))
    tools = ToolBox(
        extra=[name for agent in agents.all() for name in agent.tools],
        timeout_seconds=settings.tool_timeout_seconds,
        max_result_bytes=MAX_TOOL_RESULT_BYTES,
    )
    models = ModelRegistry(_models_config(settings))
    async with _database(settings) as database:
        parts = TurnParts(
            store=database,
            models=models,
            tools=tools,
            agents=agents,
            calibrations=CalibrationCache(database.calibrations, clock),
            summaries=database.summaries,
            metrics=metrics,
            clock=clock,
            make_counter=make_counter,
            config=TurnConfig(deadline_seconds=settings.turn_timeout_seconds),
        )
        worker = Worker(parts, database.hub.work, _worker_config(settings))
        database.hub.on_cancel(worker.on_cancel)
        try:
            await _check_agents(parts)
            yield Runtime(settings, database, agents, parts, worker, metrics)
        finally:
            await models.close()


async def _check_agents(parts: TurnParts) -> None:
    """Put every agent's cast together once: what could fail a turn for ever fails the start instead."""
    for agent in parts.agents.all():
        await warm_counter((await check_agent(parts, agent)).counter)


# --------------------------------------------------------------------------------------------------- the programs


async def _serve(options: ServeOptions) -> None:
    settings = read_settings(options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    host = options.host or settings.host
    async with open_runtime(settings) as runtime:
        config = await _api_config(runtime, host)
        listener = bind_tcp(TcpAddress(host, settings.port if options.port is None else options.port))
        print(f"Throughline is serving on {bound_url(listener)}", flush=True)  # noqa: T201  # the program's one line
        await _serve_on(listener, runtime, config, _Manner(has_worker=not options.no_worker))


async def _work(options: WorkerOptions) -> None:
    settings = read_settings(options.data_dir)
    if options.concurrency is not None:
        settings = settings.model_copy(update={"worker_concurrency": options.concurrency})
    set_up_logging(settings.log_level, settings.log_format)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with open_runtime(settings) as runtime, runtime.worker.working():
        print("Throughline worker is running", flush=True)  # noqa: T201  # the program's one line
        await stopped.wait()


@asynccontextmanager
async def open_local_service(options: LocalOptions) -> AsyncGenerator[Path]:
    """Yield the path of a unix socket on which this very process serves the API to its own user."""
    settings = _quiet(options)
    config = ApiConfig(version=VERSION, max_body_bytes=settings.max_body_bytes, trusted_socket=True)
    with tempfile.TemporaryDirectory(prefix="throughline-") as folder:
        path = Path(folder) / "api.sock"
        async with open_runtime(settings) as runtime:
            manner = _Manner(by_signal=False)
            serving = asyncio.create_task(_serve_on(bind_unix(path), runtime, config, manner))
            try:
                yield path
            finally:
                manner.stop.set()
                await serving


@asynccontextmanager
async def open_keys(options: LocalOptions) -> AsyncGenerator[KeyAdmin]:
    """Yield the store of API keys."""
    async with _database(_quiet(options)) as database:
        yield database.keys


async def upgrade_database(options: LocalOptions) -> None:
    """Bring the schema to the newest revision."""
    async with open_address(_whereabouts(_quiet(options))) as url:
        await upgrade(url)


async def database_status(options: LocalOptions) -> DatabaseStatus:
    """Return the schema's revision and the newest one."""
    async with open_address(_whereabouts(_quiet(options))) as url:
        found = await status(url)
    return DatabaseStatus(current=found.current, head=found.head, is_current=found.is_current)


@dataclass(frozen=True, slots=True)
class _Manner:
    """How to serve: with turns in this process or not, stopped by signals or by `stop`."""

    has_worker: bool = True
    by_signal: bool = True
    stop: asyncio.Event = field(default_factory=asyncio.Event)


async def _serve_on(listener: socket.socket, runtime: Runtime, config: ApiConfig, manner: _Manner) -> None:
    """Serve until stopped. Turns get their grace first; streams without a last event are then aborted."""
    stopping = asyncio.Event()

    async def before_closing() -> None:
        await runtime.worker.drain()
        stopping.set()

    app = create_app(_services(runtime, stopping, has_worker=manner.has_worker), config)
    grace = runtime.settings.shutdown_grace_seconds + CLOSING_SECONDS
    server = HttpServer(app, listener, Ending(before_closing, grace, by_signal=manner.by_signal))
    watching = asyncio.create_task(_stop_when(manner.stop, server))
    gc.freeze()  # what is loaded by now stays: collections need not walk it again and again
    async with runtime.worker.working() if manner.has_worker else nullcontext():
        await server.run_until_stopped()
    watching.cancel()


async def _stop_when(stop: asyncio.Event, server: HttpServer) -> None:
    await stop.wait()
    server.stop()


def _services(runtime: Runtime, stopping: asyncio.Event, *, has_worker: bool) -> Services:
    database, parts = runtime.database, runtime.turn_parts
    slots = runtime.worker if has_worker else None

    async def report(owner_id: UserId, session_id: SessionId) -> ContextReport:
        return await report_context(parts, await database.sessions.get(owner_id, session_id))

    async def summarize(owner_id: UserId, session_id: SessionId, instructions: str) -> CompactionResult:
        return await summarize_now(parts, await database.sessions.get(owner_id, session_id), instructions)

    async def check_ready() -> Readiness:
        await database.check_ready()
        return Readiness({"database": True, "worker": runtime.worker.is_claiming or not has_worker})

    return Services(
        database=database,
        agents=runtime.agents,
        submit=lambda submission: submit_message(submission, database, slots),
        report_context=report,
        summarize_now=summarize,
        render_metrics=runtime.metrics.render,
        check_ready=check_ready,
        clock=parts.clock,
        shutting_down=stopping,
    )


# ---------------------------------------------------------------------------------------- small values handed down


def _quiet(options: LocalOptions) -> Settings:
    """The settings for a command that talks to a person: only errors are logged, to standard error."""
    settings = read_settings(options.data_dir)
    set_up_logging("ERROR", settings.log_format)
    return settings


def _whereabouts(settings: Settings) -> Whereabouts:
    return Whereabouts(url=settings.database_url, data_dir=settings.data_dir)


def _database(settings: Settings) -> AbstractAsyncContextManager[Database]:
    config = DatabaseConfig(
        url="",
        pool_size=settings.db_pool_size,
        pool_timeout_seconds=settings.db_pool_timeout_seconds,
        max_queued_per_session=settings.max_queued_per_session,
    )
    return open_database(_whereabouts(settings), config, migrate=settings.migrate_on_start)


async def _api_config(runtime: Runtime, host: str) -> ApiConfig:
    settings, keys = runtime.settings, runtime.database.keys
    if settings.bootstrap_api_key:
        await keys.ensure(settings.bootstrap_api_key, "admin", frozenset(Scope))
    has_keys = await keys.any_exists()
    check_access(host, has_keys=has_keys)
    return ApiConfig(
        version=VERSION,
        cors_origins=settings.cors_origins,
        max_body_bytes=settings.max_body_bytes,
        is_local_mode=not has_keys,
        no_worker_timeout_seconds=settings.no_worker_timeout_seconds,
    )


def _agent_defaults(settings: Settings) -> AgentDefaults:
    """Without a summary model and a default model of the operator's, an agent summarises with its own model."""
    configured = "" if settings.default_llm == OFFLINE else settings.default_llm
    return AgentDefaults(
        usage_threshold=settings.context_usage_threshold,
        summary_model=settings.context_summary_model or configured,
    )


def _models_config(settings: Settings) -> ModelsConfig:
    return ModelsConfig(
        default_model=settings.default_llm,
        default_base_url=settings.default_llm_base_url or None,
        idle_timeout_seconds=settings.model_idle_timeout_seconds,
        summariser_marker=SUMMARISER_SYSTEM_PROMPT,
    )


def _worker_config(settings: Settings) -> WorkerConfig:
    return WorkerConfig(
        name=f"{socket.gethostname()}:{os.getpid()}",
        concurrency=settings.worker_concurrency,
        lease_seconds=settings.lease_seconds,
        grace_seconds=settings.shutdown_grace_seconds,
    )
