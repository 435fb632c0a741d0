"""What the clients write and what the model answers: every text is unlike any other, and names who wrote it."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"chaos:([\w-]+):(\d+)")
_SLOW = re.compile(r"\[slow ([\d.]+)]")
_WORDS = "the harbour master kept a ledger of every ship that came in after dark and nobody had asked him to "
TOOLS = "[tools]"
ANSWER_PIECES = 12


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """Which message it is: of which conversation, and which of its messages, counted from 1."""

    conversation: str
    number: int

    def __str__(self) -> str:
        """Return it as it stands in the text."""
        return f"chaos:{self.conversation}:{self.number}"


def text_of(name: Name, *, uses_tools: bool = False, slow_seconds: float = 0.0, words: int = 5) -> str:
    """Return a message: its name, what the model is to do, and `words` words."""
    parts = [str(name)]
    parts += [TOOLS] if uses_tools else []
    parts += [f"[slow {slow_seconds:g}]"] if slow_seconds else []
    filler = _WORDS.split()
    parts += [filler[index % len(filler)] for index in range(words)]
    return " ".join(parts)


def answer_to(text: str) -> str:
    """Return the one answer to a message."""
    name = name_in(text)
    return f"Answer to {name}: {_WORDS * 3}, and that is all of it for {name}."


def name_in(text: str) -> Name | None:
    """Return the name of the message that `text` is, or is the answer to; None where it is somebody else's."""
    found = _NAME.search(text)
    return None if found is None else Name(found[1], int(found[2]))


def slow_seconds_in(text: str) -> float:
    """Return how long the model is to take."""
    found = _SLOW.search(text)
    return 0.0 if found is None else float(found[1])
