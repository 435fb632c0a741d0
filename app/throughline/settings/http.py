"""Settings of the HTTP interface."""

import json
import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from throughline.domain.keys import TOKEN_PREFIX
from throughline.domain.service_status import check_process_count
from throughline.http.services import ANY_ORIGIN
from throughline.settings.models import SettingsSection

SHORTEST_KEY = 24
VISIBLE_ASCII = re.compile(r"[!-~]*")
"""Characters that every client can send in a header."""

ORIGIN = re.compile(r"\A[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?\Z")
"""An origin as browsers send it.

Origins are compared as text, so that one with a path, a wildcard or capital letters would match none.
"""

MOST_SHOWN = 80
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class HttpSettings(SettingsSection):
    """HTTP: addresses, origins, the first key, and limits of connections and bodies."""

    host: str = Field(
        "127.0.0.1",
        description="Address to listen on. Every address except a loopback address requires an API key.",
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    processes: Annotated[str, AfterValidator(check_process_count)] = Field(
        "1",
        description="Processes of `throughline serve`, which share its port and take turns: a number, or `auto`: "
        "one for each core, as far as three quarters of PostgreSQL's free connections allow. Settings that limit a "
        "process, such as WORKER_CONCURRENCY and DB_POOL_SIZE, apply to each of them. A supervisor starts them, and "
        "replaces those that die.",
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        examples=["8001"],
        description="Port on which `throughline worker` and `throughline slack` serve GET /health/live, /health/ready "
        "and /metrics, at HOST and without a key; unset: none. `serve` uses its own port.",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Origins that may call from a browser, separated by commas: "
        "https://chat.example.com,https://admin.example.com. If no API key exists, pages on other ports of this "
        "machine must be listed too before they may write: http://localhost:3000.",
    )
    bootstrap_api_key: str = Field(
        "",
        description=f"A key of the user `admin` with every scope, which exists from the first start; {SHORTEST_KEY} "
        "characters or more. A service that finds any key at its start requires one for requests below /v1.",
    )
    max_connections: int = Field(
        5_000,
        ge=1,
        le=1_000_000,
        description="Most open connections. Further ones get 503 with Retry-After, except for /health and /metrics. "
        "The limit is lowered if the process may open fewer files.",
    )
    max_body_bytes: int = Field(2_000_000, ge=1_000, le=1_000_000_000, description="Largest request body.")
    max_import_bytes: int = Field(
        32_000_000, ge=1_000, le=1_000_000_000, description="Largest body of an import; it is held in memory."
    )
    max_held_body_bytes: int = Field(
        128_000_000,
        ge=1_000,
        le=100_000_000_000,
        description="Bytes of bodies over 64 kB that are in memory at once. One user may use half. Further bodies "
        "wait, then get 503.",
    )
    max_websockets: int = Field(
        100,
        ge=1,
        le=100_000,
        description="Most open WebSockets. Each may hold a message of MAX_BODY_BYTES. One user may have half.",
    )

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
