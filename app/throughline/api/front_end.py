"""The REST interface as a front end: its routes, in the order of its document, and the document itself."""

from collections.abc import Mapping

from fastapi import FastAPI

from throughline.api import (
    agents,
    imports,
    keys,
    memories,
    messages,
    operators,
    pages,
    runs,
    search,
    sessions,
    summaries,
    tokens,
)
from throughline.api.document import document
from throughline.http.app import FrontEnd, create_app
from throughline.http.body import Cap
from throughline.http.services import ApiConfig, Services


def _serve_document(app: FastAPI, config: ApiConfig) -> None:
    app.openapi = lambda: document(app, is_key_needed=config.is_key_needed)  # type: ignore[method-assign]  # the framework's own way to replace it


def _own_caps(config: ApiConfig) -> Mapping[str, Cap]:
    return {imports.router.prefix: Cap(config.max_import_bytes, "MAX_IMPORT_BYTES", is_read_long=True)}


API = FrontEnd(
    "Errors are RFC 9457 problem documents. The schema `RunEvent` describes the events of streams.",
    (
        messages.router,
        messages.pins_router,
        search.router,
        imports.export_router,
        imports.router,
        sessions.router,
        runs.router,
        summaries.context_router,
        summaries.router,
        memories.router,
        tokens.usage_router,
        tokens.router,
        tokens.users_router,
        agents.router,
        operators.status_router,
        operators.runs_router,
        keys.router,
        pages.problems_router,
        agents.health_router,
        pages.reference_router,
        pages.router,
    ),
    _serve_document,
    _own_caps,
)


def create_health_app(services: Services, config: ApiConfig) -> FastAPI:
    """Return an application that serves only health and metrics, without authentication."""
    app = create_app(services, config, ())
    app.include_router(agents.health_router)
    return app
