"""What the HTTP door is told at start, and whom it may serve: `assembly/` decides both once.

The settings say how; the address to serve and whether a key exists say who may call.
"""

import ipaddress
from dataclasses import dataclass

from throughline.domain.errors import SettingInvalid

ANY_ORIGIN = "*"


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """How to serve.

    `is_local_mode`: no key existed at start and only a loopback address is bound, so a request without a key acts as
    the user `local` after its Host and Origin were checked. `trusted_socket`: a unix socket only its owner can reach,
    every request acts as `local`.
    """

    version: str
    max_body_bytes: int = 2_000_000
    max_import_bytes: int = 32_000_000
    max_held_body_bytes: int = 128_000_000
    cors_origins: tuple[str, ...] = ()
    is_local_mode: bool = False
    trusted_socket: bool = False
    no_worker_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    body_timeout_seconds: float = 30.0
    send_timeout_seconds: float = 60.0
    key_cache_seconds: float = 5.0


def check_access(host: str, cors_origins: tuple[str, ...] = (), *, has_keys: bool) -> None:
    """Refuse to serve everybody without a key: other machines, or pages of any origin. Raises SettingInvalid."""
    if has_keys:
        return
    if not is_loopback(host):
        raise SettingInvalid(
            f"HOST {host} would serve everybody who can reach it. Create a key first (`throughline keys create`) or "
            "set BOOTSTRAP_API_KEY; without a key only a loopback address such as 127.0.0.1 is served."
        )
    if ANY_ORIGIN in cors_origins:
        raise SettingInvalid(
            "CORS_ORIGINS: * would serve every page that is opened on this machine. Name the origins, or create a key "
            "first (`throughline keys create`)."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; a name other than `localhost` is not trusted to be."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
