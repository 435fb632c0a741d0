"""OpenAI's interface as a front end: its routes, their errors and their document."""

from functools import cache

from fastapi import FastAPI, Response

from throughline.execution.compute_threads import OwnerLimits
from throughline.http.app import FrontEnd
from throughline.http.services import ApiConfig
from throughline.http.sse import json_bytes
from throughline.openai import chat, compact, conversations, models, responses, websocket
from throughline.openai.document import document
from throughline.openai.errors import add_absent_routes


def _set_up(app: FastAPI, config: ApiConfig) -> None:
    """Answer on unknown paths of OpenAI's in their form, and serve the document, made at the first request for it."""
    add_absent_routes(app)
    app.state.websockets = OwnerLimits(config.max_websockets, max(1, config.max_websockets // 2))
    made = cache(lambda: json_bytes(document(app, is_key_needed=config.is_key_needed)))

    @app.api_route("/openapi-openai.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def read_openai_document() -> Response:
        return Response(made(), media_type="application/json")


OPENAI_API = FrontEnd(
    "OpenAI's interface, which is served at `/v1/responses`, `/v1/conversations` and `/v1/chat/completions` too, has a "
    "document of its own: `/openapi-openai.json`.",
    tuple(room.router for room in (models, chat, compact, responses, websocket, conversations)),
    _set_up,
)
