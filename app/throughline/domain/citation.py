"""Citations: places in a text that name stored messages by position, as `[#12]` or `[#12-#40]`."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import SessionId


class CitationStatus(StrEnum):
    """The result of comparing a citation with the stored messages."""

    VALID = "valid"
    NO_SUCH_MESSAGE = "no_such_message"
    QUOTATION_NOT_FOUND = "quotation_not_found"


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation in a text, not checked yet.

    `start` (inclusive) and `end` (exclusive) are the character range of its positions in the text, without the
    brackets. Both positions are inclusive; they are equal if the text names one message.
    `session_id` is None if the text names no session. `quotation` is the text in quotation marks beside it, or ''.
    """

    start: int
    end: int
    from_position: int
    to_position: int
    session_id: SessionId | None = None
    quotation: str = ""


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation with the session it refers to and the result of its check."""

    start: int
    end: int
    from_position: int
    to_position: int
    session_id: SessionId
    status: CitationStatus
