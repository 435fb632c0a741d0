"""The part of a message that is searched for facts: head and tail, JSON as plain lines, without tags and base64."""

import json
import re
from collections.abc import Iterator
from itertools import islice

from throughline.domain.text import clean_text

SCANNED_HEAD, SCANNED_TAIL = 12_000, 4_000
"""Characters read from the start and from the end of a text; a longer text is a paste or a dump."""

BLOB_CHARACTERS = 60
"""A run of this many letters and digits in mixed case is base64 (wrapped at 64 or 76), not a name."""

PATH_SEGMENT = 12
"""Characters per slash: a run with fewer slashes than this is no path, as base64 has one in 64."""

MAX_LEAVES = 2000


def scanned(text: str) -> str:
    """Return head and tail of a huge text, cut between words; tags and base64 in it are replaced by line breaks."""
    if len(text) > SCANNED_HEAD + SCANNED_TAIL:
        head = _CUT_WORD_AT_END.sub("", text[:SCANNED_HEAD])
        text = f"{head}\n\n{_CUT_WORD_AT_START.sub('', text[-SCANNED_TAIL:])}"
    text = _TAG.sub(lambda tag: "\n" * len(tag[0]), text)
    return _RUN.sub(lambda run: "\n" * len(run[0]) if _is_blob(run[0]) else run[0], text)


def readable(text: str) -> str:
    """Return the leaves of JSON as lines, so that escapes do not hide their texts; any other text unchanged.

    A leaf's key stands on the line before it, a command after `$`. Escapes can hide NUL and lone surrogates, which
    cannot be stored; they are replaced. JSON longer than the part of a text that is read stays unchanged, because a
    part of it is no JSON.
    """
    if text.lstrip()[:1] not in {"{", "["} or len(text) > SCANNED_HEAD + SCANNED_TAIL:
        return text
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    return clean_text("\n".join(islice(_leaves(value), MAX_LEAVES)))


def _leaves(value: object) -> Iterator[str]:
    """Yield the leaves in order. A stack replaces recursion, because the writer of the JSON chooses its depth."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((str(name), inner) for name, inner in reversed(item.items()))
        elif isinstance(item, list):
            waiting.extend((key, inner) for inner in reversed(item))
        elif isinstance(item, str) and item:
            yield f"$ {item}" if key.lower() in _COMMAND_KEYS else f"{key}:\n{_as_path(item)}"


def _as_path(item: str) -> str:
    """Put quotes around a path with spaces, so that it is found as a whole."""
    return f'"{item}"' if " " in item and _PATH_WITH_SPACES.fullmatch(item) else item


def _is_blob(run: str) -> bool:
    """Return whether a run is base64 and not a long path or long hex: three kinds of characters, few slashes."""
    is_mixed = not run.islower() and not run.isupper() and any(letter.isdigit() for letter in run)
    return len(run) > 10 * BLOB_CHARACTERS or (is_mixed and run.count("/") * PATH_SEGMENT < len(run))


_COMMAND_KEYS = frozenset(("command", "cmd", "shell", "bash", "commandline"))
_CUT_WORD_AT_END = re.compile(r"(?<=\s)\S{1,200}\Z")
_CUT_WORD_AT_START = re.compile(r"\A\S{1,200}(?=\s)")
_PATH_WITH_SPACES = re.compile(r"(?:~?/|[A-Za-z]:[\\/])[^\n\"']{1,300}")
_TAG = re.compile(r"\[#\d{1,9}(?:-#\d{1,9}|[ ][^\]\n]{1,80})?\]")
_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{BLOB_CHARACTERS},}}")
