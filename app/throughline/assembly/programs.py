"""The programs `serve`, `worker` and those of front ends, and the service that a command starts for its own user."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TypeVar

import structlog
import uvloop

from throughline.api.front_end import create_health_app
from throughline.assembly.database import database_location, is_guest, read_quiet_settings
from throughline.assembly.env_file import read_program_settings
from throughline.assembly.front_ends import check_needed_agents, needed_agents, open_endpoints, program, routes
from throughline.assembly.runtime import VERSION, Runtime, open_runtime
from throughline.assembly.serve_processes import Membership, joined, serve_address
from throughline.assembly.serving import (
    ServeMode,
    check_unbroken,
    front_end_process,
    make_services,
    noted,
    serve_on,
    serving_on,
    tune_collector,
)
from throughline.cli.dependencies import FrontEndOptions, LocalOptions, ServeOptions, WorkerOptions
from throughline.domain.basic_types import UserId
from throughline.domain.keys import Scope
from throughline.domain.service_status import ProcessKind
from throughline.http.app import Endpoint, FrontEndHealth, Program
from throughline.http.auth import LOCAL_USER
from throughline.http.server import (
    HttpServer,
    Shutdown,
    TcpAddress,
    bind_tcp,
    bind_unix,
    bound_host,
    bound_url,
    limit_connections,
)
from throughline.http.services import ApiConfig, check_access
from throughline.llm.registry import OFFLINE
from throughline.logs import say, set_up_logging
from throughline.settings import Settings
from throughline.stopping import Stopping, first_of, ignore_hangup
from throughline.system_clock import SystemClock

MOST_CONNECTIONS = 100
"""Most connections, for monitoring only: a process with many turns needs its file descriptors elsewhere."""

CLOSING_SECONDS = 2.0
"""Longer than a connection lingers that has sent no request."""


@asynccontextmanager
async def health_served(
    runtime: Runtime, *, has_worker: bool, front_ends: Sequence[FrontEndHealth] = ()
) -> AsyncGenerator[str | None]:
    """Serve health and metrics on HEALTH_PORT while the context is open.

    Raises SettingInvalid if the process cannot listen on that port. Yields the URL, None if no port is set. While turns
    are drained inside the context, the process is live and not ready.
    """
    settings = runtime.settings
    if settings.health_port is None:
        yield None
        return
    services = make_services(runtime, has_worker=has_worker, front_ends=front_ends)
    app = create_health_app(services, ApiConfig(version=VERSION))
    listener = bind_tcp(TcpAddress(settings.host, settings.health_port, chosen_by="HOST and --health-port"))
    shutdown, limits = Shutdown(_nothing_to_end, CLOSING_SECONDS), limit_connections(MOST_CONNECTIONS)
    server = HttpServer(app, listener, shutdown, limits)
    serving = asyncio.create_task(server.run_until_stopped(), name="serve health")
    try:
        yield bound_url(listener)
    finally:
        server.stop()
        await asyncio.gather(serving, return_exceptions=True)


async def _nothing_to_end() -> None:
    """Do nothing before the server closes: no request for health or metrics takes long."""


log = structlog.get_logger(__name__)
Options = TypeVar("Options")


def _until_stopped(program: Callable[[Options], Coroutine[None, None, None]]) -> Callable[[Options], None]:
    """Turn a coroutine function into a program that runs until it is stopped, also while it starts."""

    @wraps(program)
    def run(options: Options) -> None:
        with suppress(asyncio.CancelledError):
            uvloop.run(program(options))

    return run


@_until_stopped
async def serve(options: ServeOptions) -> None:
    """Serve the REST API until stopped, also as one of several processes that share a port."""
    settings = read_program_settings(options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    stopping = Stopping()
    if options.child is not None:
        ignore_hangup()
    async with (
        open_runtime(settings, ProcessKind.SERVE) as runtime,
        joined(options.child, stopping, runtime.metrics.count_dropped_lines) as membership,
        open_endpoints(front_end_process(runtime)) as endpoints,
    ):
        listener = membership.listener if membership else bind_tcp(serve_address(options, settings))
        health = () if membership is None else (membership,)
        mode = ServeMode(
            has_worker=not options.no_worker,
            endpoints=endpoints,
            health=health,
            stop=stopping.asked,
            counts=membership.counts if membership else None,
        )
        config = await _api_config(runtime, bound_host(listener))
        if config.is_local_mode:
            _warn_of_proxy(endpoints)
        if membership is None or membership.number == 1:
            say(_greeting(bound_url(listener), settings, config, membership))
        stopping.started()
        if membership is not None:
            membership.line.report_ready()
        async with noted(runtime, has_worker=mode.has_worker):
            await serve_on(listener, runtime, config, mode)


@_until_stopped
async def work(options: WorkerOptions) -> None:
    """Run turns until stopped."""
    given = {"worker_concurrency": options.concurrency, "health_port": options.health_port}
    settings = _settings_with(given, options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    stopping = Stopping()
    async with (
        open_runtime(settings, ProcessKind.WORKER) as runtime,
        noted(runtime, has_worker=True),
        health_served(runtime, has_worker=True) as health,
        runtime.worker.working() as broken,
    ):
        tune_collector()
        stopping.started()
        say(_start_line("Throughline worker is running", health))
        await first_of(stopping.asked, broken)
    check_unbroken(broken)


@_until_stopped
async def serve_front_end(options: FrontEndOptions) -> None:
    """Run a front end that needs no HTTP application until stopped."""
    settings = _settings_with({"health_port": options.health_port}, options.data_dir)
    set_up_logging(settings.log_level, settings.log_format)
    stopping = Stopping()
    alone, has_worker = program(options.name), not options.no_worker
    state = alone.make_health(SystemClock())
    async with (
        open_runtime(settings, alone.kind) as runtime,
        noted(runtime, has_worker=has_worker),
        health_served(runtime, has_worker=has_worker, front_ends=[state]) as health,
        _running(alone, runtime, state),
        runtime.worker.working() if has_worker else nullcontext(asyncio.Event()) as broken,
    ):
        tune_collector()
        stopping.started()
        say(_start_line(f"Throughline serves {alone.title}", health))
        await first_of(stopping.asked, broken)
    check_unbroken(broken)


def _running(alone: Program, runtime: Runtime, state: FrontEndHealth) -> AbstractAsyncContextManager[None]:
    process = front_end_process(runtime)
    check_needed_agents(needed_agents(process.settings), process.agents)
    return alone.running(process, state)


def _settings_with(given: Mapping[str, object], data_dir: Path | None) -> Settings:
    """Return the settings, replaced by the values from the command line that are not None."""
    changes = {name: value for name, value in given.items() if value is not None}
    return read_program_settings(data_dir).model_copy(update=changes)


def _greeting(url: str, settings: Settings, config: ApiConfig, membership: Membership | None) -> str:
    """Return what the service says once it serves: where, with which model, and how to go on from there."""
    is_offline = settings.default_llm == OFFLINE
    hint = " (small, local, without a key; DEFAULT_LLM connects a real model)" if is_offline else ""
    key = "" if config.is_local_mode else " --api-key KEY"
    near = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return "\n".join((
        f"Throughline is serving on {url}",
        f"  model      {settings.default_llm}{hint}",
        f"  database   {database_location(settings).description}",
        *([] if membership is None else [f"  processes  {membership.line.count.wanted}"]),
        *(f"  browser    {near}{each.home}" for each in routes(settings) if each.home),
        f"  interface  {near}/docs",
        f"  chat       throughline chat --url {near}{key}",
    ))


def _start_line(what: str, health: str | None) -> str:
    return what if health is None else f"{what}, health on {health}"


@asynccontextmanager
async def open_local_service(options: LocalOptions) -> AsyncGenerator[Path]:
    """Yield the path of a unix socket on which this process serves the API to its own user.

    The process takes turns if the command sends messages. It takes those of other users only if no other process would.
    """
    settings = read_quiet_settings(options)
    config = replace(_body_limits(settings), trusted_socket=True)
    with tempfile.TemporaryDirectory(prefix="throughline-") as folder:
        path = Path(folder) / "api.sock"
        async with open_runtime(settings, ProcessKind.COMMAND) as runtime:
            only_for = await _whose_turns(runtime) if options.takes_turns else None
            mode = ServeMode(has_worker=options.takes_turns, only_for=only_for)
            async with serving_on(bind_unix(path), runtime, config, mode):
                yield path


async def _whose_turns(runtime: Runtime) -> UserId | None:
    """Return the user to whose turns a command is limited, None if it takes all turns of its database.

    Other users may rely on settings that differ from this command's: another model, or agents that it lacks. A command
    takes all turns, and side jobs, only on the embedded server while no other process takes turns. Otherwise nobody
    would.
    """
    database = runtime.database
    if not is_guest(runtime.settings, runtime.process.kind) and await database.processes.count_claiming() == 0:
        return None
    return await database.users.get_or_create(LOCAL_USER)


def _warn_of_proxy(endpoints: Sequence[Endpoint]) -> None:
    """Warn that requests which a proxy passes on for a front end may look like requests of this machine."""
    for endpoint in endpoints:
        log.warning(
            "unauthenticated requests served",
            hint=f"{endpoint.title} is set up over HTTP, so each request that the proxy passes on acts as the user "
            f"local. Let the proxy pass on {endpoint.path} alone; `throughline keys create`, then restart the service",
        )


async def _api_config(runtime: Runtime, host: str) -> ApiConfig:
    settings, keys = runtime.settings, runtime.database.keys
    if settings.bootstrap_api_key:
        await keys.ensure(settings.bootstrap_api_key, "admin", frozenset(Scope))
    has_keys = await keys.any_exists()
    check_access(host, settings.cors_origins, has_keys=has_keys)
    return replace(
        _body_limits(settings),
        cors_origins=settings.cors_origins,
        is_local_mode=not has_keys,
        no_worker_timeout_seconds=settings.no_worker_timeout_seconds,
    )


def _body_limits(settings: Settings) -> ApiConfig:
    return ApiConfig(
        version=VERSION,
        max_body_bytes=settings.max_body_bytes,
        max_import_bytes=settings.max_import_bytes,
        max_held_body_bytes=settings.max_held_body_bytes,
        max_websockets=settings.max_websockets,
    )
