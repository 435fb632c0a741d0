"""Checks the address of a model server, wherever an operator writes one: in an agent file or in a setting."""

import re
from urllib.parse import urlsplit

_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")
_WANTED = "must be an address such as http://127.0.0.1:8080/v1"


def check_address(address: str) -> str:
    """Return `address`. Raises ValueError where it is no http(s) address with a host, or holds white space."""
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
