"""Ids of OpenAI's objects, each made from the id of a stored row, so that none is stored."""

from dataclasses import dataclass
from uuid import UUID

from throughline.domain.basic_types import MessageId, RunId, SessionId
from throughline.domain.errors import NotFound
from throughline.domain.message import clean_text

HEX_LENGTH = 32
MAX_SHOWN = 60
MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ResponseRef:
    """A response: part number `part` of a run. A run that has waited and continued `n` times has `n + 1` parts."""

    run_id: RunId
    part: int = 0

    def __str__(self) -> str:
        """Return the response's id, `resp_` and the run's id, with the part's number unless it is the first."""
        return f"resp_{self.run_id.hex}" + (f"_{self.part}" if self.part else "")


def conversation_id(session_id: SessionId) -> str:
    """Return `conv_` and the session's id in hexadecimal digits: a session is shown as a conversation of that id."""
    return f"conv_{session_id.hex}"


def read_conversation_id(text: str) -> SessionId:
    """Return the session that a conversation is. Raises NotFound for anything that is no conversation's id."""
    found = _uuid(text.removeprefix("conv_")) if text.startswith("conv_") else None
    if found is None:
        raise NotFound(f"There is no conversation {clean_text(text)[:MAX_SHOWN]!r}.")
    return SessionId(found)


def read_response_id(text: str) -> ResponseRef:
    """Return the response with this id. Raises NotFound for anything that is no response's id."""
    digits, _, part = text.removeprefix("resp_").partition("_")
    found = _uuid(digits) if text.startswith("resp_") else None
    if found is None or not (part == "" or (part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS)):
        raise response_not_found(text)
    return ResponseRef(RunId(found), int(part or 0))


def response_not_found(text: str) -> NotFound:
    """Return the error for a response that is missing or another user's."""
    return NotFound(f"There is no response {clean_text(text)[:MAX_SHOWN]!r}.")


def message_item_id(message_id: MessageId) -> str:
    """Return the id of the item that shows a message's text."""
    return f"msg_{message_id.hex}"


def call_item_id(message_id: MessageId, index: int) -> str:
    """Return the id of the item that shows tool call number `index` of a message."""
    return f"fc_{message_id.hex}_{index}"


def result_item_id(message_id: MessageId) -> str:
    """Return the id of the item that shows a tool's result."""
    return f"fco_{message_id.hex}"


def read_item_id(text: str) -> MessageId:
    """Return the message that an item shows. Raises NotFound for anything that is no item's id."""
    parts = text.split("_")
    found = _uuid(parts[1]) if len(parts) in {2, 3} and parts[0] in {"msg", "fc", "fco", "mcp"} else None
    if found is None:
        raise NotFound(f"There is no item {clean_text(text)[:MAX_SHOWN]!r}.")
    return MessageId(found)


def _uuid(digits: str) -> UUID | None:
    is_hex = len(digits) == HEX_LENGTH and all(digit in "0123456789abcdef" for digit in digits)
    return UUID(hex=digits) if is_hex else None
