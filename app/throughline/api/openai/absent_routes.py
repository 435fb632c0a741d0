"""Answers to requests for routes of OpenAI's that this service does not have, in the form of OpenAI's errors."""

import re
from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from throughline.api.http.problem_documents import http_error_problem, http_error_words
from throughline.api.http.responses import JsonResponse
from throughline.api.openai.errors import error_json, status_of

OWN_MODEL = "Ask the provider of such a model directly."
FILES = "Images go into messages. For other files give the agent a tool that reads them."
NO_TRAINING = "Train and compare models at their provider. The agent's file names the model."
INSTEAD: Mapping[str, str] = {
    "assistants": "Agents are files of this service, and `model` names one. Use POST /v1/responses.",
    "threads": "Use POST /v1/conversations and POST /v1/responses.",
    "completions": "Use POST /v1/chat/completions or POST /v1/responses.",
    "embeddings": "Ask the provider of your embedding model. Search what the service stores with GET /v1/search.",
    "realtime": "Use the WebSocket /v1/responses, with text.",
    "audio": OWN_MODEL,
    "images": OWN_MODEL,
    "videos": OWN_MODEL,
    "moderations": OWN_MODEL,
    "batches": "Send each request to POST /v1/responses with `background`.",
    "files": FILES,
    "uploads": FILES,
    "vector_stores": FILES,
    "containers": FILES,
    "skills": "The agent's file says what the agent can do.",
    "chatkit": "Use POST /v1/responses.",
    "fine_tuning": NO_TRAINING,
    "evals": NO_TRAINING,
}
"""What to use in place of routes that are absent, by what follows `/v1/` in their paths."""

PRESENT = ("responses", "conversations", "chat", "models")
GUIDE = "docs/guides/openai.md lists the routes of this interface."
PATH = re.compile(r"/v1/(\w+)(?:/|$)", re.ASCII)


def add_absent_routes(app: FastAPI) -> None:
    """Register the handler of 404 and 405: in OpenAI's form on its paths, problem documents elsewhere."""
    app.add_exception_handler(HTTPException, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    """Answer in OpenAI's form if the path is one of OpenAI's, and with a problem document otherwise."""
    assert isinstance(error, HTTPException)
    found = PATH.match(request.url.path)
    name = "" if found is None else found[1]
    if name not in INSTEAD and name not in PRESENT:
        return http_error_problem(request, error)
    words = http_error_words(request, error)
    detail = f"This service has no /v1/{name}. {INSTEAD[name]}" if name in INSTEAD else f"{words.detail} {GUIDE}"
    headers = {**words.headers, "x-should-retry": "false"}
    return JsonResponse({"error": error_json(words.code, detail)}, status_of(words.code), headers)
