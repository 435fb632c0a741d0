"""Settings of the database."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from throughline.settings.section import HOUR, SettingsSection


class DatabaseSettings(SettingsSection):
    """PostgreSQL: where it is, and how this process uses it."""

    database_url: str = Field(
        "",
        description="Address of PostgreSQL 15 or newer: postgresql://user:password@host/name. Empty: an embedded "
        "server is started.",
    )
    database_direct_url: str = Field(
        "",
        description="Address of PostgreSQL itself, if DATABASE_URL is that of a pooler in transaction mode "
        "(PgBouncer). Both name the same database. Notifications, leases and migrations use this address; everything "
        "else uses the pooler.",
    )
    data_dir: Path | None = Field(
        None,
        examples=["/var/lib/throughline"],
        description="Data folder of the embedded server; unset: in the user's data folder, for root "
        "/var/lib/throughline, which belongs to the checkout or environment that used it first.",
    )
    migrate_on_start: bool = Field(
        default=True,
        description="Run migrations when `serve`, `worker` or `slack` starts, under an advisory lock. With the "
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
