"""A conversation from elsewhere, as lines of an export, and what of it is left out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.message import clean_text, is_blank
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.ports.stored_threads import LeftOut

IMPORTED_FROM = "imported_from"
"""The key of a session's metadata that says where it comes from."""

MAX_TITLE, MAX_NAME, MAX_AUTHOR = 200, 1_000, 200
BLANK = "messages without text"
UNANSWERED = "results of tools without a call"

Members: TypeAlias = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A message from elsewhere, as an import takes it; empty members are left away.

    `content` is a text or a list of blocks. A tool's message answers the call `call_id` of the tool `name`. `id` is the
    message's own id, kept in the metadata, and `created_at` a time in ISO 8601.
    """

    role: Literal["user", "assistant", "tool"]
    content: JsonValue
    id: str = ""
    calls: tuple[JsonObject, ...] = ()
    call_id: str = ""
    name: str = ""
    author: str = ""
    created_at: str = ""
    reasoning: str = ""
    metadata: JsonObject = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in the message that could be shown."""
        return not self.calls and (is_blank(self.content) if isinstance(self.content, str) else not self.content)

    def as_line(self) -> Members:
        """Return the message as a line of an export."""
        metadata = {"message_id": self.id, **self.metadata}
        optional: Members = {
            "tool_calls": [dict(call) for call in self.calls],
            "tool_call_id": self.call_id[:MAX_NAME],
            "name": self.name[:MAX_NAME],
            "author": self.author[:MAX_AUTHOR],
            "created_at": self.created_at,
            "reasoning": self.reasoning,
            "metadata": {name: value for name, value in metadata.items() if value},
        }
        kept = {name: value for name, value in optional.items() if value}
        return {"type": "message", "role": self.role, "content": self.content, **kept}


def call_of(call_id: str, name: str, arguments: str) -> JsonObject:
    """Return a tool call; `arguments` is JSON text."""
    return {"id": call_id[:MAX_NAME], "name": name[:MAX_NAME], "arguments": arguments}


@dataclass(frozen=True, slots=True)
class ForeignConversation:
    """A conversation from elsewhere. `origin` is kept in the session's metadata."""

    id: str
    title: str
    origin: JsonObject
    messages: tuple[ForeignMessage, ...]
    left_out: tuple[LeftOut, ...] = ()

    def lines(self, agent: str) -> bytes:
        """Return the conversation as an export, for a session with this agent."""
        session: Members = {
            "type": "session",
            "agent": agent,
            "title": self.title[:MAX_TITLE],
            "external_id": external_id(self.id),
            "metadata": {IMPORTED_FROM: {name: value for name, value in self.origin.items() if value}},
        }
        lines = [session, *(message.as_line() for message in self.messages)]
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def external_id(foreign_id: str) -> str:
    """Return the id by which the session of a conversation is found again: the conversation's own, if it can be one."""
    cleaned = clean_text(foreign_id)
    if cleaned == foreign_id and not is_blank(cleaned) and len(cleaned) <= MAX_EXTERNAL_ID:
        return cleaned
    return f"sha256:{hashlib.sha256(foreign_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


class Transcript:
    """The messages of a conversation while it is read, and what is left out of it."""

    def __init__(self, left_out: Sequence[LeftOut] = ()) -> None:
        """Begin with what the source has left out already."""
        self.messages: list[ForeignMessage] = []
        self.left_out = list(left_out)
        self._open: dict[str, str] = {}
        self._reasoning: list[str] = []

    def leave_out(self, kind: str, place: str = "") -> None:
        self.left_out.append(LeftOut(kind, place))

    def think(self, text: str) -> None:
        """Keep a piece of reasoning for the next message of the assistant."""
        if not is_blank(text):
            self._reasoning.append(text)

    def say(self, message: ForeignMessage) -> None:
        """Add a message of the user or the assistant, unless it is blank."""
        if message.is_blank:
            self.leave_out(BLANK, message.id)
            return
        if message.role == "assistant":
            message = replace(message, reasoning="\n\n".join((*self._reasoning, message.reasoning)).strip())
            self._reasoning = []
        self._open |= {str(call["id"]): str(call["name"]) for call in message.calls}
        self.messages.append(message)

    def answer(self, message: ForeignMessage) -> None:
        """Add a tool's message. A further one for the same call is added to the first: a call has one result."""
        last = self.messages[-1] if self.messages else None
        if message.call_id in self._open:
            name = self._open.pop(message.call_id)
            self.messages.append(replace(message, name=message.name or name))
        elif last and last.role == "tool" and last.call_id == message.call_id:
            self.messages[-1] = replace(last, content=f"{last.content}\n\n{message.content}".strip())
        else:
            self.leave_out(UNANSWERED, message.id)

    def open_call(self, name: str) -> str:
        """Return the id of a tool's newest call without a result, or of the call whose result was the last message.

        Tools are told apart by their names up to the first point. '' if there is none.
        """
        found = [call_id for call_id, called in self._open.items() if _is_same_tool(called, name)]
        last = self.messages[-1] if self.messages else None
        if not found and last and last.role == "tool" and _is_same_tool(last.name, name):
            return last.call_id
        return found[-1] if found else ""

    @property
    def awaited(self) -> str:
        """The id of the oldest call without a result, '' if all are answered."""
        return next(iter(self._open), "")


def _is_same_tool(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


# Reading of parsed JSON whose form nobody warrants.


def text_in(members: Mapping[str, JsonValue], name: str) -> str:
    """Return a member that is a text, '' if it is none."""
    value = members.get(name)
    return value if isinstance(value, str) else ""


def object_in(members: Mapping[str, JsonValue], name: str) -> Members:
    """Return a member that is an object, an empty one if it is none."""
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def objects_in(members: Mapping[str, JsonValue], name: str) -> list[Members]:
    """Return the items of a list that are objects, none if the member is no list."""
    value = members.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def written_time(value: JsonValue) -> str:
    """Return a time in ISO 8601: seconds since 1970, or a text with a time zone. '' for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat() if value else ""
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return ""
    return read.isoformat() if read is not None and read.tzinfo is not None else ""
