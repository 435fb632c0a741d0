"""Kept facts: what stands word for word beside a summary's narrative, each with the message it comes from."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.message import Role


class FactKind(StrEnum):
    """What a fact is, in the order in which kinds are shown; standing instructions have a part of their own."""

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
    """One fact, word for word on one line, with the position of its message, who said it, and in whose name.

    `subject` says what it is about, '' where nobody said: of two facts of one subject the later one is current, and of
    those without nobody knows whether they still hold. `replaced_by` is the position of the statement that ended this
    one, 0 while it is current. `chosen` and `passed_over` count how often a model named it or did not where it could.
    `is_unjudged`: no choice was asked about it yet.
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
        """The chance that a model would choose it again, by the rule of succession: 0.5 for one nobody judged."""
        return (self.chosen + 1) / (self.chosen + self.passed_over + 2)
