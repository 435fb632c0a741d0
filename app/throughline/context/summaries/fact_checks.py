"""What a match must be besides to count as a fact: refuses what only looks like a path, a code, a value."""

import re
from collections.abc import Sequence
from ipaddress import ip_network

from throughline.context.summaries.fact_words import EXTENSIONS, PROGRAMS

SHORTEST_FOLDERS = 3
"""So many parts make a path of a text that shows it in no other way: `app/context/plan`, not `and/or`."""

SHORTEST_VALUE = 3
"""A value behind a field like `order_id` has at least so many characters."""

IBAN_DIGITS, PHONE_DIGITS = 10, range(7, 16)


def is_path(text: str) -> bool:
    """Tell `app/main.py`, `./run`, `/etc/hosts`, `a/b/c` from `and/or`, `km/h`, `/help`, `Node.js`."""
    if not any(letter.isalpha() for letter in text) or _NO_FILES.fullmatch(text):
        return False
    if text.startswith(("~/", "./", "../")) or _FILE_NAME.search(text):
        return True
    parts = [part for part in text.strip("~/").split("/") if part]
    return _is_from_root(parts) if text.startswith("/") else _is_of_folders(parts)


def _is_from_root(parts: Sequence[str]) -> bool:
    return len(parts) > 1 or (bool(parts) and _ROOTS.fullmatch(parts[0]) is not None)


def _is_of_folders(parts: Sequence[str]) -> bool:
    return len(parts) >= SHORTEST_FOLDERS and all(_FOLDER.fullmatch(part) for part in parts)


def is_code(text: str) -> bool:
    """Tell `3f2a9bc` from a word and from a number: it has letters and digits."""
    return any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)


def is_ticket(text: str) -> bool:
    """Tell `ABC-123` from `UTF-8`."""
    return _NO_TICKETS.fullmatch(text.partition("-")[0]) is None


def is_value(text: str) -> bool:
    """Refuse what stands behind a word like `id` and identifies nothing."""
    return len(text) >= SHORTEST_VALUE and text.lower() not in _NO_VALUES


def is_ipv6(text: str) -> bool:
    """Tell `2001:db8::1` from `10:30` and `::add`."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return any(letter.isdigit() for letter in text)


def is_iban(text: str) -> bool:
    """Refuse what has too few digits for an account."""
    return sum(letter.isdigit() for letter in text) >= IBAN_DIGITS


def is_phone(text: str) -> bool:
    """Refuse what has too few or too many digits for a telephone number (15 by E.164)."""
    return sum(letter.isdigit() for letter in text) in PHONE_DIGITS


def is_symbol(text: str) -> bool:
    """Refuse abbreviations (`e.g`) and sentences without a space between (`done.Next`)."""
    first, dot, rest = text.partition(".")
    return not dot or (len(first) > 1 and len(rest) > 1 and not (rest[0].isupper() and first.islower()))


def is_command(text: str) -> bool:
    """Whether the first word is a program we know."""
    first = (text.split(maxsplit=1) or [""])[0]
    return _PROGRAM.fullmatch(first.rpartition("/")[2]) is not None


def is_named(text: str) -> bool:
    """Refuse signs alone."""
    return any(letter.isalnum() for letter in text)


_ROOTS = re.compile(r"bin|boot|dev|etc|home|lib|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var|data|app")
_FOLDER = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_NO_VALUES = frozenset(("null", "none", "true", "false", "undefined", "the", "and"))
_NO_FILES = re.compile(r"(?:node|vue|next|react|three|d3|express|nuxt|chart|ember)\.js", re.IGNORECASE)
_NO_TICKETS = re.compile(r"UTF|SHA|MD|AES|RSA|GPT|ISO|COVID|TLS|HTTP|BASE|ISBN|TOP")
_FILE_NAME = re.compile(
    rf"(?:\.(?:{EXTENSIONS})|(?:^|/)(?:Makefile|Dockerfile|README|LICENSE|\.[a-z]{{3,20}}))(?::\d+)*$", re.IGNORECASE
)
_PROGRAM = re.compile(PROGRAMS)
