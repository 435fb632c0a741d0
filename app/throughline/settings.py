"""All settings of the service, read once from the environment or `.env`, and passed on in small frozen values."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, NoDecode, SettingsConfigDict, SettingsError

from throughline.agents.check_base_url import check_base_url, check_variable
from throughline.agents.policy_fields import policy_field
from throughline.api.http.config import ANY_ORIGIN
from throughline.context.policy import ContextPolicy
from throughline.domain.access_tokens import TOKEN_PREFIX
from throughline.domain.errors import SettingInvalid
from throughline.domain.submission import Caps

ENV_FILE = ".env"
"""File of settings in the folder where a program is started."""

SHORTEST_KEY = 24
LEAST_KEY_HOURS = 24
"""Shortest retention of idempotency keys: clients, and Slack, repeat requests for hours."""

TRACING_PREFIXES = ("LANGCHAIN_", "LANGSMITH_", "OTEL_")
KEY_SUFFIX = "_API_KEY"

VISIBLE_ASCII = re.compile(r"[!-~]*")
"""Characters that every client can send in a header."""

ORIGIN = re.compile(r"\A[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?\Z")
"""An origin as browsers send it.

Origins are compared as text, so that one with a path, a wildcard or capital letters would match none.
"""

MOST_SHOWN = 80
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
HOUR, DAY = 3_600, 86_400
"""Upper bounds of settings in seconds. A longer wait is a mistake, and clocks and intervals may overflow."""


class Settings(BaseSettings):
    """Settings of the service.

    Names are the environment variables in lower case. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
    )

    database_url: str = Field("", description="address of PostgreSQL 15 or newer; empty: the embedded server")
    database_direct_url: str = Field(
        "", description="address of PostgreSQL itself, if DATABASE_URL is that of a pooler in transaction mode"
    )
    data_dir: Path | None = Field(
        None, description="data folder of the embedded server; empty: in the user's data folder"
    )
    migrate_on_start: bool = Field(default=True, description="run migrations when a service starts, under a lock")
    db_pool_size: int = Field(10, ge=1, le=200, description="database connections that requests and turns share")
    db_pool_timeout_seconds: float = Field(5.0, gt=0, le=HOUR, description="how long to wait for a free connection")

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    health_port: int | None = Field(
        None, ge=0, le=65535, description="port on which `worker` and `slack` serve health and metrics; empty: none"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="origins allowed to call from a browser, separated by commas"
    )
    bootstrap_api_key: str = Field("", description="a key that exists from the first start (at least 24 characters)")
    max_connections: int = Field(5_000, ge=1, le=1_000_000, description="most open connections; further ones get 503")
    max_body_bytes: int = Field(2_000_000, ge=1_000, le=1_000_000_000, description="largest request body")
    max_import_bytes: int = Field(
        32_000_000, ge=1_000, le=1_000_000_000, description="largest body of an import; it is held in memory"
    )
    max_held_body_bytes: int = Field(
        128_000_000,
        ge=1_000,
        le=100_000_000_000,
        description="bytes of bodies over 64 kB in memory at once; one user may use half, further bodies wait",
    )
    max_websockets: int = Field(
        100, ge=1, le=100_000, description="most open WebSockets, each with a message in memory; one user may have half"
    )

    default_llm: str = Field("offline", description="model of agents that name no model")
    default_llm_base_url: str = Field("", description="OpenAI-compatible server for `default_llm`")
    default_llm_api_key_env: str = Field("", description="name of the variable with the key for `default_llm_base_url`")
    context_usage_threshold: float = policy_field(
        ContextPolicy, "usage_threshold", description="share of the window above which the prompt is made smaller"
    )
    context_summary_model: str = Field("", description="model that writes summaries; empty: `default_llm`")
    context_summary_model_base_url: str = Field(
        "", description="server of `context_summary_model`; empty: that of `default_llm` if both have the same provider"
    )
    context_summary_model_api_key_env: str = Field(
        "", description="name of the variable with the key for `context_summary_model_base_url`"
    )
    embedding_model: str = Field(
        "", description="embedding model for memories and messages; empty: search by words only"
    )
    embedding_base_url: str = Field("", description="OpenAI-compatible server for `embedding_model`")
    embedding_api_key_env: str = Field("", description="name of the variable with the key for `embedding_base_url`")
    embedding_dimensions: int | None = Field(
        None, ge=1, le=16_000, description="dimensions to request from the embedding model; empty: the model's own"
    )
    embedding_history: bool = Field(default=True, description="embed messages too; false: only memories")
    embedding_calls_per_minute: int = Field(
        60, ge=1, le=100_000, description="requests to `embedding_model` a minute, of up to 64 messages each"
    )
    agents_dir: Path | None = Field(None, description="folder of agent files that add to or override the shipped ones")
    agents_reload: bool = Field(default=True, description="read the files in `agents_dir` again when they change")
    prices_file: Path | None = Field(
        None, description="YAML file of model prices that are unknown or not those of the price list"
    )
    tool_timeout_seconds: float = Field(30.0, gt=0, le=DAY)
    turn_timeout_seconds: float = Field(300.0, gt=0, le=DAY, description="one deadline for all model calls of a turn")
    model_idle_timeout_seconds: float = Field(60.0, gt=0, le=DAY, description="longest time without data from a model")

    worker_concurrency: int = Field(500, ge=1, le=5_000, description="open turns of this process")
    loaded_rows_bytes: int = Field(
        64_000_000, ge=0, le=100_000_000_000, description="bytes of loaded session rows that are kept for the next turn"
    )
    compute_threads: int = Field(2, ge=1, le=64, description="threads of this process that work on long texts")
    lease_seconds: float = Field(
        10.0, ge=2, le=HOUR, description="how long a process without a heartbeat keeps its runs and answers"
    )
    job_concurrency: int = Field(32, ge=1, le=500, description="concurrent side jobs of this process")
    no_worker_timeout_seconds: float = Field(30.0, gt=0, le=HOUR, description="how long a request waits for a worker")
    max_queued_per_session: int = Field(10, ge=1, le=10_000, description="waiting messages of one session")
    max_queued_per_owner: int = Field(1_000, ge=1, le=1_000_000, description="waiting messages of one owner")
    max_running_per_owner: int = Field(250, ge=1, le=1_000_000, description="running turns of one owner")
    shutdown_grace_seconds: float = Field(
        20.0, ge=0, le=HOUR, description="how long running turns may take to end at shutdown"
    )

    slack_bot_token: str = Field(
        "", repr=False, description="xoxb-…: the app's token in its workspace; empty: no Slack"
    )
    slack_signing_secret: str = Field("", repr=False, description="for events over HTTP, at /slack/events of `serve`")
    slack_app_token: str = Field("", repr=False, description="xapp-…: for Socket Mode, `throughline slack`")
    slack_agent: str = Field("assistant", description="the agent that answers in Slack")
    slack_link_by_email: bool = Field(
        default=False, description="link a workspace member with a confirmed e-mail address to the user of that name"
    )
    slack_api_url: str = Field("https://slack.com/api/", pattern="^https?://.+/$", description="Slack's Web API")

    search_language: str = Field("english", description="language of the stemmer for history search")

    run_events_retention_hours: int = Field(24, ge=1, le=8760, description="how long events of ended runs are kept")
    idempotency_keys_retention_hours: int = Field(
        720, ge=0, le=87_600, description="how long idempotency keys are kept; 0: for ever"
    )
    archived_sessions_retention_days: int | None = Field(
        None, ge=1, le=3650, description="how long archived sessions are kept until they are erased; empty: for ever"
    )
    unused_summaries_retention_days: int = Field(30, ge=1, le=3650, description="how long unused summaries are kept")
    job_log_retention_hours: int = Field(72, ge=1, le=8760, description="how long records of failed side jobs are kept")

    tracing: str = Field("off", pattern="^(off|otlp)$", description="send traces of turns: off, or otlp")
    tracing_endpoint: str = Field(
        "http://127.0.0.1:4318",
        description="OTLP server for traces; `/v1/traces` is added to an address without a path",
    )
    tracing_headers_env: str = Field(
        "", description="name of the variable with HTTP headers for `tracing_endpoint`: `name=value,name=value`"
    )
    tracing_sample_ratio: float = Field(1.0, gt=0, le=1, description="share of turns that are traced")
    tracing_texts: bool = Field(default=False, description="put prompts, answers and tool results into traces")

    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    log_format: str = Field("auto", pattern="^(auto|json|console)$")

    @property
    def caps(self) -> Caps:
        """Limits on the number of waiting and running turns."""
        return Caps(self.max_queued_per_session, self.max_queued_per_owner, self.max_running_per_owner)

    @field_validator("bootstrap_api_key")
    @classmethod
    def _check_key(cls, value: str) -> str:
        if value and len(value) < SHORTEST_KEY:
            raise ValueError(f"a key needs at least {SHORTEST_KEY} characters, but this one has {len(value)}")
        if value.startswith(TOKEN_PREFIX):
            raise ValueError(f"a key does not begin with {TOKEN_PREFIX}, as access tokens do; choose another")
        if not VISIBLE_ASCII.fullmatch(value):
            raise ValueError(
                "clients cannot send this key in a header: use ASCII letters, digits and punctuation without blanks"
            )
        return value

    @field_validator("idempotency_keys_retention_hours")
    @classmethod
    def _check_keys_outlive_repetitions(cls, value: int) -> int:
        if 0 < value < LEAST_KEY_HOURS:
            raise ValueError(
                f"{value} is too short, because clients repeat requests for hours: set at least "
                f"{LEAST_KEY_HOURS}, or 0 to keep keys for ever"
            )
        return value

    @field_validator("default_llm_base_url", "context_summary_model_base_url", "embedding_base_url", "tracing_endpoint")
    @classmethod
    def _check_address(cls, value: str) -> str:
        return check_base_url(value) if value else value

    @field_validator(
        "default_llm_api_key_env", "context_summary_model_api_key_env", "embedding_api_key_env", "tracing_headers_env"
    )
    @classmethod
    def _check_variable(cls, value: str) -> str:
        return check_variable(value) if value else value

    @model_validator(mode="after")
    def _check_key_has_an_address(self) -> Self:
        for name in ("default_llm", "context_summary_model", "embedding"):
            if getattr(self, f"{name}_api_key_env") and not getattr(self, f"{name}_base_url"):
                variable = name.upper()
                raise ValueError(f"{variable}_API_KEY_ENV needs {variable}_BASE_URL, the address that the key is for")
        return self

    @model_validator(mode="after")
    def _check_address_has_a_model(self) -> Self:
        if self.context_summary_model_base_url and not self.context_summary_model:
            raise ValueError("CONTEXT_SUMMARY_MODEL_BASE_URL needs CONTEXT_SUMMARY_MODEL, the model at that address")
        if not self.embedding_model and (self.embedding_base_url or self.embedding_dimensions):
            raise ValueError("EMBEDDING_BASE_URL and EMBEDDING_DIMENSIONS need EMBEDDING_MODEL")
        return self

    @model_validator(mode="after")
    def _check_direct_url_has_a_pooler(self) -> Self:
        if self.database_direct_url and not self.database_url:
            raise ValueError(
                "DATABASE_DIRECT_URL needs DATABASE_URL, the pooler's address; without a pooler, set only DATABASE_URL"
            )
        return self

    @model_validator(mode="after")
    def _check_every_body_can_be_held(self) -> Self:
        """Raise ValueError if the largest body exceeds the whole budget: it would never be admitted."""
        largest = max(self.max_body_bytes, self.max_import_bytes)
        if self.max_held_body_bytes < largest:
            raise ValueError(
                f"MAX_HELD_BODY_BYTES ({self.max_held_body_bytes}) must be at least {largest}, the larger of "
                "MAX_BODY_BYTES and MAX_IMPORT_BYTES"
            )
        return self

    @model_validator(mode="after")
    def _check_app_token_has_a_bot(self) -> Self:
        if self.slack_app_token and not self.slack_bot_token:
            raise ValueError("SLACK_APP_TOKEN needs SLACK_BOT_TOKEN; to run without Slack, unset both")
        return self

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        """Return the origins of a list separated by commas (`http://a, http://b`) or of a JSON list."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return _read_json_list(value)
        return tuple(origin.strip() for origin in value.split(",") if origin.strip())

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin if origin == ANY_ORIGIN else _check_origin(origin) for origin in value)


def _check_origin(written: str) -> str:
    """Return an origin as browsers send it: in lower case, without a default port. Raises ValueError if it is none."""
    origin = written.strip().rstrip("/").lower()
    if not ORIGIN.fullmatch(origin):
        raise ValueError(
            f"{written[:MOST_SHOWN]!r} is not an origin: write only scheme, host and port, such as "
            "https://app.example.com"
        )
    return origin.removesuffix(DEFAULT_PORTS.get(origin.partition("://")[0], ""))


def _read_json_list(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("must be a JSON list, or origins separated by commas") from None


def read_variable(name: str) -> str:
    """Return a variable that is no setting, such as a provider's key, from the environment or `.env`; '' if not set."""
    if value := os.environ.get(name):
        return value
    return read_env_file().get(name) or ""


def read_env_file() -> Mapping[str, str | None]:
    """Return the variables in `.env` that are not empty. The value is None for a line without `=`.

    Raises SettingInvalid if the file cannot be read.
    """
    try:
        return DotEnvSettingsSource(Settings, env_file=ENV_FILE, case_sensitive=True).env_vars
    except UnicodeDecodeError:
        raise SettingInvalid(f"`{ENV_FILE}` is not UTF-8: save the file as UTF-8.") from None
    except OSError as error:
        raise SettingInvalid(f"`{ENV_FILE}` cannot be read: {error.strerror or type(error).__name__}.") from None


def read_environment() -> Mapping[str, str]:
    """Return a copy of this process's environment."""
    return dict(os.environ)


def add_to_environment(variables: Mapping[str, str]) -> None:
    """Put variables into this process's environment. Those that it has already are kept, except empty ones."""
    for name, value in variables.items():
        os.environ[name] = os.environ.get(name) or value


class ClientSettings(BaseSettings):
    """Settings of a program that uses the client: the location of the database, from the environment only."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    database_url: str = ""
    database_direct_url: str = ""


def read_settings(data_dir: Path | None = None) -> Settings:
    """Return the settings; `data_dir` from the command line wins. Raises SettingInvalid with each wrong setting."""
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])).upper()}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": ")
            for item in error.errors()
        )
        raise SettingInvalid(f"Some settings are invalid: {wrong}.") from None
    except SettingsError as error:
        raise SettingInvalid(f"The settings cannot be read: {error}.") from None
    return settings if data_dir is None else settings.model_copy(update={"data_dir": data_dir})


def remove_tracing_variables() -> tuple[str, ...]:
    """Remove the environment variables that make libraries trace, and return their names.

    If one of them is set for another program, LangChain would send each turn with the users' texts to a third party, or
    refuse every turn. FastAPI would export its requests. Keys are not removed, because they are those of model
    providers.
    """
    names = (name for name in os.environ if name.startswith(TRACING_PREFIXES) and not name.endswith(KEY_SUFFIX))
    found = tuple(sorted(names))
    for name in found:
        del os.environ[name]
    return found
