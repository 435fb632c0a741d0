"""Validation of a model server's address and of the name of its key variable, in agent files and settings."""

import re
from urllib.parse import urlsplit

_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_WANTED = "must be an address such as http://127.0.0.1:8080/v1"


def check_base_url(address: str) -> str:
    """Return `address`. Raises ValueError unless it is an http(s) address with a host and without white space."""
    if _SPACE_OR_CONTROL.search(address):
        raise ValueError(f"{_WANTED}, without white space")
    try:
        parts = urlsplit(address)
        is_complete = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # brackets that do not close, or a port that is no number
        raise ValueError(_WANTED) from error
    if not is_complete:
        raise ValueError(_WANTED)
    return address


def check_variable(name: str) -> str:
    """Return `name`. Raises ValueError unless it can be the name of an environment variable.

    A key that was written here by mistake usually fails this check.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            "must be the name of the environment variable that holds the key, in capitals (such as GATEWAY_API_KEY), "
            "never the key itself"
        )
    return name
