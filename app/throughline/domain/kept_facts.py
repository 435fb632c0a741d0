"""Kept facts: what a summary holds word for word beside its narrative, each with the position of its message."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.message import Role


class FactKind(StrEnum):
    """What a kept fact is; the values are the words by which a model names the kinds."""

    INSTRUCTION = "instruction"
    DECISION = "decision"
    DEADLINE = "deadline"
    PERSON = "person"
    PREFERENCE = "preference"
    VALUE = "value"
    IDENTIFIER = "identifier"
    COMMAND = "command"
    ERROR = "error"
    OPEN_QUESTION = "open question"


@dataclass(frozen=True, slots=True)
class KeptFact:
    """One fact of a message.

    `text` stands word for word in the message at `position`, on one line: white space between its words is one blank.
    `subject` is what the fact is about, '' where nobody said it. A fact that is set aside is no longer true.
    """

    kind: FactKind
    text: str
    position: int
    said_by: Role = Role.USER
    subject: str = ""
    is_set_aside: bool = False
