"""Kept facts: statements that a summary keeps word for word next to its narrative, each with its source message."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.message import Role


class FactKind(StrEnum):
    """The kinds of kept facts, in the order in which a prompt shows them; instructions get a section of their own."""

    INSTRUCTION = "instruction"
    DECISION = "decision"
    DEADLINE = "deadline"
    PERSON = "person"
    PREFERENCE = "preference"
    OPEN_QUESTION = "open question"
    VALUE = "value"
    IDENTIFIER = "identifier"
    ERROR = "error"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class KeptFact:
    """A fact quoted word for word on one line, with its message's position, the speaker's role and the author's name.

    `subject` says what the fact is about, '' if unknown. Of two facts with one subject the later one is current;
    without a subject it is unknown whether a fact still holds. `replaced_by` is the position of the statement that
    replaced this fact, 0 while it is current.

    `chosen` and `passed_over` count how often a model did and did not select the fact when it could. With `is_unjudged`
    no model has been asked about the fact yet.
    """

    kind: FactKind
    text: str
    position: int
    said_by: Role = Role.USER
    subject: str = ""
    author: str = ""
    replaced_by: int = 0
    chosen: int = 0
    passed_over: int = 0
    is_unjudged: bool = True

    @property
    def score(self) -> float:
        """The probability that a model would choose the fact again: rule of succession, 0.5 before any choice."""
        return (self.chosen + 1) / (self.chosen + self.passed_over + 2)
