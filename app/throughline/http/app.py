"""Factory of the HTTP application: middleware, error handlers and the routes of its front ends.

Called by `assembly/` and by the tests.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, FastAPI, Response
from fastapi.telemetry import TelemetryConfig
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.domain.basic_types import Clock
from throughline.domain.message import clean_text
from throughline.domain.service_status import ProcessKind
from throughline.http.auth import Authenticator
from throughline.http.body import BodyCap, Cap
from throughline.http.call import ApiDependencies, SharedSessions
from throughline.http.documents import operation_id
from throughline.http.problem_documents import UnexpectedErrors, add_error_handlers, problem
from throughline.http.services import ANY_ORIGIN, ApiConfig, Readiness, Services
from throughline.turn.context_requests import ContextRequests
from throughline.wire.data_age import DATA_AS_OF


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Routes for one kind of clients, and what they need of the application.

    `description` is a sentence for the application's OpenAPI document. `set_up` adds error handlers and documents.
    `own_caps` returns the limits of bodies whose routes need others than all the rest, by the prefix of their path.
    `home` is the path of its pages for browsers, '' without any. `is_on` tells by the settings whether it is served.
    """

    description: str
    routers: Sequence[APIRouter]
    set_up: Callable[[FastAPI, ApiConfig], None]
    own_caps: Callable[[ApiConfig], Mapping[str, Cap]] = lambda _: {}
    home: str = ""
    is_on: Callable[[object], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class FrontEndProcess:
    """What a process hands to a front end that runs in it. `settings` has the front end's own section.

    `concurrency` and `lease_seconds` are those of the process's worker.
    """

    name: str
    settings: object
    database: Database
    agents: AgentRegistry
    context: ContextRequests
    clock: Clock
    concurrency: int
    lease_seconds: float


class FrontEndHealth(Protocol):
    """State of a front end that runs."""

    def added_to(self, ready: Readiness) -> Readiness:
        """Return the readiness of the process with the front end's checks and hints."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """ASGI endpoint of a front end at `path`, which authenticates its requests itself."""

    title: str
    path: str
    app: ASGIApp
    health: FrontEndHealth


@dataclass(frozen=True, slots=True)
class Program:
    """A front end that runs without the HTTP application, in a process of this `kind`.

    `make_health` makes the state that `running` keeps while it runs the front end.
    """

    title: str
    kind: ProcessKind
    make_health: Callable[[Clock], FrontEndHealth]
    running: Callable[[FrontEndProcess, FrontEndHealth], AbstractAsyncContextManager[None]]


CORS_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
CORS_ASKED = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "On-Behalf-Of",
    "Prefer",
    "X-API-Key",
    "X-Client",
)
CORS_EXPOSED = (
    "Location",
    "Content-Location",
    DATA_AS_OF,
    "Idempotency-Key",
    "Idempotency-Replayed",
    "Preference-Applied",
    "Retry-After",
    "WWW-Authenticate",
    "X-Not-Applied",
    "X-Run-Id",
    "X-Session-Id",
)
NO_TELEMETRY: TelemetryConfig = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}
"""FastAPI's own telemetry, switched off. The service has metrics of its own.

FastAPI would otherwise export its requests if the environment names an OTLP endpoint.
"""

DESCRIPTION = "Conversations that can run for ever: every message is stored, and every prompt fits the model's window."


def create_app(
    services: Services,
    config: ApiConfig,
    front_ends: Sequence[FrontEnd],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Return the HTTP application with the routes of these front ends. It opens and closes no resources itself.

    Without front ends it has no document either.
    """
    caps = {prefix: cap for each in front_ends for prefix, cap in each.own_caps(config).items()}
    app = FastAPI(
        title="Throughline",
        version=config.version,
        description=" ".join((DESCRIPTION, *(each.description for each in front_ends))),
        lifespan=lifespan,
        middleware=_middleware(config, caps),
        default_response_class=Response,
        redirect_slashes=False,
        docs_url=None,
        telemetry=NO_TELEMETRY,
        redoc_url=None,
        openapi_url="/openapi.json" if front_ends else None,
        generate_unique_id_function=operation_id,
    )
    app.state.dependencies = _dependencies(services, config, next((each.home for each in front_ends if each.home), ""))
    add_error_handlers(app)
    for each in front_ends:
        each.set_up(app, config)
        for router in each.routers:
            app.include_router(router)
    return app


def _dependencies(services: Services, config: ApiConfig, home: str) -> ApiDependencies:
    shared = SharedSessions(services.database.participants, services.clock)
    return ApiDependencies(services, config, Authenticator(services, config), shared, home)


def add_interface(app: FastAPI, path: str, endpoint: ASGIApp) -> None:
    """Serve `path` by another front end's ASGI endpoint, such as Slack's.

    The limits on request bodies apply; the endpoint authenticates its requests itself.
    """
    app.router.routes.append(Route(path, endpoint, include_in_schema=False))


def _middleware(config: ApiConfig, own_caps: Mapping[str, Cap]) -> list[Middleware]:
    """Return the middleware, outermost first.

    CORS comes before all that refuses requests but preflights, so that the answers to refused and failed requests carry
    its headers, too.
    """
    cap = Middleware(
        BodyCap,
        cap=Cap(config.max_body_bytes, "MAX_BODY_BYTES"),
        own_caps=own_caps,
        total_bytes=config.max_held_body_bytes,
        timeout_seconds=config.body_timeout_seconds,
    )
    refused, inner = Middleware(RefusedPreflights, origins=config.cors_origins), [Middleware(UnexpectedErrors), cap]
    if not config.cors_origins:
        return [refused, *inner]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=config.cors_origins,
        allow_methods=CORS_METHODS,
        allow_headers=CORS_ASKED,
        expose_headers=CORS_EXPOSED,
        max_age=600,
    )
    return [refused, cors, *inner]


# Refusal of preflight requests from pages whose origin is not listed, with the setting that lists it. A browser sends a
# preflight (`OPTIONS`) before a page of another origin may call the service.

MOST_SHOWN = 200


class RefusedPreflights:
    """Middleware that answers a preflight from an origin that is not listed with a problem document."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _preflight_origin(scope)
        if origin is None or origin in self._origins or ANY_ORIGIN in self._origins:
            await self._app(scope, receive, send)
            return
        await problem("origin_refused", _reason(clean_text(origin)[:MOST_SHOWN]))(scope, receive, send)


def _preflight_origin(scope: Scope) -> str | None:
    """Return the origin of the page that sends a preflight, None for any other request."""
    if scope["type"] != "http" or scope["method"] != "OPTIONS":
        return None
    headers = Headers(scope=scope)
    return headers.get("origin") if "access-control-request-method" in headers else None


def _reason(origin: str) -> str:
    if origin == "null":
        return (
            "The page has no origin: it is a file, or in a sandboxed frame. Serve it over HTTP, and list its origin in "
            "CORS_ORIGINS."
        )
    return (
        f"Pages of {origin} may not call this service, because CORS_ORIGINS does not list them. Set "
        f"CORS_ORIGINS={origin}, beside other origins after a comma, and restart the service."
    )
