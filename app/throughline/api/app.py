"""Factory of the HTTP application: middleware, error handlers, routes and OpenAPI document.

Called by `assembly/` and by the tests.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache

from fastapi import FastAPI, Response
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from throughline.api.http import reference_page, start_page
from throughline.api.http.admitted_request import ApiDependencies, SharedSessions
from throughline.api.http.auth import Authenticator
from throughline.api.http.body_cap import BodyCap, Cap
from throughline.api.http.headers import RefusedPreflights
from throughline.api.http.problem_documents import UnexpectedErrors, add_error_handlers
from throughline.api.http.services import ApiConfig, Services
from throughline.api.http.sse import json_bytes
from throughline.api.native import (
    agents,
    context,
    export,
    health,
    imports,
    memories,
    messages,
    pins,
    problems,
    runs,
    search,
    sessions,
    summaries,
    tokens,
    usage,
    users,
)
from throughline.api.openai import chat, compact, conversations, models, responses, websocket
from throughline.api.openai.errors import add_absent_routes
from throughline.api.openapi.document import document, document_of_openai, operation_id
from throughline.execution.compute_threads import OwnerLimits

ROOMS = (
    messages,
    pins,
    search,
    export,
    imports,
    sessions,
    runs,
    context,
    summaries,
    memories,
    usage,
    tokens,
    users,
    agents,
    models,
    chat,
    compact,
    responses,
    websocket,
    conversations,
    problems,
    health,
    reference_page,
    start_page,
)
CORS_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
CORS_ASKED = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "On-Behalf-Of",
    "Prefer",
    "X-API-Key",
    "X-Client",
)
CORS_EXPOSED = (
    "Location",
    "Content-Location",
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

DESCRIPTION = (
    "Conversations that can run for ever: every message is stored, and every prompt fits the model's window. "
    "Errors are RFC 9457 problem documents. The schema `RunEvent` describes the events of streams. "
    "OpenAI's interface, which is served at `/v1/responses`, `/v1/conversations` and `/v1/chat/completions` too, has a "
    "document of its own: `/openapi-openai.json`."
)


def create_app(
    services: Services,
    config: ApiConfig,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Return the HTTP application. It opens and closes no resources itself."""
    app = FastAPI(
        title="Throughline",
        version=config.version,
        description=DESCRIPTION,
        lifespan=lifespan,
        middleware=_middleware(config),
        default_response_class=Response,
        redirect_slashes=False,
        docs_url=None,
        telemetry=NO_TELEMETRY,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    app.state.dependencies = _dependencies(services, config)
    add_error_handlers(app)
    add_absent_routes(app)
    for room in ROOMS:
        app.include_router(room.router)
    _serve_openai_document(app, is_key_needed=config.is_key_needed)
    app.openapi = lambda: document(app, is_key_needed=config.is_key_needed)  # type: ignore[method-assign]  # the framework's own way to replace it
    return app


def _serve_openai_document(app: FastAPI, *, is_key_needed: bool) -> None:
    """Serve the document of OpenAI's routes, which is made at the first request for it."""
    made = cache(lambda: json_bytes(document_of_openai(app, is_key_needed=is_key_needed)))

    @app.api_route("/openapi-openai.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def read_openai_document() -> Response:
        return Response(made(), media_type="application/json")


def create_health_app(services: Services, config: ApiConfig) -> FastAPI:
    """Return an application that serves only health and metrics, without authentication."""
    app = FastAPI(
        title="Throughline",
        version=config.version,
        middleware=_middleware(config),
        default_response_class=Response,
        redirect_slashes=False,
        docs_url=None,
        telemetry=NO_TELEMETRY,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.dependencies = _dependencies(services, config)
    add_error_handlers(app)
    app.include_router(health.router)
    return app


def _dependencies(services: Services, config: ApiConfig) -> ApiDependencies:
    shared = SharedSessions(services.database.participants, services.clock)
    websockets = OwnerLimits(config.max_websockets, max(1, config.max_websockets // 2))
    return ApiDependencies(services, config, Authenticator(services, config), shared, websockets)


def add_interface(app: FastAPI, path: str, endpoint: ASGIApp) -> None:
    """Serve `path` by another interface's ASGI endpoint, such as Slack's.

    The limits on request bodies apply; the endpoint authenticates its requests itself.
    """
    app.router.routes.append(Route(path, endpoint, include_in_schema=False))


def _middleware(config: ApiConfig) -> list[Middleware]:
    """Return the middleware, outermost first.

    CORS comes before all that refuses requests but preflights, so that the answers to refused and failed requests carry
    its headers, too.
    """
    cap = Middleware(
        BodyCap,
        cap=Cap(config.max_body_bytes, "MAX_BODY_BYTES"),
        own_caps={imports.router.prefix: Cap(config.max_import_bytes, "MAX_IMPORT_BYTES", is_read_long=True)},
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
