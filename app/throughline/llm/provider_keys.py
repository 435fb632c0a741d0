"""Which key goes to which address: a provider's key from the environment never leaves for somebody else's server.

Used for chat models and for embedding models, whose packages would send it to any `base_url`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from throughline.domain.errors import SettingInvalid
from throughline.llm.providers import PLACEHOLDER_KEY, Provider

HTTPS_PORT = 443
HOST = re.compile(r"[a-z0-9._:-]+")
"""A name or an address. What else a URL may hold in this place, clients read in different ways."""

ReadVariable = Callable[[str], str]
"""Returns an environment variable's value, '' where it is not set."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where a model is asked, and with which key; None is what the provider's package finds by itself."""

    base_url: str | None = None
    api_key: str | None = None

    def options(self) -> dict[str, Any]:  # Any: keyword arguments of many classes
        """Return both as the keyword arguments that LangChain's models take."""
        given = {"base_url": self.base_url, "api_key": self.api_key}
        return {name: value for name, value in given.items() if value is not None}


def no_variable(_name: str) -> str:
    """Read nothing: for whoever names no key."""
    return ""


def choose_key(
    provider: Provider, base_url: str | None, api_key_env: str | None, read_variable: ReadVariable
) -> str | None:
    """Return the key to send to `base_url`; None leaves it to the provider's package, which reads the environment.

    That is so at the provider's own address and at the one that the environment names for it. Another server gets the
    key that `api_key_env` names, or none. Raises SettingInvalid where the named variable is not set.
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


def _is_own(provider: Provider, base_url: str, read_variable: ReadVariable) -> bool:
    origin = _origin(base_url)
    scheme, host, port = origin
    if not host:
        return False
    is_providers = host == provider.own_host or host.endswith(f".{provider.own_host}")
    if provider.own_host and is_providers and scheme == "https" and port in {None, HTTPS_PORT}:
        return True
    return any(address and _origin(address) == origin for address in map(read_variable, provider.address_variables))


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    try:
        host = (parts.hostname or "").removesuffix(".")
        return (parts.scheme, host, parts.port) if HOST.fullmatch(host) else ("", "", None)
    except ValueError:  # a port that is no number
        return "", "", None


def _shown(base_url: str | None) -> str:
    """The address without credentials that may stand in it."""
    scheme, host, port = _origin(base_url or "")
    return f"{scheme}://{host}" + (f":{port}" if port else "")
