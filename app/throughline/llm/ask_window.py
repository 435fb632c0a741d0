"""Request to a model's server for the model's context window, with the address and key of the model's calls.

The registry of chat models names the server; providers' own servers are not asked. The answers are read by
`server_windows.py`.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from ssl import SSLContext

import httpx

from throughline.domain.json_types import JsonObject, JsonValue
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.bounded_http import ask_uncompressed
from throughline.llm.server_windows import (
    ServerWindow,
    listed_window,
    litellm_window,
    llama_cpp_window,
    lm_studio_window,
    ollama_window,
)

TOTAL_SECONDS = 3.0
"""Time limit of the whole question, connecting included."""

MAX_BODY_BYTES = 4_000_000
"""Largest answer that is read: OpenRouter's list of models is nearly 1 MB. A longer one counts as no answer."""


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The server of one model: the address and key of its calls ('' without a key), and the model's name there."""

    base_url: str
    model: str
    api_key: str = ""

    @property
    def root(self) -> str:
        """The address without `/v1` at its end, from which servers offer routes of their own."""
        return self.base_url.rstrip("/").removesuffix("/v1")


async def ask_window(server: ModelServer, *, seconds: float = TOTAL_SECONDS) -> ServerWindow | None:
    """Return the window that the server reports for the model, None if it reports none or does not answer in time.

    The list of models is requested first. If it names no window, the routes that only llama.cpp, LM Studio, LiteLLM or
    Ollama have are requested together. No redirect is followed, so that the key reaches no other address.
    """
    headers = {"authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    hooks = {"request": [ask_uncompressed]}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(headers=headers, timeout=seconds, event_hooks=hooks, verify=_ssl_context()) as client,
        ):
            return await _Question(client, server).ask()
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return None


@cache
def _ssl_context() -> SSLContext:
    """Return one context for all questions, because loading the certificates takes long."""
    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True)
class _Question:
    client: httpx.AsyncClient
    server: ModelServer

    async def ask(self) -> ServerWindow | None:
        """Return the window, None if no route names one.

        Raises httpx.HTTPError if the server cannot be reached; its other routes are then not requested.
        """
        model, root = self.server.model, self.server.root
        listed = listed_window(await self._read(f"{self.server.base_url.rstrip('/')}/models"), model)
        if listed is not None:
            return listed
        return await _first([
            self._ask(f"{root}/props", lambda answer, _: llama_cpp_window(answer)),
            self._ask(f"{root}/api/v0/models", lm_studio_window),
            self._ask(f"{root}/model/info", litellm_window),
            self._ask_ollama(),
        ])

    async def _ask(self, url: str, read: Callable[[JsonValue, str], ServerWindow | None]) -> ServerWindow | None:
        return read(await self._try_to_read(url), self.server.model)

    async def _ask_ollama(self) -> ServerWindow | None:
        model, root = self.server.model, self.server.root
        shown, running = await asyncio.gather(
            self._try_to_read(f"{root}/api/show", {"model": model}), self._try_to_read(f"{root}/api/ps")
        )
        return ollama_window(shown, running, model)

    async def _try_to_read(self, url: str, body: JsonObject | None = None) -> JsonValue:
        try:
            return await self._read(url, body)
        except httpx.HTTPError:
            return None

    async def _read(self, url: str, body: JsonObject | None = None) -> JsonValue:
        """Return the parsed answer; None if there is none, it is too long, or it is no JSON."""
        method = "GET" if body is None else "POST"
        data = bytearray()
        async with self.client.stream(method, url, json=body) as response:
            is_encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
            if response.status_code != HTTPStatus.OK or is_encoded:
                return None
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    return None
        return await run_off_loop_if_large(len(data), lambda: _parsed(data))


async def _first(questions: Sequence[Coroutine[None, None, ServerWindow | None]]) -> ServerWindow | None:
    """Return the first window that a question brings, and stop the others."""
    tasks = [asyncio.create_task(question) for question in questions]
    try:
        for answered in asyncio.as_completed(tasks):
            if (window := await answered) is not None:
                return window
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parsed(data: bytearray) -> JsonValue:
    try:
        value: JsonValue = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value
