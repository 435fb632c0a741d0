"""Registry of chat models: creates the models that agent files and settings name, each once, and caches them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, ai
from langchain_core.utils import json as json_utils
from pydantic import BaseModel, SecretStr

from throughline.domain.errors import SettingInvalid
from throughline.llm.assemble_answer import is_token_count
from throughline.llm.bounded_http import CHAT_BOUNDS, ResponseBounds, bound_responses
from throughline.llm.chat_model import MOST_CHUNKS, LangChainChatModel, ModelTraits
from throughline.llm.context_windows import KnownWindow, ModelServer, ask_window, find_server, find_window
from throughline.llm.offline import OfflineModel
from throughline.llm.prices import NO_OWN_PRICES, Prices
from throughline.llm.provider_error import raised_as
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
