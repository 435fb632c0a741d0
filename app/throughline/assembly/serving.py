"""Serving of the REST API on a listening socket, with or without turns in this process.

Serving ends when it is stopped, or when the claim loop fails; it then raises ClaimingFailed.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from throughline.api.front_end import API
from throughline.assembly.process_heartbeats import noted, tune_collector
from throughline.assembly.runtime import Runtime
from throughline.assembly.slack import SlackHttpInterface
from throughline.db.connection.migrations import head_revision
from throughline.domain.basic_types import UserId
from throughline.domain.errors import ClaimingFailed
from throughline.http.app import add_interface, create_app
from throughline.http.server import HttpServer, Shutdown, limit_connections
from throughline.http.services import ApiConfig, Readiness, Services
from throughline.openai.front_end import OPENAI_API
from throughline.slack.config import SlackHealth
from throughline.stopping import first_of
from throughline.turn.prompting.agent_windows import agent_window
from throughline.turn.submit import submit_message


def make_services(runtime: Runtime, *, has_worker: bool, slack: SlackHealth | None = None) -> Services:
    """Return the dependencies of the REST routes.

    `has_worker`: turns run in this process. `slack`: the state of its Slack interface, if it has one.
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
        estimate_summary=context.estimate,
        render_metrics=runtime.metrics.render,
        check_ready=partial(_check_ready, runtime, slack, has_worker=has_worker),
        count_messages=context.count,
        agent_window=partial(agent_window, runtime.turn_dependencies),
        clock=runtime.turn_dependencies.clock,
    )


async def _check_ready(runtime: Runtime, slack: SlackHealth | None, *, has_worker: bool) -> Readiness:
    schema = await runtime.database.check_ready()
    checks = {"database": True}
    hints = {
        "schema": schema == head_revision(),  # a newer schema has all that this version needs
        "listener": runtime.database.notifier.is_listening,  # without it, waiting calls poll: slower
    }
    if has_worker:
        checks |= {"worker": runtime.worker.is_claiming, "jobs": runtime.worker.is_taking_jobs}
    else:
        hints["workers"] = await runtime.database.processes.count_claiming() > 0
    ready = Readiness(checks, hints)
    return ready if slack is None else _with_slack(ready, slack)


def _with_slack(ready: Readiness, slack: SlackHealth) -> Readiness:
    """Return the readiness with the state of Slack added.

    A process that serves only Slack is not ready while it cannot receive events.
    """
    heard, may_answer = {"slack": slack.disconnected is None}, {"slack_token": slack.token_refused is None}
    troubles = {"slack": slack.disconnected, "slack_token": slack.token_refused}
    checks, hints = (heard, may_answer) if slack.is_all else ({}, heard | may_answer)
    reasons = {name: str(trouble) for name, trouble in troubles.items() if trouble is not None}
    return Readiness({**ready.checks, **checks}, {**ready.hints, **hints}, reasons)


CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServeMode:
    """How to serve the REST API until `stop` is set.

    `has_worker`: turns run in this process, with `only_for` those of this user alone. `slack` is served, too, if set.
    """

    has_worker: bool = True
    only_for: UserId | None = None
    slack: SlackHttpInterface | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)


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
    slack = None if mode.slack is None else mode.slack.health
    services = make_services(runtime, has_worker=mode.has_worker, slack=slack)

    async def before_closing() -> None:
        await runtime.worker.drain()
        services.cut_off()

    app = create_app(services, config, (API, OPENAI_API))
    if mode.slack is not None:
        add_interface(app, mode.slack.path, mode.slack.endpoint)
    grace = runtime.settings.shutdown_grace_seconds + CLOSING_SECONDS
    limits = replace(
        limit_connections(runtime.settings.max_connections), max_message_bytes=runtime.settings.max_body_bytes
    )
    server = HttpServer(app, listener, Shutdown(before_closing, grace), limits)
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
