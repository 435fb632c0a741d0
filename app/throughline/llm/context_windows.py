"""Context windows of models: from the model's server, LangChain's profile, a table of names, or a low default."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from ssl import SSLContext

import httpx
import structlog
from langchain_core.language_models import BaseChatModel

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.error_boundary import ErrorBoundary
from throughline.llm.bounded_http import ask_uncompressed
from throughline.llm.providers import ModelName, is_of_a_provider

# Recognition of a model's window in the answers of model servers, by the shape that each server alone sends. Each
# function takes parsed answers and returns the window, or None. Numbers that are no plausible window are ignored.

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


def find_server(name: ModelName, model: BaseChatModel) -> ModelServer | None:
    """Return the server of a model on the OpenAI wire or of Ollama; None for a provider's own server.

    The windows of providers' own models are known by their names. Address and key are read from the client of the
    model's calls, so that the question reaches no server that the calls do not reach.
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


AskServer = Callable[[], Awaitable[ServerWindow | None]]
ANSWERED_SECONDS = 900.0
"""Seconds until a server that answered is asked again: it may have been restarted with another window."""

UNANSWERED_SECONDS = 60.0
"""Seconds until a server is asked again that was down, said nothing or had not loaded the model."""

log = structlog.get_logger(__name__)


class KnownWindow:
    """The window of one model as it is known now: from its server if that was asked, else by the model's name.

    The server is asked at start, and now and then again: it may be started later or differently.
    """

    def __init__(
        self,
        model: str,
        by_name: ModelWindow,
        ask: AskServer | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the window `by_name`, valid until the server reports one; without `ask` no server is asked."""
        self._monotonic = monotonic
        self._model = model
        self._window = by_name
        self._ask = ask
        self._question: asyncio.Task[None] | None = None
        self._due_at = float("-inf")
        self._was_asked = False

    @property
    def window(self) -> ModelWindow:
        """The window as it is known now."""
        return self._window

    async def refresh(self) -> None:
        """Ask the server if that is due. Only the first question is waited for; later ones run in the background."""
        if self._ask is None:
            return
        is_running = self._question is not None and not self._question.done()
        if not is_running and self._monotonic() >= self._due_at:
            self._question = asyncio.create_task(self._ask_server(self._ask), name="ask for a window")
        if not self._was_asked and self._question is not None:
            await asyncio.shield(self._question)

    async def close(self) -> None:
        """Stop a question that is still open."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)

    async def _ask_server(self, ask: AskServer) -> None:
        answer: ServerWindow | None = None
        with ErrorBoundary(log.error, task="ask for a window", model=self._model):
            answer = await ask()
        is_reported = answer is not None and not answer.is_assumed
        wait = ANSWERED_SECONDS if is_reported else UNANSWERED_SECONDS
        self._due_at = self._monotonic() + wait
        if answer is not None:
            self._keep(answer)
        self._was_asked = True

    def _keep(self, answer: ServerWindow) -> None:
        """Store the window that the server answered.

        An assumed window does not replace an earlier report: the model was only unloaded since then.
        """
        before = self._window
        if answer.is_assumed and before.origin is WindowOrigin.SERVER:
            return
        origin = WindowOrigin.UNKNOWN if answer.is_assumed else WindowOrigin.SERVER
        self._window = ModelWindow(answer.tokens, origin, answer.server)
        if self._was_asked and self._window != before:
            log.info(
                "model window changed",
                model=self._model,
                window=answer.tokens,
                window_from=origin.value,
                server=answer.server,
                before=before.tokens,
            )


DEFAULT_WINDOW = 8192
OFFLINE_WINDOW = 32_768

_BY_TOKENS: Mapping[int, str] = {
    4096: "llama-2 llama2 phi-3",
    8192: "gemma gpt-4 llama-3 llama3 meta-llama-3",
    16_384: "phi-4",
    16_385: "gpt-3.5-turbo",
    30_720: "gemini-1.0 gemini-pro",
    OFFLINE_WINDOW: "offline gpt-4-32k mistral mixtral-8x7b qwen qwen-2.5 qwen2.5 qwen3",
    40_960: "magistral",
    65_536: "deepseek mixtral-8x22b",
    100_000: "claude-2.0 claude-instant",
    128_000: "chatgpt-4o gpt-4-0125 gpt-4-1106 gpt-4-turbo gpt-4.5 gpt-4o gpt-5-chat o1-mini o1-preview sonar",
    131_072: (
        "command-r deepseek-chat deepseek-r1 deepseek-reasoner deepseek-v3 devstral gemma-3 gemma3 glm-4 "
        "gpt-oss grok kimi-k2 llama-3.1 llama-3.2 llama-3.3 llama3.1 llama3.2 llama3.3 meta-llama-3.1 "
        "ministral mistral-large mistral-medium mistral-nemo mistral-small open-mistral-nemo pixtral "
        "qwen-plus qwq"
    ),
    200_000: "claude codex-mini o1 o3 o4-mini",
    204_800: "glm-4.6 minimax-m2",
    262_144: "codestral command-a grok-4 qwen3-coder qwen3-max",
    272_000: "gpt-5",
    1_000_000: "minimax-m1 qwen-turbo",
    1_047_576: "gpt-4.1",
    1_048_576: "gemini llama-4-maverick llama-4-scout",
    2_000_000: "grok-4-fast",
    2_097_152: "gemini-1.5-pro",
}
"""Beginnings of models' names by their windows. Of the gpt-5 family it is the input limit, of 400,000 tokens in all.

genai-prices 0.2 is no source: it has 14 of these windows, other ones for 11 of the names, and no local models.
"""

WINDOWS: Mapping[str, int] = {name: tokens for tokens, names in _BY_TOKENS.items() for name in names.split()}

_WORD = re.compile(r"[a-z0-9]+")
_VARIANTS = ("n", "v")
"""Words of one letter that are no misspelling: `gemma3n`, `glm-4v`."""

_LONGEST_FIRST = sorted(WINDOWS, key=len, reverse=True)


def get_context_limit(model_name: str, profile: Mapping[str, object] | None = None) -> int:
    """Return the model's window in tokens, as `find_window` finds it."""
    return find_window(model_name, profile).tokens


def find_window(model_name: str, profile: Mapping[str, object] | None = None) -> ModelWindow:
    """Return what is known of the model's window without asking its server.

    `model_name` may include a provider (`openai:gpt-4o`) or a vendor (`meta-llama/Llama-3.1-8B-Instruct`). `profile` is
    LangChain's profile of the model. In the table, the longest name that the model's name begins with decides.
    """
    profiled = (profile or {}).get("max_input_tokens")
    if isinstance(profiled, int) and profiled > 0:
        return ModelWindow(profiled, WindowOrigin.PROFILE)
    names = names_of(model_name.lower())
    known = next((prefix for prefix in _LONGEST_FIRST if any(name.startswith(prefix) for name in names)), None)
    if known is None:
        return ModelWindow(DEFAULT_WINDOW, WindowOrigin.UNKNOWN)
    rests = [name.removeprefix(known) for name in names if name.startswith(known)]
    neighbour = "" if any(_is_of_the_family(known, rest) for rest in rests) else known
    return ModelWindow(WINDOWS[known], WindowOrigin.TABLE, neighbour=neighbour)


def _is_of_the_family(known: str, rest: str) -> bool:
    """Return whether `rest`, what follows the table's name, is a further word, a version (`gemma2`), or a vendor's end.

    `gpt-4oo` and `gpt-42` are not of a family in the table.
    """
    word = _WORD.match(rest)
    if word is None or rest[word.end() :].startswith("/") or word.group() in _VARIANTS:
        return True
    return rest[0].isdigit() and not known[-1].isdigit()


def names_of(name: str) -> tuple[str, ...]:
    """Return the name itself, then without its provider, then without its vendor (also `bedrock:anthropic.claude-…`).

    The last one is without `ft:`, with which OpenAI marks fine-tuned models.
    """
    bare = name.partition(":")[2] or name
    last = bare.rpartition("/")[2]
    return (name, bare, last, last.partition(".")[2], bare.removeprefix("ft:"))
