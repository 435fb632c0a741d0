"""The ledger's words: facts kept word for word beside a summary's narrative, each with the place it comes from."""

from dataclasses import dataclass
from enum import StrEnum


class LedgerKind(StrEnum):
    """What a fact is; standing instructions of the user come first and have a part of their own."""

    INSTRUCTION = "instruction"
    PATH = "path"
    URL = "url"
    IDENTIFIER = "identifier"
    NUMBER = "number"
    DATE = "date"
    COMMAND = "command"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One fact, verbatim, and the position of the message it was last seen in."""

    kind: LedgerKind
    text: str
    position: int
