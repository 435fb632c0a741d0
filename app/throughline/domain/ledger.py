"""The ledger's words: facts kept word for word beside a summary's narrative, each with the place it comes from."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.message import Role


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
    LEFT_OUT = "left_out"
    """How many instructions the ledger had no place for, as a text; the position is of the newest of them."""


FACT_KINDS = tuple(kind for kind in LedgerKind if kind not in {LedgerKind.INSTRUCTION, LedgerKind.LEFT_OUT})
"""The kinds of facts; the other two are the user's instructions."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One fact, verbatim, its position, and who said it: of several the one whose word counts most."""

    kind: LedgerKind
    text: str
    position: int
    said_by: Role = Role.USER
