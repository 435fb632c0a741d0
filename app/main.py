"""Puts the parts together: the only file that names concrete parts. The console script starts here."""

import asyncio
import gc
import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import uvloop

from app.agents.registry import AgentRegistry, load_agents
from app.api.access import check_access
from app.api.app import add_door, create_app
from app.api.config import ApiConfig
from app.api.descriptors import allow_connections
from app.api.protocol import ConnectionLimits
from app.api.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bind_unix, bound_url
from app.api.services import Readiness, Services
from app.cli.parts import DatabaseStatus, KeyAdmin, LocalOptions, Parts, ServeOptions, SlackOptions, WorkerOptions
from app.cli.root import build_cli
from app.context.explain import ContextReport
from app.db.database import Database, DatabaseConfig
from app.db.migrations import status, upgrade
from app.db.opening import DatabaseLocation, open_address, open_database
from app.db.vectors import prepare_vectors
from app.domain.ids import MessageId, SessionId, UserId
from app.domain.json_types import JsonObject
from app.domain.message import Content, Message, NewMessage
from app.domain.principal import Scope
from app.llm.counters import make_counter, warm_counter
from app.llm.registry import ModelRegistry
from app.memory_parts import MemoryShare, choose_embedder, open_memories
from app.model_parts import agent_defaults, models_config
from app.settings import Settings, read_settings
from app.slack.manifest import manifest
from app.slack_parts import HttpDoor, SlackShare, new_link_code, slack_over_http, slack_over_socket
from app.stopping import Stopping
from app.system_clock import SystemClock
from app.telemetry import PrometheusMetrics, set_up_logging
from app.tools.hooks import ImportedHooks
from app.tools.recall import make_recall_tools
from app.tools.toolbox import ToolBox
from app.turn.breaker import Breakers
from app.turn.calibrate import CalibrationCache
from app.turn.check_agents import assemble_agents, check_names
from app.turn.compact_result import CompactionResult
from app.turn.context_report import report_context
from app.turn.off_loop import compute_threads
from app.turn.pins import pin_message, unpin_message
from app.turn.preview import preview_context
from app.turn.prompting import count_new
from app.turn.state import TurnConfig, TurnParts
from app.turn.submit import submit_message
from app.turn.summarize_now import summarize_now
from app.worker.indexing import Indexing
from app.worker.jobs import JobHandlers, SideJobs
from app.worker.retention import Retention, RetentionConfig
from app.worker.summaries_ahead import PREPARE_SUMMARY, prepare_summary
from app.worker.worker import Worker, WorkerConfig

VERSION = version("throughline")
MAX_TOOL_RESULT_BYTES = 5_000_000
CLOSING_SECONDS = 5.0
RECALL_COUNTER = "tiktoken"
"""Bounds what recall tools return, whatever the agent's own counter: near enough for a bound."""


def main() -> None:
    """Run the command line."""
    parts = Parts(
        serve=lambda options: _run(_serve(options)),
        worker=lambda options: _run(_work(options)),
        slack=lambda options: _run(_take_part_in_slack(options)),
        slack_manifest=manifest,
        slack_link_code=slack_link_code,
        open_local_service=open_local_service,
        keys=open_keys,
        upgrade_database=upgrade_database,
        database_status=database_status,
    )
    build_cli(parts)()


def _run(program: Coroutine[None, None, None]) -> None:
    with suppress(asyncio.CancelledError):  # stopped while it started
        uvloop.run(program)


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
    memories: MemoryShare


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncGenerator[Runtime]:
    """Yield the parts. Raises at once where an agent, its model or a tool of its cannot be used."""
    metrics, clock = PrometheusMetrics(), SystemClock()
    defaults = agent_defaults(settings)
    agents = load_agents([settings.agents_dir] if settings.agents_dir else [], defaults)
    models, embedder = ModelRegistry(models_config(settings)), choose_embedder(settings)
    async with (
        compute_threads(settings.compute_threads),
        _database(settings) as database,
        open_memories(settings, database, embedder, clock) as memories,
    ):
        tools = _tools(settings, database)
        check_names(agents.all(), defaults, models, tools)
        parts = TurnParts(
            store=database,
            models=models,
            tools=tools,
            agents=agents,
            calibrations=CalibrationCache(database.calibrations, clock),
            summaries=database.summaries,
            breakers=Breakers(clock),
            hooks=ImportedHooks(),
            metrics=metrics,
            clock=clock,
            make_counter=make_counter,
            config=TurnConfig(deadline_seconds=settings.turn_timeout_seconds),
        )
        jobs = _side_jobs(settings, parts, database, memories)
        worker = Worker(parts, database.hub.work, jobs, _worker_config(settings))
        database.hub.on_cancel(worker.on_cancel)
        try:
            for agent in await assemble_agents(parts):
                await warm_counter(agent.counter)
            yield Runtime(settings, database, agents, parts, worker, metrics, memories)
        finally:
            await models.close()


def _tools(settings: Settings, database: Database) -> ToolBox:
    return ToolBox(
        (),
        timeout_seconds=settings.tool_timeout_seconds,
        max_result_bytes=MAX_TOOL_RESULT_BYTES,
        built_in=make_recall_tools(database.history, make_counter(RECALL_COUNTER).count),
    )


# --------------------------------------------------------------------------------------------------- the programs


async def _serve(options: ServeOptions) -> None:
    settings = read_settings(options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    host = options.host or settings.host
    stopping = Stopping()
    async with open_runtime(settings) as runtime, slack_over_http(_slack_share(runtime)) as slack:
        mode = _ServeMode(has_worker=not options.no_worker, slack=slack, stop=stopping.asked)
        config = await _api_config(runtime, host)
        listener = bind_tcp(TcpAddress(host, settings.port if options.port is None else options.port))
        print(f"Throughline is serving on {bound_url(listener)}", flush=True)  # noqa: T201  # the program's one line
        stopping.started()
        await _serve_on(listener, runtime, config, mode)


async def _work(options: WorkerOptions) -> None:
    settings = read_settings(options.data_dir)
    if options.concurrency is not None:
        settings = settings.model_copy(update={"worker_concurrency": options.concurrency})
    set_up_logging(settings.log_level, settings.log_format)
    stopping = Stopping()
    async with open_runtime(settings) as runtime, runtime.worker.working():
        stopping.started()
        print("Throughline worker is running", flush=True)  # noqa: T201  # the program's one line
        await stopping.asked.wait()


async def _take_part_in_slack(options: SlackOptions) -> None:
    settings = read_settings(options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    stopping = Stopping()
    async with open_runtime(settings) as runtime, slack_over_socket(_slack_share(runtime), turns=not options.no_worker):
        stopping.started()
        print("Throughline takes part in Slack", flush=True)  # noqa: T201  # the program's one line
        await stopping.asked.wait()


def _slack_share(runtime: Runtime) -> SlackShare:
    settings = runtime.settings
    return SlackShare(settings, runtime.database, runtime.turn_parts, runtime.worker, _worker_config(settings).name)


@asynccontextmanager
async def open_local_service(options: LocalOptions) -> AsyncGenerator[Path]:
    """Yield the path of a unix socket on which this very process serves the API to its own user."""
    settings = _quiet(options)
    config = ApiConfig(
        version=VERSION,
        max_body_bytes=settings.max_body_bytes,
        max_import_bytes=settings.max_import_bytes,
        trusted_socket=True,
    )
    with tempfile.TemporaryDirectory(prefix="throughline-") as folder:
        path = Path(folder) / "api.sock"
        async with open_runtime(settings) as runtime:
            mode = _ServeMode()
            serving = asyncio.create_task(_serve_on(bind_unix(path), runtime, config, mode))
            try:
                yield path
            finally:
                mode.stop.set()
                await serving


@asynccontextmanager
async def open_keys(options: LocalOptions) -> AsyncGenerator[KeyAdmin]:
    """Yield the store of API keys."""
    async with _database(_quiet(options)) as database:
        yield database.keys


async def slack_link_code(options: LocalOptions, user: str) -> str:
    """Return a code with which somebody in Slack becomes this user."""
    async with _database(_quiet(options)) as database:
        return await new_link_code(database, user)


async def upgrade_database(options: LocalOptions) -> None:
    """Bring the schema to the newest revision."""
    settings = _quiet(options)
    async with open_address(_database_location(settings)) as url:
        await upgrade(url)
        if settings.embedding_model:
            await prepare_vectors(url, may_create=True)


async def database_status(options: LocalOptions) -> DatabaseStatus:
    """Return the schema's revision and the newest one."""
    async with open_address(_database_location(_quiet(options))) as url:
        found = await status(url)
    return DatabaseStatus(current=found.current, head=found.head, is_current=found.is_current)


@dataclass(frozen=True, slots=True)
class _ServeMode:
    """How to serve: with turns in this process or not, until `stop`."""

    has_worker: bool = True
    slack: HttpDoor | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)


async def _serve_on(listener: socket.socket, runtime: Runtime, config: ApiConfig, mode: _ServeMode) -> None:
    """Serve until stopped. Turns get their grace first; streams without a last event are then aborted."""
    services = _services(runtime, has_worker=mode.has_worker)

    async def before_closing() -> None:
        await runtime.worker.drain()
        services.cut_off()

    app = create_app(services, config)
    if mode.slack is not None:
        add_door(app, mode.slack.path, mode.slack.endpoint)
    grace = runtime.settings.shutdown_grace_seconds + CLOSING_SECONDS
    limits = ConnectionLimits(max_connections=allow_connections(runtime.settings.max_connections))
    server = HttpServer(app, listener, Shutdown(before_closing, grace), limits)
    watching = asyncio.create_task(_stop_when(mode.stop, server))
    gc.freeze()  # what is loaded by now stays: collections need not walk it again and again
    async with runtime.worker.working() if mode.has_worker else nullcontext():
        await server.run_until_stopped()
    watching.cancel()


async def _stop_when(stop: asyncio.Event, server: HttpServer) -> None:
    await stop.wait()
    server.stop()


def _services(runtime: Runtime, *, has_worker: bool) -> Services:
    database, parts = runtime.database, runtime.turn_parts
    slots = runtime.worker if has_worker else None

    async def report(owner_id: UserId, session_id: SessionId) -> ContextReport:
        return await report_context(parts, await database.sessions.get(owner_id, session_id))

    async def summarize(owner_id: UserId, session_id: SessionId, instructions: str) -> CompactionResult:
        async with runtime.worker.occupied(owner_id):
            return await summarize_now(parts, await database.sessions.get(owner_id, session_id), instructions)

    async def preview(owner_id: UserId, session_id: SessionId, content: Content | None) -> JsonObject:
        return await preview_context(parts, await database.sessions.get(owner_id, session_id), content or "")

    async def pin(owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        return await pin_message(parts, database.pins, await database.sessions.get(owner_id, session_id), message_id)

    async def unpin(owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        return await unpin_message(database.pins, await database.sessions.get(owner_id, session_id), message_id)

    async def check_ready() -> Readiness:
        await database.check_ready()
        checks = {"database": True, "listener": database.hub.is_listening}
        if has_worker:
            checks |= {"worker": runtime.worker.is_claiming, "jobs": runtime.worker.is_taking_jobs}
        return Readiness(checks)

    return Services(
        database=database,
        memories=runtime.memories.keeper,
        agents=runtime.agents,
        submit=lambda submission: submit_message(submission, database, slots),
        report_context=report,
        preview_context=preview,
        pin_message=pin,
        unpin_message=unpin,
        summarize_now=summarize,
        render_metrics=runtime.metrics.render,
        check_ready=check_ready,
        count_message=partial(_count_message, parts),
        clock=parts.clock,
    )


async def _count_message(parts: TurnParts, agent: str, message: NewMessage) -> NewMessage:
    return await count_new(message, parts.make_counter(parts.agents.get(agent).context.token_counter))


# ---------------------------------------------------------------------------------------- small values handed down


def _quiet(options: LocalOptions) -> Settings:
    """The settings for a command that talks to a person: only errors are logged, to standard error."""
    settings = read_settings(options.data_dir)
    set_up_logging("ERROR", settings.log_format)
    return settings


def _database_location(settings: Settings) -> DatabaseLocation:
    return DatabaseLocation(url=settings.database_url, data_dir=settings.data_dir)


def _database(settings: Settings) -> AbstractAsyncContextManager[Database]:
    config = DatabaseConfig(
        url="",
        pool_size=settings.db_pool_size,
        pool_timeout_seconds=settings.db_pool_timeout_seconds,
        caps=settings.caps,
        search_language=settings.search_language,
    )
    return open_database(_database_location(settings), config, migrate=settings.migrate_on_start)


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
        max_import_bytes=settings.max_import_bytes,
        is_local_mode=not has_keys,
        shares_sessions=bool(settings.slack_bot_token),
        no_worker_timeout_seconds=settings.no_worker_timeout_seconds,
    )


def _side_jobs(settings: Settings, parts: TurnParts, database: Database, memories: MemoryShare) -> SideJobs:
    config = RetentionConfig(
        run_events_hours=settings.run_events_retention_hours,
        unused_summaries_days=settings.unused_summaries_retention_days,
        job_log_hours=settings.job_log_retention_hours,
    )
    retention = Retention(database.retention, parts.clock, config)
    schedules = (*retention.schedules(), *Indexing(database.history).schedules(), *memories.schedules)
    handlers = JobHandlers({PREPARE_SUMMARY: partial(prepare_summary, parts), **memories.kinds}, schedules)
    return SideJobs(database.jobs, database.make_job_consumer(), handlers, settings.job_concurrency)


def _worker_config(settings: Settings) -> WorkerConfig:
    return WorkerConfig(
        name=f"{socket.gethostname()}:{os.getpid()}",
        concurrency=settings.worker_concurrency,
        lease_seconds=settings.lease_seconds,
        grace_seconds=settings.shutdown_grace_seconds,
    )
