"""Configuration of the HTTP server, and the check of who may be served without an API key.

`assembly/` creates the configuration once at start, from the settings, the address to serve and whether an API key
exists.
"""

import ipaddress
from dataclasses import dataclass

from throughline.domain.errors import SettingInvalid

ANY_ORIGIN = "*"


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Configuration of the HTTP server.

    `is_local_mode`: no API key existed at start and only a loopback address is bound. A request without a key then acts
    as the user `local`, after its Host and Origin were checked.

    `trusted_socket`: the server listens on a unix socket that only its owner can reach. A request without a key acts as
    `local`.
    """

    version: str
    max_body_bytes: int = 2_000_000
    max_import_bytes: int = 32_000_000
    max_held_body_bytes: int = 128_000_000
    max_websockets: int = 100
    cors_origins: tuple[str, ...] = ()
    is_local_mode: bool = False
    trusted_socket: bool = False
    no_worker_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    body_timeout_seconds: float = 30.0
    send_timeout_seconds: float = 60.0
    key_cache_seconds: float = 5.0

    @property
    def is_key_needed(self) -> bool:
        """Whether every request needs an API key."""
        return not (self.is_local_mode or self.trusted_socket)


def check_access(host: str, cors_origins: tuple[str, ...] = (), *, has_keys: bool) -> None:
    """Raise SettingInvalid if everybody could use the service without a key.

    That is so if no API key exists and `host` is no loopback address, or CORS allows pages of any origin.
    """
    if has_keys:
        return
    if not is_loopback(host):
        raise SettingInvalid(
            f"HOST {host} would serve other machines without a key. Create a key first (`throughline keys "
            "create`) or set BOOTSTRAP_API_KEY. Without a key, only a loopback address such as 127.0.0.1 is "
            "allowed."
        )
    if ANY_ORIGIN in cors_origins:
        raise SettingInvalid(
            "CORS_ORIGINS: * would serve every web page that is opened on this machine, without a key. Name the "
            "origins, or create a key first (`throughline keys create`)."
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`. `localhost` is the only name that is trusted."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
