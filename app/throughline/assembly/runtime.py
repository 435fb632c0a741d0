"""Dependencies of every process of the service: database, models, tools, agents, and the worker for turns."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import structlog

from throughline.assembly.database import open_configured_database
from throughline.assembly.env_file import prepare_environment
from throughline.assembly.models import agent_defaults, load_configured_agents, models_config
from throughline.assembly.recall import RecallShare, choose_embedder, open_recall
from throughline.assembly.reread_agents import rereading_agents, watch_agents
from throughline.assembly.tracing import open_tracing
from throughline.db.database import Database
from throughline.db.jobs.kinds import INDEX_OWNER, PREPARE_SUMMARY
from throughline.db.statements.new_ids import new_id
from throughline.domain.ids import ProcessId
from throughline.domain.process import Process, ProcessKind
from throughline.execution.breaker import Breakers
from throughline.execution.compute_threads import compute_threads
from throughline.llm.counters import make_counter, warm_counter
from throughline.llm.registry import ModelRegistry
from throughline.logs import dropped_lines
from throughline.prompting.agent_windows import log_windows
from throughline.prompting.calibrate import CalibrationCache
from throughline.recall.history_search import HistorySearch
from throughline.settings import Settings
from throughline.system_clock import SystemClock
from throughline.telemetry import PrometheusMetrics
from throughline.tools.built_in import make_built_in_tools
from throughline.tools.hooks import ImportedHooks
from throughline.tools.recall import make_recall_tools
from throughline.tools.tool import CallLimits
from throughline.tools.toolbox import ToolBox
from throughline.turn.check_agents import check_agents, check_names
from throughline.turn.context_requests import ContextRequests
from throughline.turn.state import TurnConfig, TurnDependencies
from throughline.worker.erase_sessions import ErasureConfig, SessionErasure
from throughline.worker.expired_waits import ExpiredWaits
from throughline.worker.indexing import Indexing, index_owner
from throughline.worker.jobs import JobRegistry, JobsConfig, SideJobs
from throughline.worker.prepare_summaries import prepare_summary
from throughline.worker.retention import Retention, RetentionConfig
from throughline.worker.waiting_turns import WaitingTurnsReport
from throughline.worker.worker import Worker, WorkerConfig

VERSION = version("throughline")
MAX_TOOL_RESULT_BYTES = 5_000_000
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
    metrics, clock, process = PrometheusMetrics(dropped_lines), SystemClock(), _new_process(kind)
    watch, agents = watch_agents(settings, kind), load_configured_agents(settings)
    models, embedder = ModelRegistry(models_config(settings)), choose_embedder(settings)
    async with (
        open_tracing(settings, process) as tracing,
        compute_threads(settings.compute_threads),
        open_configured_database(settings, kind) as database,
        open_recall(settings, kind, database, embedder, clock) as recall,
    ):
        check_names(agents.all(), agent_defaults(settings), models, tools := _tools(settings, recall.history))
        dependencies = TurnDependencies(
            runs=database.runs,
            messages=database.messages,
            events=database.events,
            history=recall.history,
            models=models,
            tools=tools,
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
        registry = _job_registry(settings, dependencies, database, recall, metrics)
        jobs = SideJobs(database.jobs, registry, metrics, JobsConfig(process.name, settings.job_concurrency))
        worker = _make_worker(dependencies, database, jobs, _worker_config(settings, process))
        context = ContextRequests(dependencies, database.sessions, database.pins, worker.occupied)
        async with _checked_agents(models, dependencies, rereading_agents(settings, kind, watch, dependencies)):
            yield Runtime(settings, process, database, dependencies, worker, metrics, recall, context)


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


def _make_worker(dependencies: TurnDependencies, database: Database, jobs: SideJobs, config: WorkerConfig) -> Worker:
    worker = Worker(dependencies, database.notifier.work, jobs, config)
    database.notifier.on_cancel(worker.on_cancel)
    return worker


def _tools(settings: Settings, history: HistorySearch) -> ToolBox:
    recall = make_recall_tools(history, make_counter(RECALL_COUNTER).count)
    limits = CallLimits(settings.tool_timeout_seconds, MAX_TOOL_RESULT_BYTES)
    return ToolBox(make_built_in_tools(*recall), limits)


def _job_registry(
    settings: Settings,
    dependencies: TurnDependencies,
    database: Database,
    recall: RecallShare,
    metrics: PrometheusMetrics,
) -> JobRegistry:
    config = RetentionConfig(
        run_events_hours=settings.run_events_retention_hours,
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
    return JobRegistry({PREPARE_SUMMARY: prepare, INDEX_OWNER: index, **recall.kinds}, schedules, reports)


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
