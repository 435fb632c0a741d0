"""Dependencies of every process of the service: database, models, tools, agents, and the worker for turns."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import structlog

from throughline.agent_graphs.imported_graphs import ImportedGraphs
from throughline.agents.registry import AgentRegistry
from throughline.assembly.database import is_guest, may_migrate, open_configured_database
from throughline.assembly.env_file import prepare_environment
from throughline.assembly.models import agent_defaults, load_configured_agents, models_config
from throughline.assembly.reread_agents import rereading_agents, watch_agents
from throughline.assembly.tool_servers import open_tool_servers
from throughline.db.database import Database
from throughline.db.side_jobs import (
    EMBED_HISTORY,
    EMBED_MEMORIES,
    FIND_UNEMBEDDED,
    INDEX_OWNER,
    PREPARE_SUMMARY,
    Schedule,
)
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import Clock, ProcessId
from throughline.domain.errors import SettingInvalid
from throughline.domain.service_status import Process, ProcessKind
from throughline.execution.breaker import Breakers
from throughline.execution.compute_threads import compute_threads
from throughline.llm.counters import make_counter, warm_counter
from throughline.llm.prices import read_prices
from throughline.llm.registry import EmbeddingConfig, LangChainEmbedder, ModelRegistry, make_embedder
from throughline.logs import dropped_lines
from throughline.metric_files import MULTIPROCESS_FOLDER
from throughline.ports.tracing import NO_TRACING, Tracing
from throughline.settings import Settings, read_variable
from throughline.system_clock import SystemClock
from throughline.telemetry import PrometheusMetrics
from throughline.tools.built_in import make_built_in_tools
from throughline.tools.make_function_tool import MAX_TOOL_RESULT_BYTES, CallLimits
from throughline.tools.memory import make_memory_tools
from throughline.tools.recall import make_recall_tools
from throughline.tools.toolbox import ImportedHooks, ToolBox
from throughline.turn.context_requests import ContextRequests
from throughline.turn.prompting.agent_windows import log_windows
from throughline.turn.prompting.calibrate import CalibrationCache
from throughline.turn.prompting.check_agents import check_agents, check_names
from throughline.turn.recall.embed_missing import (
    EmbeddingDependencies,
    EmbeddingModel,
    EmbedHistory,
    EmbedMemories,
    Pace,
)
from throughline.turn.recall.history_search import HistorySearch, MessageVectors
from throughline.turn.recall.memory_service import MemoryService, MemoryVectors
from throughline.turn.state import TurnConfig, TurnDependencies
from throughline.turn.worker.jobs import (
    ExpiredWaits,
    Indexing,
    JobRegistry,
    JobsConfig,
    SideJobs,
    WaitingTurnsReport,
    Work,
    embed_in_rounds,
    index_owner,
    prepare_summary,
)
from throughline.turn.worker.retention import ErasureConfig, Retention, RetentionConfig, SessionErasure
from throughline.turn.worker.worker import Worker, WorkerConfig

if TYPE_CHECKING:
    from throughline.tracing.otel_tracing import Exporting

TRACES_PATH = "/v1/traces"
_HEADER_NAME, _HEADER_VALUE = re.compile(r"[A-Za-z0-9_-]+"), re.compile(r"[ -~]+")
NOT_INSTALLED = "TRACING=otlp needs packages that are not installed: pip install 'throughline[otel]'"


@asynccontextmanager
async def open_tracing(settings: Settings, process: Process) -> AsyncGenerator[Tracing]:
    """Yield the recorder of traces; at the end of the block the last spans are sent.

    Raises SettingInvalid if the packages are not installed or the headers cannot be read.
    """
    if settings.tracing == "off":
        yield NO_TRACING
        return
    exporting = _start_exporting(settings, process)
    try:
        yield exporting.tracing
    finally:
        await asyncio.to_thread(exporting.close)


def _start_exporting(settings: Settings, process: Process) -> "Exporting":
    try:
        from throughline.tracing.otel_tracing import Exporting, TracingConfig  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise SettingInvalid(NOT_INSTALLED) from error
    config = TracingConfig(
        endpoint=traces_url(settings.tracing_endpoint),
        headers=read_headers(settings.tracing_headers_env),
        sample_ratio=settings.tracing_sample_ratio,
        with_texts=settings.tracing_texts,
        service={
            "service.name": "throughline",
            "service.version": process.version,
            "service.instance.id": process.name,
        },
    )
    return Exporting(config)


def traces_url(endpoint: str) -> str:
    """Return the address to which traces are sent: `/v1/traces` of an address without a path."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + TRACES_PATH


def read_headers(variable: str) -> Mapping[str, str]:
    """Return the HTTP headers in a variable, `name=value` separated by commas. Raises SettingInvalid.

    Values may have escapes such as `%20`, as in the variable that OpenTelemetry's own exporters read.
    """
    if not variable:
        return {}
    written = read_variable(variable)
    if not written:
        raise SettingInvalid(f"TRACING_HEADERS_ENV names {variable}, which is not set")
    pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    if not all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers.items()):
        raise SettingInvalid(f"{variable} must hold HTTP headers: name=value, separated by commas")
    return headers


EVERY = timedelta(minutes=5)
"""Interval at which texts without a vector are looked for, in addition to the start and each failure."""


@dataclass(frozen=True, slots=True)
class RecallShare:
    """Memories and search of the history, and the jobs and schedules by which a worker embeds both.

    `embed_soon` queues these jobs. It is None without an embedding model, and in a command on a server that others
    operate.
    """

    memories: MemoryService
    history: HistorySearch
    kinds: Mapping[str, Work] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    embed_soon: Callable[[], Awaitable[None]] | None = None


def choose_embedder(settings: Settings) -> LangChainEmbedder | None:
    """Return the configured embedding model, None without one. Raises SettingInvalid; needs no database."""
    if not settings.embedding_model:
        return None
    config = EmbeddingConfig(
        settings.embedding_model,
        settings.embedding_base_url or None,
        settings.embedding_dimensions,
        api_key_env=settings.embedding_api_key_env or None,
        read_variable=read_variable,
        prices=read_prices(settings.prices_file),
    )
    try:
        return make_embedder(config)
    except SettingInvalid as error:
        raise SettingInvalid(f"EMBEDDING_MODEL: {error.detail}") from error


@asynccontextmanager
async def open_recall(
    settings: Settings, kind: ProcessKind, database: Database, embedder: LangChainEmbedder | None, clock: Clock
) -> AsyncGenerator[RecallShare]:
    """Yield memories and search. With an embedding model, jobs are queued that embed texts without a vector.

    Raises DatabaseUnusable if vectors cannot be stored. A command on a server that others operate creates no vectors,
    because their model may be a different one.
    """
    if embedder is None:
        yield RecallShare(MemoryService(database.memories), HistorySearch(database.history))
        return
    try:
        await database.prepare_vectors(may_create=may_migrate(settings, kind))
        share = _share_with_vectors(settings, database, embedder, clock)
        if is_guest(settings, kind):
            share = replace(share, embed_soon=None)
        if share.embed_soon is not None:
            await share.embed_soon()
        yield share
    finally:
        await embedder.close()


def _share_with_vectors(
    settings: Settings, database: Database, embedder: LangChainEmbedder, clock: Clock
) -> RecallShare:
    kinds = (EMBED_MEMORIES, EMBED_HISTORY) if settings.embedding_history else (EMBED_MEMORIES,)
    model = EmbeddingModel(EmbeddingDependencies(embedder, database.jobs, clock, kinds, database.usage))
    memories = MemoryService(database.memories, MemoryVectors(model, database.memory_vectors))
    pace = Pace(clock, settings.embedding_calls_per_minute)
    of_memories = EmbedMemories(model, database.memory_vectors, pace)
    work: dict[str, Work] = {EMBED_MEMORIES: partial(embed_in_rounds, of_memories.run)}
    vectors = None
    if settings.embedding_history:
        vectors = MessageVectors(model, database.message_vectors)
        of_history = EmbedHistory(model, database.message_vectors, pace, clock)
        work[EMBED_HISTORY] = partial(embed_in_rounds, of_history.run)
    schedule = Schedule(FIND_UNEMBEDDED, EVERY, model.embed_soon)
    return RecallShare(memories, HistorySearch(database.history, vectors), work, (schedule,), model.embed_soon)


VERSION = version("throughline")
RANDOM_DIGITS = 8
RECALL_COUNTER = "tiktoken"
"""Token counter that limits the results of recall tools in calls that pass no counter of the agent's.

It is accurate enough for a limit.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The service's parts in one process: the dependencies of turns, and the worker that runs turns."""

    settings: Settings
    process: Process
    database: Database
    turn_dependencies: TurnDependencies
    worker: Worker
    metrics: PrometheusMetrics
    recall: RecallShare
    context: ContextRequests


@asynccontextmanager
async def open_runtime(settings: Settings, kind: ProcessKind) -> AsyncGenerator[Runtime]:
    """Yield the parts of a process. Raises AgentInvalid or SettingInvalid if an agent, model or tool cannot be used."""
    prepare_environment()
    metrics, clock, process = _new_metrics(), SystemClock(), _new_process(kind)
    watch, agents, models = watch_agents(settings, kind), _load_agents(settings, clock), _models(settings)
    async with (
        open_tracing(settings, process) as tracing,
        compute_threads(settings.compute_threads),
        _open_database(settings, kind, metrics) as database,
        open_recall(settings, kind, database, choose_embedder(settings), clock) as recall,
        open_tool_servers() as tool_servers,
    ):
        check_names(agents.all(), agent_defaults(settings), models, tools := _tools(settings, recall))
        dependencies = TurnDependencies(
            runs=database.runs,
            messages=database.messages,
            events=database.events,
            history=recall.history,
            memories=recall.memories,
            models=models,
            tools=tools,
            tool_servers=tool_servers,
            agent_graphs=ImportedGraphs(tools.specs),
            agents=agents,
            calibrations=CalibrationCache(database.calibrations, clock),
            summaries=database.summaries,
            breakers=Breakers(clock),
            usage=database.usage,
            hooks=ImportedHooks(),
            metrics=metrics,
            clock=clock,
            make_counter=make_counter,
            config=TurnConfig(deadline_seconds=settings.turn_timeout_seconds),
            tracing=tracing,
        )
        jobs = _side_jobs(settings, dependencies, database, recall, metrics, process=process.name)
        worker = _make_worker(settings, process, dependencies, database, jobs)
        context = ContextRequests(dependencies, database.sessions, database.pins, worker.occupied)
        async with _checked_agents(models, dependencies, rereading_agents(settings, kind, watch, dependencies)):
            yield Runtime(settings, process, database, dependencies, worker, metrics, recall, context)


def _models(settings: Settings) -> ModelRegistry:
    return ModelRegistry(models_config(settings))


@asynccontextmanager
async def _open_database(settings: Settings, kind: ProcessKind, metrics: PrometheusMetrics) -> AsyncGenerator[Database]:
    """Yield the configured database, whose reads with a replica are counted."""
    async with open_configured_database(settings, kind) as database:
        database.reads.on_read(metrics.replica_read)
        yield database


@asynccontextmanager
async def _checked_agents(
    models: ModelRegistry, dependencies: TurnDependencies, rereading: AbstractAsyncContextManager[object]
) -> AsyncGenerator[None]:
    """Raise if an agent cannot be used, log the windows, and load the token counters and prices of all agents.

    While the context is open, changed agents are read again. At its end the models are closed, whatever has happened.
    """
    try:
        agents = await check_agents(dependencies, dependencies.agents.all())
        log_windows(agents)
        for agent in agents:
            await warm_counter(agent.counter)
            await asyncio.to_thread(lambda model: model.is_priced, agent.model)  # loads the price list
        async with rereading:
            yield
    finally:
        await models.close()


def _make_worker(
    settings: Settings, process: Process, dependencies: TurnDependencies, database: Database, jobs: SideJobs
) -> Worker:
    worker = Worker(dependencies, database.notifier.work, jobs, _worker_config(settings, process))
    database.notifier.on_cancel(worker.on_cancel)
    return worker


def _load_agents(settings: Settings, clock: Clock) -> AgentRegistry:
    """Return the agents, read now. Raises AgentInvalid, SettingInvalid."""
    agents = load_configured_agents(settings)
    agents.replace_all(agents.all(), agents.files, clock.now())
    return agents


def _tools(settings: Settings, recall: RecallShare) -> ToolBox:
    of_history = make_recall_tools(recall.history, make_counter(RECALL_COUNTER).count)
    limits = CallLimits(settings.tool_timeout_seconds, MAX_TOOL_RESULT_BYTES)
    return ToolBox(make_built_in_tools(*of_history, *make_memory_tools(recall.memories)), limits)


def _side_jobs(  # noqa: PLR0913  # what the jobs need
    settings: Settings,
    dependencies: TurnDependencies,
    database: Database,
    recall: RecallShare,
    metrics: PrometheusMetrics,
    *,
    process: str,
) -> SideJobs:
    config = RetentionConfig(
        run_events_hours=settings.run_events_retention_hours,
        model_calls_months=settings.model_calls_retention_months,
        idempotency_keys_hours=settings.idempotency_keys_retention_hours,
        unused_summaries_days=settings.unused_summaries_retention_days,
        job_log_hours=settings.job_log_retention_hours,
    )
    retention = Retention(database.retention, dependencies.clock, metrics, config)
    kept = ErasureConfig(days=settings.archived_sessions_retention_days)
    archived = SessionErasure(database.archived_sessions, dependencies.clock, metrics, kept)
    expired = SessionErasure(database.expired_sessions, dependencies.clock, metrics, ErasureConfig())
    schedules = (
        *retention.schedules(),
        *archived.hourly(),
        *expired.often(),
        *Indexing(database.history).schedules(),
        *recall.schedules,
        *ExpiredWaits(database.runs, dependencies.clock).schedules(),
    )
    prepare = partial(prepare_summary, dependencies, database.history.index_session)
    index = partial(index_owner, database.history, recall.embed_soon)
    reports = (WaitingTurnsReport(database.runs, metrics).record,)
    registry = JobRegistry({PREPARE_SUMMARY: prepare, INDEX_OWNER: index, **recall.kinds}, schedules, reports)
    return SideJobs(database.jobs, registry, metrics, JobsConfig(process, settings.job_concurrency))


def _new_metrics() -> PrometheusMetrics:
    return PrometheusMetrics(dropped_lines, shared_folder=read_variable(MULTIPROCESS_FOLDER))


def _new_process(kind: ProcessKind) -> Process:
    """Return the identity of this process, new at each start.

    The name contains digits of a random id, because all containers that share a host's network are `host:1`.
    """
    process_id = new_id()
    return Process(
        ProcessId(process_id), kind, f"{socket.gethostname()}:{os.getpid()}:{process_id.hex[-RANDOM_DIGITS:]}", VERSION
    )


def _worker_config(settings: Settings, process: Process) -> WorkerConfig:
    """Return the configuration of this process's worker."""
    return WorkerConfig(
        name=process.name,
        concurrency=settings.worker_concurrency,
        lease_seconds=settings.lease_seconds,
        grace_seconds=settings.shutdown_grace_seconds,
    )
