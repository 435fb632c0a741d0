"""Settings of operation: retention, traces and logs."""

from pydantic import Field, field_validator

from throughline.settings.section import SettingsSection, check_address, check_variable_name

LEAST_KEY_HOURS = 24
"""Shortest retention of idempotency keys: clients, and Slack, repeat requests for hours."""


class RetentionSettings(SettingsSection):
    """Retention: when old rows are deleted."""

    run_events_retention_hours: int = Field(
        24,
        ge=1,
        le=8760,
        description="How long the events of an ended run are kept. Afterwards, events are reconstructed from the "
        "stored messages.",
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
    tracing_endpoint: str = Field(
        "http://127.0.0.1:4318",
        description="The server that takes the traces; /v1/traces is added to an address without a path.",
    )
    tracing_headers_env: str = Field(
        "",
        description="Name of the variable with HTTP headers for TRACING_ENDPOINT, such as "
        "`authorization=Basic …,x-team=blue`.",
    )
    tracing_sample_ratio: float = Field(1.0, gt=0, le=1, description="Share of turns that are traced.")
    tracing_texts: bool = Field(
        default=False,
        description="Put messages, prompts, answers, and arguments and results of tools into traces.",
    )

    @field_validator("tracing_endpoint")
    @classmethod
    def _check_tracing_address(cls, value: str) -> str:
        return check_address(value)

    @field_validator("tracing_headers_env")
    @classmethod
    def _check_tracing_variable(cls, value: str) -> str:
        return check_variable_name(value)


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
