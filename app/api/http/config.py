"""What the HTTP door is told at start; `assembly/` decides it once, from the settings and from whether a key exists."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """How to serve.

    `is_local_mode`: no key existed at start and only a loopback address is bound, so a request without a key acts as
    the user `local` after its Host and Origin were checked. `trusted_socket`: a unix socket only its owner can reach,
    every request acts as `local`. `shares_sessions`: there may be sessions with participants beside their owner.
    """

    version: str
    max_body_bytes: int = 2_000_000
    max_import_bytes: int = 32_000_000
    cors_origins: tuple[str, ...] = ()
    is_local_mode: bool = False
    trusted_socket: bool = False
    shares_sessions: bool = False
    no_worker_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    body_timeout_seconds: float = 30.0
    send_timeout_seconds: float = 60.0
    key_cache_seconds: float = 5.0
