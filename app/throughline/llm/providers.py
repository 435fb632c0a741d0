"""Providers that an `init_chat_model` string may name, with the package to install and the variable of their key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import SettingInvalid
from throughline.llm.translate_messages import NO_PARTS, PartKind

PLACEHOLDER_KEY = "no-key-needed"
"""Sent to servers at a `base_url` if the operator has set no key: local servers need none, but the SDKs require one."""


_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "stop": "stop"}
_OF_REQUESTS = {
    "reasoning_effort": "reasoning_effort",
    "parallel_tool_calls": "parallel_tool_calls",
    "headers": "extra_headers",
    "body": "extra_body",
}
OPENAI_PARAMETERS: Mapping[str, str] = {**_SAMPLING, **_OF_REQUESTS, "seed": "seed"}
OPENAI_WIRE_PARAMETERS: Mapping[str, str] = {**OPENAI_PARAMETERS, "return_reasoning": "return_reasoning"}
ANTHROPIC_PARAMETERS: Mapping[str, str] = {**_SAMPLING, **_OF_REQUESTS}
GOOGLE_PARAMETERS: Mapping[str, str] = {
    **_SAMPLING,
    **{name: name for name in ("seed", "reasoning_effort", "include_thoughts")},
}


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider.

    - `install`: the argument of `pip install`. `key_variable`: the environment variable of its key.
    - `own_host`: the provider's own server. `address_variables` name environment variables with an address in its
      place. The key in `key_variable` is only for these addresses (`choose_key`). `further_variables` name other
      environment variables that its package reads.
    - `key_field`: the LangChain model's field with the key, if its class accepts an empty one.
    - `output_parameter`: the provider's name for the maximum number of tokens of an answer.
    - `adds_usage`: a stream reports its usage in parts that must be added up.
    - `forbidden_tools`: the `tool_choice` that forbids tools although they are named. Anthropic requires them to be
      named if the conversation contains calls; at OpenAI a prompt without them would miss the provider's cache. None:
      tools are left out.
    - `takes_cache_markers`: the provider caches prompts only where markers say so.
    - `may_share_messages`: the class is known not to change the messages it is given.
    - `has_openai_limits`: the model uses OpenAI's wire format, which accepts less than our prompts may contain.
    - `takes_response_format`: the member `response_format` of OpenAI's wire format is sent.
    - `returned_parts`: the parts of reasoning that are sent back with the steps of a run.
    - `parameters`: those that an agent may set, each with its name in LangChain's class.
    """

    name: str
    install: str
    key_variable: str = ""
    key_field: str = ""
    output_parameter: str = "max_tokens"
    adds_usage: bool = True
    forbidden_tools: JsonObject | str | None = None
    takes_cache_markers: bool = False
    may_share_messages: bool = False
    has_openai_limits: bool = False
    takes_response_format: bool = False
    returned_parts: frozenset[PartKind] = NO_PARTS
    own_host: str = ""
    address_variables: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    further_variables: tuple[str, ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """Names of all environment variables that the provider's package reads."""
        named = {self.key_variable, *self.address_variables, *self.further_variables}
        return frozenset(named - {""})


def _plain(name: str, package: str, key_variable: str = "", further: str = "") -> Provider:
    return Provider(name, package, key_variable, further_variables=tuple(further.split()))


_AWS = (
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_PROFILE "
    "AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_BEARER_TOKEN_BEDROCK AWS_BEDROCK_BASE_URL"
)
_GOOGLE_CLOUD = "GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION"
_AZURE_ACCOUNT = "AZURE_TENANT_ID AZURE_CLIENT_ID AZURE_CLIENT_SECRET"


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "openai",
            "'throughline[openai]'",
            "OPENAI_API_KEY",
            adds_usage=False,
            forbidden_tools="none",
            may_share_messages=True,
            has_openai_limits=True,
            takes_response_format=True,
            returned_parts=frozenset({PartKind.DETAILS, PartKind.EXTRA}),
            own_host="api.openai.com",
            address_variables=("OPENAI_API_BASE", "OPENAI_BASE_URL"),
            further_variables=("OPENAI_ORG_ID", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID", "OPENAI_PROXY"),
            parameters=OPENAI_WIRE_PARAMETERS,
        ),
        Provider(
            "anthropic",
            "'throughline[anthropic]'",
            "ANTHROPIC_API_KEY",
            "anthropic_api_key",
            adds_usage=False,
            forbidden_tools={"type": "none"},
            takes_cache_markers=True,
            returned_parts=frozenset({PartKind.THINKING}),
            own_host="api.anthropic.com",
            address_variables=("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
            further_variables=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROXY"),
            parameters=ANTHROPIC_PARAMETERS,
        ),
        Provider(
            "google_genai",
            "'throughline[google-genai]'",
            "GOOGLE_API_KEY",
            output_parameter="max_output_tokens",
            returned_parts=frozenset({PartKind.SIGNATURE}),
            own_host="generativelanguage.googleapis.com",
            address_variables=("GOOGLE_GEMINI_BASE_URL",),
            further_variables=("GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", *_GOOGLE_CLOUD.split()),
            parameters=GOOGLE_PARAMETERS,
        ),
        Provider(
            "google_vertexai",
            "langchain-google-vertexai",
            output_parameter="max_output_tokens",
            further_variables=tuple(_GOOGLE_CLOUD.split()),
        ),
        Provider(
            "azure_openai",
            "'throughline[openai]'",
            "AZURE_OPENAI_API_KEY",
            address_variables=("AZURE_OPENAI_ENDPOINT",),
            further_variables=(
                *("OPENAI_API_VERSION", "OPENAI_API_TYPE", "AZURE_OPENAI_AD_TOKEN"),
                *_AZURE_ACCOUNT.split(),
            ),
            parameters=OPENAI_PARAMETERS,
            adds_usage=False,
            forbidden_tools="none",
            has_openai_limits=True,
            takes_response_format=True,
        ),
        Provider("langsmith", "'throughline[openai]'", "LANGSMITH_API_KEY", adds_usage=False, has_openai_limits=True),
        Provider(
            "ollama",
            "langchain-ollama",
            output_parameter="num_predict",
            further_variables=("OLLAMA_HOST", "OLLAMA_API_KEY"),
        ),
        _plain("anthropic_bedrock", "langchain-aws", further=_AWS),
        _plain(
            "azure_ai",
            "langchain-azure-ai",
            further=f"AZURE_AI_ENDPOINT AZURE_AI_CREDENTIAL AZURE_AI_PROJECT_ENDPOINT {_AZURE_ACCOUNT}",
        ),
        _plain("baseten", "langchain-baseten", "BASETEN_API_KEY"),
        _plain("bedrock", "langchain-aws", further=_AWS),
        _plain("bedrock_converse", "langchain-aws", further=_AWS),
        _plain("bedrock_mantle_anthropic", "langchain-aws", further=_AWS),
        _plain("bedrock_mantle_openai", "langchain-aws", further=_AWS),
        _plain("cohere", "langchain-cohere", "COHERE_API_KEY", "CO_API_KEY"),
        _plain("deepseek", "langchain-deepseek", "DEEPSEEK_API_KEY", "DEEPSEEK_API_BASE"),
        _plain("fireworks", "langchain-fireworks", "FIREWORKS_API_KEY", "FIREWORKS_API_BASE"),
        _plain("google_anthropic_vertex", "langchain-google-vertexai", further=_GOOGLE_CLOUD),
        _plain("groq", "langchain-groq", "GROQ_API_KEY", "GROQ_API_BASE GROQ_PROXY"),
        _plain("huggingface", "langchain-huggingface", "HUGGINGFACEHUB_API_TOKEN", "HF_TOKEN"),
        _plain("ibm", "langchain-ibm", "WATSONX_APIKEY", "WATSONX_URL WATSONX_TOKEN WATSONX_PROJECT_ID"),
        _plain("litellm", "langchain-litellm"),
        _plain("meta", "langchain-meta"),
        _plain("mistralai", "langchain-mistralai", "MISTRAL_API_KEY", "MISTRAL_BASE_URL"),
        _plain("nvidia", "langchain-nvidia-ai-endpoints", "NVIDIA_API_KEY", "NVIDIA_BASE_URL"),
        _plain("openrouter", "langchain-openrouter", "OPENROUTER_API_KEY", "OPENROUTER_API_BASE"),
        _plain("perplexity", "langchain-perplexity", "PPLX_API_KEY", "PERPLEXITY_API_KEY"),
        _plain("together", "langchain-together", "TOGETHER_API_KEY", "TOGETHER_API_BASE"),
        _plain("upstage", "langchain-upstage", "UPSTAGE_API_KEY", "UPSTAGE_API_BASE"),
        _plain("xai", "langchain-xai", "XAI_API_KEY"),
    )
}

PROVIDER_VARIABLES: frozenset[str] = frozenset().union(*(provider.variables for provider in PROVIDERS.values()))
"""Names of all environment variables with a provider's key, address or account."""

# As init_chat_model infers them, except Gemini, which it sends to Vertex AI with a deprecation warning.
INFERRED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gpt-", "o1", "o3", "o4", "chatgpt", "text-davinci"), "openai"),
    (("claude",), "anthropic"),
    (("gemini",), "google_genai"),
    (("command",), "cohere"),
    (("accounts/fireworks",), "fireworks"),
    (("amazon.", "anthropic.", "meta."), "bedrock"),
    (("mistral", "mixtral"), "mistralai"),
    (("deepseek",), "deepseek"),
    (("grok",), "xai"),
    (("sonar",), "perplexity"),
    (("solar",), "upstage"),
)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model's name, split into provider and model."""

    provider: Provider
    model: str

    @property
    def full(self) -> str:
        """The full name, `provider:model`."""
        return f"{self.provider.name}:{self.model}"


def parse_model_name(name: str, base_url: str | None) -> ModelName:
    """Split `provider:model`, or infer the provider; with a `base_url` and no provider it is `openai`.

    A colon that follows no known provider is part of the model's name (`qwen2.5:7b`). Raises SettingInvalid if the
    provider cannot be inferred.
    """
    prefix, _, rest = name.partition(":")
    provider = PROVIDERS.get(prefix.replace("-", "_").lower())
    if provider is not None and rest:
        return ModelName(provider, rest)
    if base_url is not None:
        return ModelName(PROVIDERS["openai"], name)
    lowered = name.lower()
    inferred = next((provider for prefixes, provider in INFERRED if lowered.startswith(prefixes)), None)
    if inferred is None:
        raise SettingInvalid(
            f"model {name!r} names no known provider: write provider:model (for example openai:gpt-4o), give a "
            f"base_url for an OpenAI-compatible server, or use offline; providers: {', '.join(sorted(PROVIDERS))}"
        )
    return ModelName(PROVIDERS[inferred], name)


# Choice of the API key for an address: a provider's key from the environment is never sent to another server.
#
# Chat models and embedding models use it, because their packages would send the key to any `base_url`.

HTTPS_PORT = 443
HOST = re.compile(r"[a-z0-9._:-]+")
"""A host name or an address. HTTP clients read anything else in a URL's host in different ways."""

ReadVariable = Callable[[str], str]
"""Function that returns an environment variable's value, '' if it is not set."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address and key for calls of a model; None leaves either of them to the provider's package."""

    base_url: str | None = None
    api_key: str | None = None

    def options(self) -> dict[str, Any]:  # Any: keyword arguments of many classes
        """Return `base_url` and `api_key`, those that are set, as keyword arguments of LangChain's model classes."""
        given = {"base_url": self.base_url, "api_key": self.api_key}
        return {name: value for name, value in given.items() if value is not None}


def no_variable(_name: str) -> str:
    """Return '' for every variable: the default for callers without named keys."""
    return ""


def choose_key(
    provider: Provider, base_url: str | None, api_key_env: str | None, read_variable: ReadVariable
) -> str | None:
    """Return the key to send to `base_url`; None leaves it to the provider's package, which reads the environment.

    A named `api_key_env` always decides; raises SettingInvalid if that variable is not set. Otherwise None is returned
    for the provider's own address, for the one that the environment sets for it, and for providers without a key
    variable. Any other server gets a placeholder.
    """
    if api_key_env:
        key = read_variable(api_key_env)
        if not key:
            raise SettingInvalid(
                f"the key for {_shown(base_url)} is not set: set the variable {api_key_env}, or remove its name "
                "from the agent file (api_key_env) or the setting (…_API_KEY_ENV)"
            )
        return key
    if base_url is None or not provider.key_variable or _is_own(provider, base_url, read_variable):
        return None
    return PLACEHOLDER_KEY


def is_of_a_provider(base_url: str) -> bool:
    """Return whether the address is the own server of one of the known providers, whatever its scheme and port."""
    _, host, _ = _origin(base_url)
    return any(_is_providers(provider, host) for provider in PROVIDERS.values())


def _is_providers(provider: Provider, host: str) -> bool:
    return bool(provider.own_host) and (host == provider.own_host or host.endswith(f".{provider.own_host}"))


def _is_own(provider: Provider, base_url: str, read_variable: ReadVariable) -> bool:
    origin = _origin(base_url)
    scheme, host, port = origin
    if not host:
        return False
    if _is_providers(provider, host) and scheme == "https" and port in {None, HTTPS_PORT}:
        return True
    return any(address and _origin(address) == origin for address in map(read_variable, provider.address_variables))


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    try:
        host = (parts.hostname or "").removesuffix(".")
        return (parts.scheme, host, parts.port) if HOST.fullmatch(host) else ("", "", None)
    except ValueError:  # a port that is no number
        return "", "", None


def display_address(base_url: str) -> str:
    """Return the address with its path, without credentials and query, for logs and the command line."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/") if parts.netloc else ""


def _shown(base_url: str | None) -> str:
    """Return the address without any credentials in it."""
    scheme, host, port = _origin(base_url or "")
    return f"{scheme}://{host}" + (f":{port}" if port else "")


_WORDS = (("specify a region", "REGION"), ("default credentials", "APPLICATION_CREDENTIALS"))
"""Words of packages that name no variable, each with a part of the names of the variables that are missing."""


def as_setting(name: ModelName, advice: str, error: Exception) -> SettingInvalid:
    """Return the error for a model that its package cannot create, which is a mistake in the operator's settings."""
    provider, text = name.provider, str(error)
    said = text.lower()
    if isinstance(error, ImportError):
        return SettingInvalid(
            f"model {name.full!r} needs a package that is not installed: pip install {provider.install}"
        )
    if named := _missing_variables(provider, text):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} lacks what its provider needs: set {' or '.join(named)}{advice}")
    if provider.key_variable and ("key" in said or "credential" in said):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} has no key: set {provider.key_variable}{advice}")
    read = ", ".join(sorted(provider.variables))
    variables = f", and the variables that its package reads: {read}" if read else ""
    return SettingInvalid(
        f"model {name.full!r} cannot be set up ({type(error).__name__}): check its name and options{variables}"
    )


def _missing_variables(provider: Provider, text: str) -> list[str]:
    """Return the provider's variables that the package's error names, or that a known phrase in it means."""
    parts = [part for words, part in _WORDS if words in text]
    return sorted(name for name in provider.variables if name in text or any(part in name for part in parts))
