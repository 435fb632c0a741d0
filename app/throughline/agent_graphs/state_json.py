"""A graph's state as JSON: what LangGraph's checkpoint holds besides plain JSON gets a mark, and is made again from it.

A message of the session is a reference to it, so that no text of the session is stored twice.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langgraph.types import Interrupt, Send

from throughline.domain.basic_types import JsonValue
from throughline.domain.message import clean_text

MARK = "~"
"""The only key of an object that stands for something else than JSON; its value is a list: the kind, then the parts."""

MESSAGE, REFERENCE, SEND, INTERRUPTION = "message", "reference", "send", "interrupt"
TUPLE, SET, MAPPING = "tuple", "set", "mapping"


class NotJson(Exception):
    """Raised for a value that cannot be stored; the text says where it is and what it is."""


Stored: TypeAlias = Callable[[BaseMessage], bool]


def encode(value: object, is_stored: Stored, place: str = "") -> JsonValue:
    """Return the value as JSON. A message for which `is_stored` becomes a reference. Raises NotJson."""
    match value:
        case None | bool() | int() | float() if not isinstance(value, float) or math.isfinite(value):
            return value
        case str():
            return clean_text(str(value))
        case list():
            return [encode(item, is_stored, f"{place}.{number}") for number, item in enumerate(value)]
        case dict():
            return _mapping(value, is_stored, place)
        case _:
            return _with_mark(value, is_stored, place)


def _mapping(value: Mapping[object, object], is_stored: Stored, place: str) -> JsonValue:
    for key in value:
        if not isinstance(key, str):
            raise NotJson(f"{place} has the key {key!r}, which is no text")
    members = {clean_text(str(key)): encode(item, is_stored, f"{place}.{key}") for key, item in value.items()}
    return _marked(MAPPING, members) if MARK in members else members


def _with_mark(value: object, is_stored: Stored, place: str) -> JsonValue:
    match value:
        case BaseMessage() if is_stored(value):
            return _marked(REFERENCE, value.id)
        case BaseMessage():
            return _marked(MESSAGE, encode(message_to_dict(value), is_stored, place))
        case Send():
            return _marked(SEND, value.node, encode(value.arg, is_stored, f"{place}.arg"))
        case Interrupt():
            schema = value.response_schema if isinstance(value.response_schema, dict) else None
            return _marked(INTERRUPTION, encode(value.value, is_stored, place), value.id, encode(schema, is_stored))
        case tuple():
            return _marked(TUPLE, encode([*value], is_stored, place))
        case set() | frozenset():
            return _marked(SET, encode(sorted(value, key=str), is_stored, place))
        case _:
            raise NotJson(f"{place} has a {type(value).__module__}.{type(value).__qualname__}")


def _marked(kind: str, *parts: JsonValue) -> JsonValue:
    return {MARK: [kind, *parts]}


def decode(value: JsonValue, messages: Mapping[str, BaseMessage]) -> object:
    """Return what `encode` was given. A reference to a message that is not in `messages` is left out of its list."""
    match value:
        case list():
            return [item for item in (decode(one, messages) for one in value) if item is not MISSING]
        case {"~": [str(kind), *parts], **others} if not others:
            return _unmarked(kind, parts, messages)
        case dict():
            found = {key: decode(item, messages) for key, item in value.items()}
            return {key: item for key, item in found.items() if item is not MISSING}
        case _:
            return value


MISSING = object()
"""Stands for a message that is no longer loaded: the summary covers it."""


def _unmarked(kind: str, parts: "list[JsonValue]", messages: Mapping[str, BaseMessage]) -> object:
    match kind, parts:
        case "reference", [str(message_id)]:
            return messages.get(message_id, MISSING)
        case "message", [dict(data)]:
            return messages_from_dict([data])[0]
        case "send", [str(node), argument]:
            return Send(node, decode(argument, messages))
        case "interrupt", [asked, str(interrupt_id), schema]:
            return Interrupt(
                decode(asked, messages), interrupt_id, response_schema=schema if isinstance(schema, dict) else None
            )
        case _:
            return _collection(kind, parts, messages)


def _collection(kind: str, parts: "list[JsonValue]", messages: Mapping[str, BaseMessage]) -> object:
    match kind, parts:
        case "tuple" | "set", [items]:
            return (tuple if kind == TUPLE else set)(_list(decode(items, messages)))
        case "mapping", [dict(members)]:
            return {key: decode(item, messages) for key, item in members.items()}
        case _:
            raise NotJson(f"a stored state has the unknown mark {kind!r}")


def _list(value: object) -> "list[object]":
    assert isinstance(value, list)
    return value
