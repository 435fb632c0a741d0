"""All settings as one value, read from the environment or `.env`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from throughline.domain.errors import SettingInvalid
from throughline.domain.run import Caps
from throughline.ports.front_end import FrontEndSection
from throughline.settings.http import HttpSettings
from throughline.settings.models import (
    HOUR,
    Address,
    AgentSettings,
    EmbeddingSettings,
    ModelSettings,
    SettingsSection,
    VariableName,
)


class TurnSettings(SettingsSection):
    """Turns: how many run and wait, and what a process uses for them."""

    worker_concurrency: int = Field(
        500,
        ge=1,
        le=5_000,
        description="Most open turns of this process. A turn mostly waits for its model or a tool, which costs only "
        "memory: about 0.1 MB for a short conversation, and up to twice the text of the model's window for a long one. "
        "A process uses one core.",
    )
    loaded_rows_bytes: int = Field(
        64_000_000,
        ge=0,
        le=100_000_000_000,
        description="Bytes of loaded session rows that this process keeps in memory, so that the next turn loads only "
        "new rows. The rows of the session without a turn for the longest time are dropped first; 0 keeps none.",
    )
    compute_threads: int = Field(
        2,
        ge=1,
        le=64,
        description="Threads of this process that count, cut and index long texts; further long texts wait. Short "
        "texts need no thread.",
    )
    lease_seconds: float = Field(
        10.0,
        ge=2,
        le=HOUR,
        description="How long a process without a heartbeat keeps its runs and Slack deliveries. Then another process "
        "takes them over.",
    )
    job_concurrency: int = Field(
        32,
        ge=1,
        le=500,
        description="Concurrent side jobs of this process. Most are summaries prepared in the background, which wait "
        "for their model. One user may use a quarter of the slots. Further rounds of long histories may use half of "
        "them.",
    )
    no_worker_timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=HOUR,
        description="How long a request waits for a running worker before it gets 503. A request behind other turns "
        "waits longer.",
    )
    max_queued_per_session: int = Field(
        10, ge=1, le=10_000, description="Messages of one session that may wait while a turn runs."
    )
    max_queued_per_owner: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="Messages that may wait in all sessions of one owner together: a user, or a Slack channel.",
    )
    max_running_per_owner: int = Field(
        250,
        ge=1,
        le=1_000_000,
        description="Turns of one owner that may run at once, in all processes together; further ones wait. The "
        "default is half of the default of WORKER_CONCURRENCY. Lower both together: one owner can use all turns of a "
        "process whose WORKER_CONCURRENCY is not above this.",
    )
    shutdown_grace_seconds: float = Field(
        20.0,
        ge=0,
        le=HOUR,
        description="How long running turns may take to end at shutdown. Then another worker takes them over.",
    )

    @property
    def caps(self) -> Caps:
        """Return the limits on waiting messages per session and owner, and on running turns per owner."""
        return Caps(self.max_queued_per_session, self.max_queued_per_owner, self.max_running_per_owner)


class HistorySearchSettings(SettingsSection):
    """Full-text search in histories."""

    search_language: str = Field(
        "english",
        description="The language whose words are taken to their stem (Snowball's name for it: english, german, "
        "french …). Text in others is found too, word by word. After a change, each history is indexed again when it "
        "is first searched.",
    )


LEAST_KEY_HOURS = 24
"""Shortest retention of idempotency keys: clients, and Slack, repeat requests for hours."""


class RetentionSettings(SettingsSection):
    """Retention: when old rows are deleted."""

    run_events_retention_hours: int = Field(
        24,
        ge=1,
        le=8760,
        description="How long the events of an ended run are kept at least. They are deleted with those of all runs "
        "created on the same day (UTC), up to a day later. Afterwards, events are reconstructed from the stored "
        "messages.",
    )
    model_calls_retention_months: int | None = Field(
        None,
        ge=1,
        le=120,
        examples=["24"],
        description="Records of what model calls cost are deleted, a month at a time, this many months after their "
        "month. Unset: they are kept.",
    )
    idempotency_keys_retention_hours: int = Field(
        720,
        ge=0,
        le=87_600,
        description="How long an idempotency key is kept, from the end of its turn or the creation of its session. "
        f"Afterwards, the same key is a new request. At least {LEAST_KEY_HOURS}; 0: for ever, which keeps one index "
        "entry per request.",
    )
    archived_sessions_retention_days: int | None = Field(
        None,
        ge=1,
        le=3650,
        examples=["365"],
        description="Archived sessions are erased so many days after their last change, with everything of them. "
        "Unset: they are kept.",
    )
    keep_costs_of_erased_users: bool = Field(
        default=True,
        description="Records of what model calls cost stay when their user is erased, without the user. `false`: they "
        "are deleted.",
    )
    unused_summaries_retention_days: int = Field(
        30, ge=1, le=3650, description="How long summary segments are kept that are part of no summary."
    )
    job_log_retention_hours: int = Field(
        72,
        ge=1,
        le=8760,
        description="How long records of failed side jobs are kept, and waiting jobs that no process runs.",
    )

    @field_validator("idempotency_keys_retention_hours")
    @classmethod
    def _check_keys_outlive_repetitions(cls, value: int) -> int:
        if 0 < value < LEAST_KEY_HOURS:
            raise ValueError(
                f"{value} is too short, because clients repeat requests for hours: set at least "
                f"{LEAST_KEY_HOURS}, or 0 to keep keys for ever"
            )
        return value


class TracingSettings(SettingsSection):
    """Traces of turns."""

    tracing: str = Field(
        "off",
        pattern="^(off|otlp)$",
        description="`otlp`: send traces of turns by OpenTelemetry's protocol over HTTP. Needs the extra "
        "throughline[otel].",
    )
    tracing_endpoint: Address = Field(
        "http://127.0.0.1:4318",
        description="The server that takes the traces; /v1/traces is added to an address without a path.",
    )
    tracing_headers_env: VariableName = Field(
        "",
        description="Name of the variable with HTTP headers for TRACING_ENDPOINT, such as "
        "`authorization=Basic …,x-team=blue`.",
    )
    tracing_sample_ratio: float = Field(1.0, gt=0, le=1, description="Share of turns that are traced.")
    tracing_texts: bool = Field(
        default=False,
        description="Put messages, prompts, answers, and arguments and results of tools into traces.",
    )


class LogSettings(SettingsSection):
    """Which events are logged, and in which form."""

    log_level: str = Field(
        "INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="The least level that is logged."
    )
    log_format: str = Field(
        "auto",
        pattern="^(auto|json|console)$",
        description="The form of the log; `auto`: `console` on a terminal, else `json`.",
    )


class DatabaseSettings(SettingsSection):
    """PostgreSQL: where it is, and how this process uses it."""

    database_url: str = Field(
        "",
        description="Address of PostgreSQL 15 or newer: postgresql://user:password@host/name. With "
        "host1:5432,host2:5432 the server that takes writes is used. Empty: an embedded server is started.",
    )
    database_direct_url: str = Field(
        "",
        description="Address of PostgreSQL itself, if DATABASE_URL is that of a pooler in transaction mode "
        "(PgBouncer). Both name the same database. Notifications, leases and migrations use this address; everything "
        "else uses the pooler.",
    )
    database_listen: bool = Field(
        default=True,
        description="Whether processes notify each other by LISTEN and NOTIFY. `false`: they poll alone, for a "
        "pooler without a DATABASE_DIRECT_URL, and for a database that cannot listen.",
    )
    database_read_url: str = Field(
        "",
        description="Address of a replica for reads that may be late: exports, usage, and searches of all sessions or "
        "of long ones. With several hosts a standby is preferred. Empty: DATABASE_URL answers them, as it does while "
        "the replica cannot.",
    )
    database_read_max_lag_seconds: float = Field(
        30.0,
        ge=10,
        le=86_400,
        description="Seconds that the replica's data may be late, before DATABASE_URL answers instead. An idle service "
        "commits every five seconds, so a replica without any lag seems up to five seconds late.",
    )
    data_dir: Path | None = Field(
        None,
        examples=["/var/lib/throughline"],
        description="Data folder of the embedded server; unset: in the user's data folder, for root "
        "/var/lib/throughline, which belongs to the checkout or environment that used it first.",
    )
    migrate_on_start: bool = Field(
        default=True,
        description="Run migrations when `serve`, `worker` or `slack` starts, one process at a time. With the "
        "embedded server, every command runs them. `throughline db upgrade` runs them by hand.",
    )
    db_pool_size: int = Field(
        10,
        ge=1,
        le=200,
        description="Database connections of this process for requests and turns. It opens two more: one for "
        "notifications, one for its heartbeat and readiness checks. A process with a worker opens a third one, which "
        "renews leases.",
    )
    db_pool_timeout_seconds: float = Field(5.0, gt=0, le=HOUR, description="How long to wait for a free connection.")

    @model_validator(mode="after")
    def _check_direct_url_has_a_pooler(self) -> Self:
        if self.database_direct_url and not self.database_url:
            raise ValueError(
                "DATABASE_DIRECT_URL needs DATABASE_URL, the pooler's address; without a pooler, set only DATABASE_URL"
            )
        return self

    @model_validator(mode="after")
    def _check_read_url_has_a_primary(self) -> Self:
        if self.database_read_url and not self.database_url:
            raise ValueError(
                "DATABASE_READ_URL needs DATABASE_URL, the address of the primary that the replica follows"
            )
        return self


ENV_FILE = ".env"
"""File of settings in the folder where a program is started."""

SHOWN_CHARACTERS = 40
VALUE_TEXTS: Mapping[str, str] = {
    "bool_parsing": "is neither true nor false",
    "finite_number": "is no finite number",
    "float_parsing": "is no number",
    "greater_than": "is too small: it must be above {gt}",
    "greater_than_equal": "is too small: it must be {ge} or more",
    "int_parsing": "is no whole number",
    "int_parsing_size": "is too large",
    "less_than": "is too large: it must be below {lt}",
    "less_than_equal": "is too large: it must be {le} or less",
    "string_pattern_mismatch": "does not match {pattern}",
}
"""Texts behind the value for pydantic's error types. Numbers, switches and names are never secrets."""

SECTIONS: Mapping[str, type[SettingsSection]] = {
    "PostgreSQL": DatabaseSettings,
    "HTTP": HttpSettings,
    "Models": ModelSettings,
    "Search by meaning": EmbeddingSettings,
    "Agents and tools": AgentSettings,
    "Turns": TurnSettings,
    "History search": HistorySearchSettings,
    "Retention": RetentionSettings,
    "Traces": TracingSettings,
    "Logs": LogSettings,
}
"""The sections by their subject, in the order of the reference; those of front ends follow."""


class Settings(
    LogSettings,
    TracingSettings,
    RetentionSettings,
    HistorySearchSettings,
    TurnSettings,
    AgentSettings,
    EmbeddingSettings,
    ModelSettings,
    HttpSettings,
    DatabaseSettings,
    BaseSettings,
):
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

    @model_validator(mode="after")
    def _check_key_has_an_address(self) -> Self:
        for name in ("default_llm", "context_summary_model", "embedding"):
            if getattr(self, f"{name}_api_key_env") and not getattr(self, f"{name}_base_url"):
                variable = name.upper()
                raise ValueError(f"{variable}_API_KEY_ENV needs {variable}_BASE_URL, the address that the key is for")
        return self


class ClientSettings(BaseSettings):
    """Settings of a program that uses the client: the location of the database, from the environment only."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    database_url: str = ""
    database_direct_url: str = ""
    database_listen: bool = True


def with_sections(sections: Iterable[type[FrontEndSection]]) -> type[Settings]:
    """Return the settings of the service together with those of front ends."""
    return type("Settings", (*sections, Settings), {})


def read_settings(data_dir: Path | None = None, kind: type[Settings] = Settings) -> Settings:
    """Return the settings; `data_dir` from the command line wins. Raises SettingInvalid with each wrong setting."""
    try:
        settings = kind()
    except ValidationError as error:
        wrong = "; ".join(_problem(found, kind) for found in error.errors())
        raise SettingInvalid(f"Some settings are invalid: {wrong}.") from None
    except SettingsError as error:
        raise SettingInvalid(f"The settings cannot be read: {error}.") from None
    return settings if data_dir is None else settings.model_copy(update={"data_dir": data_dir})


def _problem(found: ErrorDetails, kind: type[Settings]) -> str:
    """Return the setting's name and what is wrong with it: with its value and default if it can be no secret."""
    name = ".".join(map(str, found["loc"]))
    text = VALUE_TEXTS.get(found["type"])
    if text is None:
        return f"{name.upper()}: {found['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    value = repr(str(found["input"])[:SHOWN_CHARACTERS])
    field = kind.model_fields.get(name)
    default = "" if field is None or field.default in {None, ""} else f"; the default is {field.default}"
    return f"{name.upper()}: {value} {text.format(**found.get('ctx', {}))}{default}"
