"""Reasoning of a model: the text that it writes before an answer or a step."""

from dataclasses import dataclass

MAX_REASONING_CHARACTERS = 200_000
"""Most characters of the reasoning before one answer that are stored, without CUT_MARK."""

CUT_MARK = "\n[The rest of the reasoning was not stored.]"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Reasoning:
    """The reasoning before one answer or step of a model.

    With `is_shown` users may read it, otherwise only operators.
    """

    text: str
    is_shown: bool = True


def bounded_reasoning(text: str) -> str:
    """Return the text in at most MAX_REASONING_CHARACTERS; CUT_MARK follows one that was cut."""
    return text if len(text) <= MAX_REASONING_CHARACTERS else f"{text[:MAX_REASONING_CHARACTERS]}{CUT_MARK}"
