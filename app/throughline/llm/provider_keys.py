"""Choice of the API key for an address: a provider's key from the environment is never sent to another server.

Chat models and embedding models use it, because their packages would send the key to any `base_url`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from throughline.domain.errors import SettingInvalid
from throughline.llm.providers import PLACEHOLDER_KEY, PROVIDERS, Provider

HTTPS_PORT = 443
HOST = re.compile(r"[a-z0-9._:-]+")
"""A host name or an address. HTTP clients read anything else in a URL's host in different ways."""

ReadVariable = Callable[[str], str]
"""Function that returns an environment variable's value, '' if it is not set."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address and key for calls of a model; None leaves either of them to the provider's package."""

    base_url: str | None = None
    api_key: str | None = None

    def options(self) -> dict[str, Any]:  # Any: keyword arguments of many classes
        """Return `base_url` and `api_key`, those that are set, as keyword arguments of LangChain's model classes."""
        given = {"base_url": self.base_url, "api_key": self.api_key}
        return {name: value for name, value in given.items() if value is not None}


def no_variable(_name: str) -> str:
    """Return '' for every variable: the default for callers without named keys."""
    return ""


def choose_key(
    provider: Provider, base_url: str | None, api_key_env: str | None, read_variable: ReadVariable
) -> str | None:
    """Return the key to send to `base_url`; None leaves it to the provider's package, which reads the environment.

    A named `api_key_env` always decides; raises SettingInvalid if that variable is not set. Otherwise None is returned
    for the provider's own address, for the one that the environment sets for it, and for providers without a key
    variable. Any other server gets a placeholder.
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


def is_of_a_provider(base_url: str) -> bool:
    """Return whether the address is the own server of one of the known providers, whatever its scheme and port."""
    _, host, _ = _origin(base_url)
    return any(_is_providers(provider, host) for provider in PROVIDERS.values())


def _is_providers(provider: Provider, host: str) -> bool:
    return bool(provider.own_host) and (host == provider.own_host or host.endswith(f".{provider.own_host}"))


def _is_own(provider: Provider, base_url: str, read_variable: ReadVariable) -> bool:
    origin = _origin(base_url)
    scheme, host, port = origin
    if not host:
        return False
    if _is_providers(provider, host) and scheme == "https" and port in {None, HTTPS_PORT}:
        return True
    return any(address and _origin(address) == origin for address in map(read_variable, provider.address_variables))


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    try:
        host = (parts.hostname or "").removesuffix(".")
        return (parts.scheme, host, parts.port) if HOST.fullmatch(host) else ("", "", None)
    except ValueError:  # a port that is no number
        return "", "", None


def display_address(base_url: str) -> str:
    """Return the address with its path, without credentials and query, for logs and the command line."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/") if parts.netloc else ""


def _shown(base_url: str | None) -> str:
    """Return the address without any credentials in it."""
    scheme, host, port = _origin(base_url or "")
    return f"{scheme}://{host}" + (f":{port}" if port else "")
