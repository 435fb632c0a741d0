"""Who may call: decided once at start, from the address to serve and whether a key exists."""

import ipaddress

from app.domain.errors import SettingInvalid


def check_access(host: str, *, has_keys: bool) -> None:
    """Without any key only a loopback address is served. Raises SettingInvalid for every other one."""
    if has_keys or is_loopback(host):
        return
    raise SettingInvalid(
        f"Binding {host} would serve everybody who can reach it. Create a key first (`throughline keys create`) or "
        "set BOOTSTRAP_API_KEY; without a key only a loopback address such as 127.0.0.1 is served."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; a name other than `localhost` is not trusted to be."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
