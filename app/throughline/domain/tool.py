"""The context that a tool receives with a call, and the result that it returns."""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from throughline.domain.errors import InvalidInput
from throughline.domain.ids import RunId, SessionId, UserId
from throughline.domain.json_types import JsonValue
from throughline.domain.text import clean_text

RAW_ARGUMENTS = "_raw"
"""Key of the object that wraps arguments which are not a JSON object, when they are sent to a provider again."""

MOST_NESTED = 100
"""Most nested arrays and objects in a tool call's arguments: far more than tools need.

The JSON encoders of providers' clients can handle far more.
"""

SHORT_CHARACTERS, KEPT_SHORT = 500, 4096
"""Longest arguments whose compact JSON is cached, in characters, and the most entries of that cache.

Most arguments are that short, and their tokens are counted again for every prompt of a session.
"""

_UNSEEN = re.compile(r"[^ -~\n]+")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SentArguments:
    """The arguments of a tool call as they are sent to a provider again.

    `value` is for providers that take an object, `text` for those that take JSON text.
    """

    value: dict[str, object]
    text: str


def send_again(arguments: str) -> SentArguments:
    """Return what to send to a provider for the arguments a model wrote.

    A JSON object is sent as the very text that the model wrote, empty text as `{}`. Lone surrogates in its strings are
    replaced, because no provider accepts them. Other text is wrapped in an object, under RAW_ARGUMENTS: some providers
    accept nothing else, and the model still sees what it wrote.
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
    """Whether the arguments are a JSON object that every provider accepts; empty text counts as an empty object."""
    return _object_in(arguments) is not None


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Return the JSON object that a person wrote as arguments. Raises InvalidInput for anything else."""
    if not (text and is_json_object(text)):
        raise InvalidInput('The arguments must be one JSON object, such as {"file": "a.txt"}.', field="arguments")
    value: dict[str, JsonValue] = json.loads(text)
    return value


def compact_object(arguments: str) -> str:
    """Return the object that `send_again` sends for the arguments, as JSON text without whitespace outside strings."""
    return _compact_short(arguments) if len(arguments) <= SHORT_CHARACTERS else _compact(arguments)


def readable_arguments(arguments: str) -> str:
    """Return the arguments as indented JSON, for a person who decides on the call; other text stays as it is.

    Characters that cannot be seen, or that change the direction of reading, are written as escapes.
    """
    value = _object_in(arguments)
    shown = arguments if value is None else json.dumps(value, ensure_ascii=False, indent=2)
    return _UNSEEN.sub(lambda found: _escaped(found.group()), shown)


def _escaped(unseen: str) -> str:
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in unseen)


def _compact(arguments: str) -> str:
    value = _object_in(arguments)
    sent = {RAW_ARGUMENTS: arguments} if value is None else value
    return clean_text(json.dumps(sent, ensure_ascii=False, separators=(",", ":")))


@functools.lru_cache(KEPT_SHORT)
def _compact_short(arguments: str) -> str:
    return _compact(arguments)


def _object_in(arguments: str) -> dict[str, object] | None:
    """Return the JSON object that the text encodes, None if it is not one that every provider accepts.

    Empty text counts as an empty object.
    NaN, Infinity and numbers that overflow to infinity (1e999) are refused, since no provider takes them back. Nesting
    deeper than MOST_NESTED is refused: the parser's own limit depends on the caller's stack depth.
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
    """Return the greatest nesting depth of brackets outside strings; 0 if the text has too few brackets to matter.

    Closing brackets without an opening one are ignored.
    """
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


ASK_USER = "ask_user"
"""Name of the built-in tool whose calls wait for a person's answer."""


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """The space that a tool result may take in the prompt: `tokens`, as the agent's own counter `count` counts them."""

    tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Information about a tool call that the tool may use.

    `idempotency_key` is `run:tool_call_id`: unique per call, and the same if the call is repeated after a crash. With
    `may_recall_all` recall tools may read all sessions of the owner, else only this one. A result larger than `room` is
    shortened in the prompt; None if the limit is unknown.
    """

    session_id: SessionId
    owner_id: UserId
    run_id: RunId
    idempotency_key: str
    may_recall_all: bool = False
    room: ResultRoom | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's result for the model; an error is a result too."""

    text: str
    is_error: bool = False
