"""Embedding models through LangChain's `init_embeddings`, with one place for calls, time limits and errors."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from langchain.embeddings import init_embeddings
from langchain_core.embeddings import Embeddings

from throughline.domain.errors import ContextOverflow, ModelUnavailable, SettingInvalid
from throughline.domain.prompt import Usage
from throughline.domain.recall import MAX_DIMENSIONS, Vector
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.bounded_http import ResponseBounds, bound_responses
from throughline.llm.classify_error import Call, classify
from throughline.llm.counters import make_counter
from throughline.llm.prices import NO_OWN_PRICES, Prices
from throughline.llm.provider_error import Sent, raised_as, secrets_of
from throughline.llm.providers import (
    Access,
    ModelName,
    ReadVariable,
    as_setting,
    choose_key,
    no_variable,
    parse_model_name,
)

COUNTER = "tiktoken"
OPENAI_WIRE = ("openai", "azure_openai")
SHORTEST_CUT = 64
"""Length down to which a text that is too long for a model is halved."""
MOST_BYTES = 64_000_000
BOUNDS = ResponseBounds(whole_bytes=MOST_BYTES, event_bytes=MOST_BYTES, lines=MOST_BYTES)
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
    bounds: ResponseBounds = BOUNDS
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
        count = make_counter(COUNTER).count
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
        with raised_as(partial(classify, call=Call(self.model, sent=sent))):
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
    with raised_as(partial(_refusal, name)):
        embeddings = _construct(name, config)
    bound_responses(embeddings, config.bounds)
    cost = partial(config.prices.cost, name, config.base_url or "")
    return LangChainEmbedder(name.full, embeddings, config.timeout_seconds, cost)


def _construct(name: ModelName, config: EmbeddingConfig) -> Embeddings:
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


def _refusal(name: ModelName, error: Exception) -> SettingInvalid:
    said = str(error).lower()
    if "not supported" in said or "must specify" in said:
        detail = "offers no embedding models through init_embeddings: choose another provider"
        return SettingInvalid(f"{name.provider.name} {detail}")
    return as_setting(name, "", error)
