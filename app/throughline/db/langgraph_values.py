"""Values as LangGraph's serializer writes them, decoded to plain data.

A stored object names its class. No class is looked up or imported here, whatever a row names: the object becomes a
`Named`, and only the names of LangChain's messages are known. Pickled and encrypted values are not read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import ormsgpack

from throughline.domain.basic_types import JsonObject, JsonValue

MAX_DEPTH = 100
CONSTRUCTORS, SNAPSHOT = range(6), 7
"""Codes of LangGraph's extension types: objects as (module, class, content, …), and a DeltaChannel's stored value."""

MODULES = ("langchain_core.messages", "langchain.schema.messages")
KINDS = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
"""LangChain's classes of messages, and their `type`; each has a class `…Chunk`, too."""

ROLES = {"user": "human", "assistant": "ai", "developer": "system"}
"""Roles of OpenAI's messages, which LangGraph takes for LangChain's kinds."""


class Undecodable(Exception):
    """A stored value cannot be decoded; the text says why."""


@dataclass(frozen=True, slots=True)
class Named:
    """An object of a class, which was not imported. `value` is what the object was written with."""

    module: str
    name: str
    value: object


def decode(kind: str, data: bytes) -> object:
    """Return the value of a row. `kind` is the row's type. Raises Undecodable."""
    try:
        match kind:
            case "msgpack":
                return _Unpacking().unpack(data)
            case "json":
                return json.loads(data, object_hook=_read_constructor)
            case "null":
                return None
            case _:
                raise Undecodable(f"`{kind}` is not read: it is encrypted, pickled or of a newer version.")
    except (ValueError, RecursionError):
        raise Undecodable(f"its value is no valid {kind}.") from None


class _Unpacking:
    """Unpacking of one value, with the depth of the objects in which it is."""

    def __init__(self) -> None:
        self._depth = 0

    def unpack(self, data: bytes) -> object:
        value: object = ormsgpack.unpackb(data, ext_hook=self._read, option=ormsgpack.OPT_NON_STR_KEYS)
        return value

    def _read(self, code: int, data: bytes) -> object:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError
        value = self.unpack(data)
        self._depth -= 1
        if code == SNAPSHOT:
            return value
        match value:
            case [str(module), str(name), content, *_] if code in CONSTRUCTORS:
                return Named(module, name, content)
            case _:
                return Named("", f"extension {code}", None)


def _read_constructor(found: dict[str, object]) -> object:
    """Return an object of LangChain's older JSON form as a Named, other objects unchanged."""
    match found:
        case {"lc": 1 | 2, "type": "constructor", "id": [*path, str(name)]} if all(isinstance(p, str) for p in path):
            return Named(".".join(map(str, path)), name, found.get("kwargs") or {})
        case _:
            return found


def _kind_of(item: Named) -> str | None:
    is_known = any(item.module == module or item.module.startswith(f"{module}.") for module in MODULES)
    return KINDS.get(item.name.removesuffix("Chunk")) if is_known else None


def removed_id(item: object) -> str | None:
    """Return the id of the message that a `RemoveMessage` removes, None for anything else."""
    match item:
        case Named(_, "RemoveMessage", {"id": str(gone)}) if item.module.startswith(MODULES):
            return gone
        case {"type": "remove", "id": str(gone)}:
            return gone
        case _:
            return None


def read_message(item: object) -> JsonObject | None:
    """Return the members of a message as JSON, `type` among them; None for what is no message. Raises Undecodable.

    A dict with a role, a pair of role and text, and a text alone are messages, as LangGraph takes them.
    """
    match item:
        case Named(value=dict() as members):
            kind, found = _kind_of(item), members
        case {"role": str(role), "content": _}:
            assert isinstance(item, Mapping)
            kind, found = ROLES.get(role, role), dict(item)
        case {"type": str(role), "content": _}:
            assert isinstance(item, Mapping)
            kind, found = role, dict(item)
        case [str(role), str(text)]:
            kind, found = ROLES.get(role, role), {"content": text}
        case str(text):
            kind, found = "human", {"content": text}
        case _:
            return None
    return {**_plain_members(found, 0), "type": kind} if kind in KINDS.values() else None


def _plain_members(members: Mapping[object, object], depth: int) -> dict[str, JsonValue]:
    return {str(name): _plain(value, depth + 1) for name, value in members.items()}


def _plain(value: object, depth: int) -> JsonValue:
    """Return the value as JSON: objects by their content, and what JSON has no form for as text."""
    if depth > MAX_DEPTH:
        raise Undecodable("it is nested too deeply.")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Named():
            return _plain(value.value, depth + 1)
        case dict():
            return _plain_members(value, depth)
        case list():
            return [_plain(each, depth + 1) for each in value]
        case _:
            return str(value)
