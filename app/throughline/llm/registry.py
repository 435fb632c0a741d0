"""Models by name: the registry of chat models, which makes each model once, and the embedding model."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, partial
from typing import Any

from langchain.chat_models import init_chat_model
from langchain.embeddings import init_embeddings
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, ai
from langchain_core.utils import json as json_utils
from pydantic import BaseModel, SecretStr

from throughline.domain.errors import ContextOverflow, ModelUnavailable, SettingInvalid
from throughline.domain.prompt import Usage
from throughline.domain.recall import MAX_DIMENSIONS, Vector
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.assemble_answer import is_token_count
from throughline.llm.bounded_http import CHAT_BOUNDS, ResponseBounds, bound_responses
from throughline.llm.chat_model import MOST_CHUNKS, LangChainChatModel, ModelTraits
from throughline.llm.classify_error import FailedCall, classify
from throughline.llm.context_windows import KnownWindow, ModelServer, ask_window, find_server, find_window
from throughline.llm.counters import make_counter
from throughline.llm.offline import OfflineModel
from throughline.llm.prices import NO_OWN_PRICES, Prices
from throughline.llm.provider_error import Sent, raised_as, secrets_of
from throughline.llm.providers import (
    Access,
    ModelName,
    ReadVariable,
    as_setting,
    choose_key,
    display_address,
    no_variable,
    parse_model_name,
)
from throughline.llm.translate_messages import PartKind, wants_content
from throughline.ports.models import ChatModel

# LangChain parses each piece of a streamed tool call, and all pieces at the end, as possibly incomplete JSON, by
# removing one character after the other. One piece of 100 kB that was no JSON blocked the event loop for minutes.
# LangChain has no option for it. Its result is not needed: `assemble_answer.py` joins the raw pieces.

MOST_CUT_CHARACTERS = 500
"""Longest text parsed in LangChain's way, which takes a few milliseconds; a longer one must be complete JSON."""

_parse_cut: Callable[..., object] = json_utils.parse_partial_json


def parse_in_linear_time() -> None:
    """Patch LangChain so that long pieces of tool calls are parsed only if they are complete JSON. Idempotent.

    Raises ImportError if LangChain no longer has the function to patch; the patch must then be revised.
    """
    if getattr(ai, "parse_partial_json", None) not in {_parse_cut, _parse}:
        raise ImportError("langchain_core.messages.ai parses arguments in another way than throughline expects")
    setattr(ai, "parse_partial_json", _parse)  # noqa: B010  # the one place that calls it, under another type


def _parse(text: str, *, strict: bool = False) -> object:
    """Return the value of the text. Raises ValueError; LangChain then keeps the piece as unparsable."""
    return _parse_cut(text, strict=strict) if len(text) <= MOST_CUT_CHARACTERS else json.loads(text, strict=strict)


OFFLINE = "offline"
ANOTHER_MODEL = "choose another model (offline needs none)"
OPENAI_FAMILIES = ("gpt-", "o1", "o3", "o4", "chatgpt")


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """The operator's settings for models. Provider packages read a provider's own key from the environment.

    `default_base_url` belongs to `default_model`, whether it is named or used by default. `default_api_key_env` names
    the variable with the key for that address, no matter which setting names the address. `read_variable` reads such a
    variable. `prices` are used for all models.
    """

    default_model: str = OFFLINE
    default_base_url: str | None = None
    default_api_key_env: str | None = None
    read_variable: ReadVariable = no_variable
    idle_timeout_seconds: float = 60.0
    connect_timeout_seconds: float = 5.0
    bounds: ResponseBounds = CHAT_BOUNDS
    max_chunks: int = MOST_CHUNKS
    prices: Prices = NO_OWN_PRICES


def inherited_base_url(model: str, *, default_model: str, default_base_url: str) -> str | None:
    """Return the address of `model` if none is set: the default model's, if both have the same provider.

    None is the provider's own address. Without this rule, naming a second model would send the texts that an operator
    keeps on their own server to the provider.
    """
    if not default_base_url or OFFLINE in {model, default_model}:
        return None
    is_beside = _provider_at(model, default_base_url) == _provider_at(default_model, default_base_url)
    return default_base_url if is_beside else None


def _provider_at(model: str, base_url: str) -> str:
    """Return the model's provider; a name without one belongs to an OpenAI-compatible server."""
    try:
        return parse_model_name(model, None).provider.name
    except SettingInvalid:
        return parse_model_name(model, base_url).provider.name


class ModelRegistry:
    """The Models port: creates each named chat model when it is first needed, and keeps it until `close`."""

    def __init__(self, config: ModelsConfig | None = None) -> None:
        """Keep the configuration; each model is created when it is first needed."""
        parse_in_linear_time()
        self._config = config or ModelsConfig()
        self._models: dict[tuple[str, str | None, str | None], ChatModel] = {}
        self._opened: list[BaseChatModel] = []
        self._windows: list[KnownWindow] = []

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        name, address = model.strip(), base_url or None
        if name in {"", self._config.default_model}:
            name, address = self._config.default_model, address or self._config.default_base_url or None
        if address is not None and address == self._config.default_base_url:
            api_key_env = api_key_env or self._config.default_api_key_env
        key = (name, address, api_key_env)
        if key not in self._models:
            self._models[key] = self._make(*key)
        return self._models[key]

    async def close(self) -> None:
        """Close the connections to providers; models must not be used afterwards."""
        for window in self._windows:
            await window.close()
        for model in self._opened:
            await _close(model)
        self._windows.clear()
        self._opened.clear()
        self._models.clear()

    def _make(self, name: str, base_url: str | None, api_key_env: str | None) -> ChatModel:
        if name == OFFLINE:
            return OfflineModel()
        parsed = parse_model_name(name, base_url)
        api_key = choose_key(parsed.provider, base_url, api_key_env, self._config.read_variable)
        model = _construct(parsed, Access(base_url, api_key), self._config)
        self._opened.append(model)
        with raised_as(partial(as_setting, parsed, ANOTHER_MODEL)):  # some packages make their clients only here
            bound_responses(model, self._config.bounds)
            server = find_server(parsed, model)
        address = server.base_url if server else base_url or ""
        traits = ModelTraits(
            name=parsed.full,
            provider=parsed.provider,
            idle_timeout_seconds=self._config.idle_timeout_seconds,
            has_known_tokenizer=parsed.provider.name == "openai" and parsed.model.startswith(OPENAI_FAMILIES),
            returned_parts=_returned_parts(parsed, address),
            base_url=base_url,
            address=display_address(address),
            max_chunks=self._config.max_chunks,
            cost=partial(self._config.prices.cost, parsed, address),
        )
        return LangChainChatModel(model, traits, self._window_of(parsed, model, server))

    def _window_of(self, name: ModelName, model: BaseChatModel, server: ModelServer | None) -> KnownWindow:
        ask = None if server is None else partial(ask_window, server)
        self._windows.append(known := KnownWindow(name.full, find_window(name.full, model.profile), ask))
        return known


def _returned_parts(name: ModelName, address: str) -> frozenset[PartKind]:
    kinds = name.provider.returned_parts
    return kinds | {PartKind.CONTENT} if name.provider.name == "openai" and wants_content(address) else kinds


def _construct(name: ModelName, access: Access, config: ModelsConfig) -> BaseChatModel:
    """Create the LangChain model; an error of its package means a mistake in the operator's settings."""
    with raised_as(partial(as_setting, name, ANOTHER_MODEL)):
        model = MAKERS.get(name.provider.name, _make_other)(name, access, config)
    _require_key(model, name)
    return model


def _make_openai(name: ModelName, access: Access, config: ModelsConfig) -> BaseChatModel:
    from throughline.llm.openai_wire import make_openai  # noqa: PLC0415  # the provider package is optional

    return make_openai(
        name.model,
        access.base_url,
        api_key=access.api_key,
        idle_seconds=config.idle_timeout_seconds,
        connect_seconds=config.connect_timeout_seconds,
    )


def _make_anthropic(name: ModelName, access: Access, config: ModelsConfig) -> BaseChatModel:
    return _tolerant_anthropic()(
        model=name.model, max_retries=0, timeout=config.idle_timeout_seconds, **access.options()
    )


@cache
def _tolerant_anthropic() -> Callable[..., BaseChatModel]:
    """Return a ChatAnthropic that takes every block, and ignores usage that is no number, as some gateways send it."""
    from langchain_anthropic import ChatAnthropic  # noqa: PLC0415  # the provider package is optional

    class TolerantChatAnthropic(ChatAnthropic):
        def _make_message_chunk_from_anthropic_event(
            self,
            event: Any,  # noqa: ANN401  # LangChain's signature: one of many events
            **kwargs: Any,  # noqa: ANN401  # LangChain's signature
        ) -> tuple[AIMessageChunk | None, Any]:
            usage = getattr(event, "usage", None)
            if isinstance(usage, BaseModel):
                event.usage = _mended(usage)
            # Without tools LangChain expects text alone, and warns of the other blocks of a model which thinks.
            kwargs["coerce_content_to_string"] = False
            return super()._make_message_chunk_from_anthropic_event(event, **kwargs)

    return TolerantChatAnthropic


def _mended(usage: BaseModel) -> BaseModel:
    """Return the usage with None in place of every value that is neither a token count nor a group of token counts."""
    return usage.model_copy(update={name: None for name, value in usage if not _is_readable(value)})


def _is_readable(value: object) -> bool:
    if isinstance(value, BaseModel):
        return all(is_token_count(part) for _, part in value)
    return is_token_count(value)


def _make_other(name: ModelName, access: Access, config: ModelsConfig) -> BaseChatModel:
    # 1 is "no retry" for Google, whose 0 means "the SDK's own default"
    retries = 1 if name.provider.name.startswith("google") else 0
    model: BaseChatModel = init_chat_model(
        name.model,
        model_provider=name.provider.name,
        max_retries=retries,
        timeout=config.idle_timeout_seconds,
        **access.options(),
    )
    if name.provider.name == "google_genai":
        _keep_to_httpx(model)
    return model


MAKERS = {"openai": _make_openai, "anthropic": _make_anthropic}
"""Functions that create models with corrected stream parsing; all other models are LangChain's own."""


def _keep_to_httpx(model: BaseChatModel) -> None:
    """Make Google's SDK use httpx even if aiohttp is installed, with which it loses error bodies."""
    client = getattr(getattr(model, "client", None), "_api_client", None)
    if client is not None:
        client._http_options.httpx_async_client = client._async_httpx_client  # noqa: SLF001  # there is no public API for it


def _require_key(model: BaseChatModel, name: ModelName) -> None:
    field = name.provider.key_field
    key = getattr(model, field, None) if field else None
    if isinstance(key, SecretStr) and not key.get_secret_value():
        raise SettingInvalid(f"model {name.full!r} has no key: set {name.provider.key_variable}")


async def _close(model: BaseChatModel) -> None:
    """Close the model's own connections; LangChain's Anthropic client is shared in the process and stays open."""
    client = getattr(model, "http_async_client", None)
    close = getattr(client, "aclose", None) or getattr(model, "aclose", None)
    if callable(close):
        await close()


EMBEDDING_COUNTER = "tiktoken"
OPENAI_WIRE = ("openai", "azure_openai")
SHORTEST_CUT = 64
"""Length down to which a text that is too long for a model is halved."""
MOST_VECTOR_BYTES = 64_000_000
EMBEDDING_BOUNDS = ResponseBounds(whole_bytes=MOST_VECTOR_BYTES, event_bytes=MOST_VECTOR_BYTES, lines=MOST_VECTOR_BYTES)
"""Limits of one response: all vectors of a batch, on one line or with one number per line."""


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The embedding model: a name for `init_embeddings`, or any name at an OpenAI-compatible server's `base_url`.

    `dimensions` is requested from the model, None for its own. `api_key_env` names the variable with the key for
    `base_url`, which `read_variable` reads. The packages read a provider's own key from the environment. `prices` say
    what the calls cost.
    """

    model: str
    base_url: str | None = None
    dimensions: int | None = None
    timeout_seconds: float = 60.0
    connect_timeout_seconds: float = 5.0
    bounds: ResponseBounds = EMBEDDING_BOUNDS
    api_key_env: str | None = None
    read_variable: ReadVariable = no_variable
    prices: Prices = NO_OWN_PRICES


class LangChainEmbedder:
    """Implementation of the Embedder port with one LangChain model."""

    def __init__(
        self, model: str, embeddings: Embeddings, timeout_seconds: float, cost: Callable[[Usage], Decimal | None]
    ) -> None:
        """Use `embeddings`, whose full name is `model`. One answer takes `timeout_seconds` at most."""
        self.model = model
        self._cost = cost
        self._embeddings = embeddings
        self._timeout_seconds = timeout_seconds

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return the vectors. One text too long for the model is halved, keeping its beginning, until it fits.

        Raises ContextOverflow if one of several texts is too long.
        """
        try:
            return await self._ask(texts)
        except ContextOverflow:
            if len(texts) > 1 or len(texts[0]) <= SHORTEST_CUT:
                raise
            return await self.embed([texts[0][: len(texts[0]) // 2]])

    async def usage_of(self, texts: Sequence[str]) -> Usage:
        """Return the tokens of the texts and their cost. LangChain's classes drop what the provider reports.

        The count is tiktoken's, which is that of OpenAI's models and near that of others.
        """
        count = make_counter(EMBEDDING_COUNTER).count
        size = sum(map(len, texts))
        tokens = await run_off_loop_if_large(size, lambda: sum(count(text) for text in texts))
        usage = Usage(input_tokens=tokens, output_tokens=0)
        return replace(usage, cost_usd=self._cost(usage))

    async def close(self) -> None:
        """Close the connections; the embedder must not be used afterwards."""
        client = getattr(self._embeddings, "http_async_client", None)
        close: Callable[[], Awaitable[None]] | None = getattr(client, "aclose", None)
        if close is not None:
            await close()

    async def _ask(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        sent = Sent(tuple(texts), secrets_of(self._embeddings))
        with raised_as(partial(classify, call=FailedCall(self.model, sent=sent))):
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._embeddings.aembed_documents(list(texts))
        return self._read(answer, len(texts))

    def _read(self, answer: list[list[float]], count: int) -> tuple[Vector, ...]:
        vectors = _as_vectors(answer)
        if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
            raise self._unreadable("vectors are missing or differ in length")
        if not 0 < len(vectors[0]) <= MAX_DIMENSIONS:
            raise self._unreadable(f"vectors have {len(vectors[0])} dimensions")
        if not all(_has_direction(vector) for vector in vectors):
            raise self._unreadable("a vector is zero or holds what is no number")
        return vectors

    def _unreadable(self, detail: str) -> ModelUnavailable:
        return ModelUnavailable(f"{self.model}: the provider sent an answer that cannot be used: {detail}")


def _as_vectors(answer: list[list[float]]) -> tuple[Vector, ...]:
    """Return the vectors; an empty tuple if one of them is invalid."""
    try:
        return tuple(tuple(map(float, vector)) for vector in answer)
    except (TypeError, ValueError):
        return ()


def _has_direction(vector: Vector) -> bool:
    """Return whether the vector's length is above 0 and finite when its values are stored in four bytes each."""
    length = math.sqrt(sum(value * value for value in vector))
    return 1e-30 < length < 1e30  # noqa: PLR2004  # well within the range of a 4-byte float, and beyond any model's values


def make_embedder(config: EmbeddingConfig) -> LangChainEmbedder:
    """Return the embedder. Raises SettingInvalid for an unknown provider, a missing package or a missing key."""
    name = parse_model_name(config.model, config.base_url)
    with raised_as(partial(_embedding_refusal, name)):
        embeddings = _construct_embeddings(name, config)
    bound_responses(embeddings, config.bounds)
    cost = partial(config.prices.cost, name, config.base_url or "")
    return LangChainEmbedder(name.full, embeddings, config.timeout_seconds, cost)


def _construct_embeddings(name: ModelName, config: EmbeddingConfig) -> Embeddings:
    provider = name.provider.name
    if provider in OPENAI_WIRE:
        return _construct_openai(name, config)
    if config.dimensions is not None:
        raise SettingInvalid(f"model {name.full!r} takes no dimensions from here: leave EMBEDDING_DIMENSIONS empty")
    return init_embeddings(name.model, provider=provider, **_access(name, config).options())


def _access(name: ModelName, config: EmbeddingConfig) -> Access:
    return Access(config.base_url, choose_key(name.provider, config.base_url, config.api_key_env, config.read_variable))


def _construct_openai(name: ModelName, config: EmbeddingConfig) -> Embeddings:
    import openai  # noqa: PLC0415  # the package is optional

    timeout = openai.Timeout(config.timeout_seconds, connect=config.connect_timeout_seconds)
    options: dict[str, Any] = {  # keyword arguments of OpenAIEmbeddings
        "max_retries": 0,
        "timeout": timeout,
        "check_embedding_ctx_length": False,  # send text: not all servers take OpenAI's tokens
        "model_kwargs": {"encoding_format": "float"},  # and not all know base64
        "http_async_client": openai.DefaultAsyncHttpxClient(timeout=timeout),
        **_access(name, config).options(),
    }
    if config.dimensions is not None:
        options["dimensions"] = config.dimensions
    return init_embeddings(name.model, provider=name.provider.name, **options)


def _embedding_refusal(name: ModelName, error: Exception) -> SettingInvalid:
    said = str(error).lower()
    if "not supported" in said or "must specify" in said:
        detail = "offers no embedding models through init_embeddings: choose another provider"
        return SettingInvalid(f"{name.provider.name} {detail}")
    return as_setting(name, "", error)
