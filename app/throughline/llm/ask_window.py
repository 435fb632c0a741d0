"""Request to a model's server for the model's context window, with the address and key of the model's calls.

The registry of chat models names the server; providers' own servers are not asked. Each server's answer has a reader
here.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from ssl import SSLContext

import httpx
from langchain_core.language_models import BaseChatModel

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.bounded_http import ask_uncompressed
from throughline.llm.providers import ModelName, is_of_a_provider

# Recognition of a model's window in the answers of model servers, by the shape that each server alone sends.
#
# `ask_window` collects the answers. Each function takes parsed answers and returns the window, or None. Numbers that
# are no plausible window are ignored.

LEAST_TOKENS, MOST_TOKENS = 256, 100_000_000
"""Smallest and largest number that is taken for a window."""

DEFAULT_OF_LOCAL_SERVERS = 4096
"""Lowest window that Ollama and LM Studio give a model for which nothing is set."""

OWNERS = {"vllm": "vLLM", "sglang": "SGLang"}
NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
LISTED_AS = ("max_model_len", "context_length", "context_window")
"""Fields with the window in a list of models: of vLLM and SGLang, of OpenRouter, and of Groq."""


@dataclass(frozen=True, slots=True)
class ServerWindow:
    """A window in tokens, and the name of the server that reported it.

    `is_assumed`: the server was recognised, but did not say with which window it will load the model. `tokens` is then
    the lowest default of such a server.
    """

    tokens: int
    server: str
    is_assumed: bool = False


def listed_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window in a list of models (`GET /v1/models`).

    OpenRouter's `top_provider` may take less than the model does. Its names may carry a variant (`:nitro`) that the
    list omits. vLLM lists an adapter with the name of its model (`parent`).
    """
    entries = {str(entry.get("id")): entry for entry in _entries(answer)}
    entry = entries.get(model) or entries.get(model.rpartition(":")[0])
    if entry is None:
        return None
    listed = _listed(entry) or _listed(entries.get(str(entry.get("parent")), {}))
    if not listed:
        return None
    top = entry.get("top_provider")
    if isinstance(top, Mapping):
        return ServerWindow(min(listed[0], _plausible(top.get("context_length")) or listed[0]), "OpenRouter")
    return ServerWindow(listed[0], OWNERS.get(str(entry.get("owned_by")), "the server"))


def _listed(entry: Mapping[str, JsonValue]) -> list[int]:
    return [tokens for name in LISTED_AS if (tokens := _plausible(entry.get(name))) is not None]


def ollama_window(shown: JsonValue, running: JsonValue, model: str) -> ServerWindow | None:
    """Return the window with which Ollama runs the model (`POST /api/show`, `GET /api/ps`).

    Ollama cuts a longer prompt silently, so the length for which the model was trained (`*.context_length`) is no
    window to use. These decide, in this order, and never more than the trained length:

    1. a remote model (`remote_host`) has its trained length;
    2. `num_ctx` among the model's parameters, because Ollama applies it to each request that names none;
    3. the `context_length` of the loaded model;
    4. 4,096 tokens. A model that is not loaded gets `OLLAMA_CONTEXT_LENGTH` of the server or a default that grows with
       its memory. Neither is readable from outside, and 4,096 is the lowest such default.
    """
    if not isinstance(shown, Mapping) or not isinstance(info := shown.get("model_info"), Mapping):
        return None
    lengths = (_plausible(value) for name, value in info.items() if name.endswith(".context_length"))
    trained = next((tokens for tokens in lengths if tokens is not None), MOST_TOKENS)
    if shown.get("remote_host"):
        return ServerWindow(trained, "Ollama") if trained < MOST_TOKENS else None
    parameter = NUM_CTX.search(str(shown.get("parameters") or ""))
    known = (_plausible(int(parameter[1])) if parameter else None) or _loaded_by_ollama(running, model)
    return ServerWindow(min(known or DEFAULT_OF_LOCAL_SERVERS, trained), "Ollama", is_assumed=known is None)


def _loaded_by_ollama(running: JsonValue, model: str) -> int | None:
    names = {model, f"{model}:latest"}
    loaded = (entry for entry in _entries(running, "models") if str(entry.get("model", entry.get("name"))) in names)
    return next((_plausible(entry.get("context_length")) for entry in loaded), None)


def llama_cpp_window(answer: JsonValue) -> ServerWindow | None:
    """Return the window of one slot of llama.cpp's server (`GET /props`), which is what one request may take.

    The server divides its whole context (`--ctx-size`) among the slots.
    """
    settings = answer.get("default_generation_settings") if isinstance(answer, Mapping) else None
    tokens = _plausible(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    return None if tokens is None else ServerWindow(tokens, "llama.cpp")


def lm_studio_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window with which LM Studio has loaded the model (`GET /api/v0/models`).

    It does not say with which it would load a model that is not loaded; 4,096 is its default.
    """
    entry = next((entry for entry in _entries(answer) if entry.get("id") == model), None)
    if entry is None or (most := _plausible(entry.get("max_context_length"))) is None:
        return None
    loaded = _plausible(entry.get("loaded_context_length"))
    return ServerWindow(min(loaded or DEFAULT_OF_LOCAL_SERVERS, most), "LM Studio", is_assumed=loaded is None)


def litellm_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window of LiteLLM's proxy (`GET /model/info`): the smallest of the deployments of that name."""
    infos = [entry.get("model_info") for entry in _entries(answer) if entry.get("model_name") == model]
    limits = [_plausible(info.get("max_input_tokens")) for info in infos if isinstance(info, Mapping)]
    known = [tokens for tokens in limits if tokens is not None]
    return ServerWindow(min(known), "LiteLLM") if known else None


def _entries(answer: JsonValue, name: str = "data") -> Iterator[Mapping[str, JsonValue]]:
    listed = answer.get(name) if isinstance(answer, Mapping) else None
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, Mapping):
            yield entry


def _plausible(value: JsonValue) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if LEAST_TOKENS <= value < MOST_TOKENS else None


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


# The server that may be asked for a model's window, found in the client of the model's calls.
#
# Address and key are read from that client, so that the question reaches no server that the calls do not reach.


def find_server(name: ModelName, model: BaseChatModel) -> ModelServer | None:
    """Return the server of a model on the OpenAI wire or of Ollama; None for a provider's own server.

    The windows of providers' own models are known by their names.
    """
    match name.provider.name:
        case "openai":
            client = getattr(model, "root_async_client", None)
            address, key = getattr(client, "base_url", None), getattr(client, "api_key", None)
        case "ollama":
            client = getattr(getattr(model, "_async_client", None), "_client", None)
            address = getattr(client, "base_url", None)
            key = getattr(client, "headers", {}).get("authorization", "").removeprefix("Bearer ")
        case _:
            return None
    if address is None or is_of_a_provider(str(address)):
        return None
    return ModelServer(str(address), name.model, key if isinstance(key, str) else "")
