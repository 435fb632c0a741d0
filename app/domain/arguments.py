"""The arguments of a tool call: the JSON text that a model wrote, and the object it stands for."""

import json
from dataclasses import dataclass
from typing import NoReturn

from app.domain.text import clean_text

RAW_ARGUMENTS = "_raw"
"""Key under which arguments that are no JSON object are sent again."""


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
    value = _object_in(arguments)
    sent = {RAW_ARGUMENTS: arguments} if value is None else value
    return clean_text(json.dumps(sent, ensure_ascii=False, separators=(",", ":")))


def _object_in(arguments: str) -> dict[str, object] | None:
    """NaN and Infinity are refused, and numbers that are read as such (1e999): no provider takes them back."""
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
