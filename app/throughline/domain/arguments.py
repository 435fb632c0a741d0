"""The arguments of a tool call: the JSON text that a model wrote, and the object it stands for."""

import functools
import json
import re
from dataclasses import dataclass
from typing import NoReturn

from throughline.domain.text import clean_text

RAW_ARGUMENTS = "_raw"
"""Key under which arguments that are no JSON object are sent again."""

MOST_NESTED = 100
"""Chosen: far more than any tool's arguments have, and far less than what the encoders of providers' clients can do."""

SHORT_CHARACTERS, KEPT_SHORT = 500, 4096
"""Arguments up to so many characters, most there are, are read once for so many of them: a view counts them anew."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SentArguments:
    """Arguments as they are sent again: `value` where a provider takes an object, `text` where it takes JSON text."""

    value: dict[str, object]
    text: str


def send_again(arguments: str) -> SentArguments:
    """Return what is sent for the arguments a model wrote: that very text where it is a JSON object.

    Text that is none travels inside an object: some providers take nothing else, and the model still sees what it
    wrote. What no provider takes is cleaned out of its strings.
    """
    value = _object_in(arguments)
    if value is None:
        value = {RAW_ARGUMENTS: arguments}
        return SentArguments(value, json.dumps(value, ensure_ascii=False))
    written = json.dumps(value, ensure_ascii=False)
    cleaned = clean_text(written)
    if cleaned == written:
        return SentArguments(value, arguments or written)
    return SentArguments(json.loads(cleaned), cleaned)


def is_json_object(arguments: str) -> bool:
    """Whether the arguments are a JSON object that every provider takes back; none at all are an empty one."""
    return _object_in(arguments) is not None


def compact_object(arguments: str) -> str:
    """Return the object that is sent for the arguments as JSON text without blanks between its parts."""
    return _compact_short(arguments) if len(arguments) <= SHORT_CHARACTERS else _compact(arguments)


def _compact(arguments: str) -> str:
    value = _object_in(arguments)
    sent = {RAW_ARGUMENTS: arguments} if value is None else value
    return clean_text(json.dumps(sent, ensure_ascii=False, separators=(",", ":")))


@functools.lru_cache(KEPT_SHORT)
def _compact_short(arguments: str) -> str:
    return _compact(arguments)


def _object_in(arguments: str) -> dict[str, object] | None:
    """NaN and Infinity are refused, and numbers that are read as such (1e999): no provider takes them back.

    So is what is nested deeper than MOST_NESTED: a parser's own limit would depend on how deep the caller stands, and
    with it what is sent.
    """
    if _nesting(arguments) > MOST_NESTED:
        return None
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _nesting(text: str) -> int:
    """Return how deep brackets are nested at most; those in strings, and closing ones without opening, are none."""
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return 0
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        bracket = found.group()
        if bracket in {"[", "{"}:
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in {"]", "}"}:
            depth = max(depth - 1, 0)
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
