"""Memories in a prompt: short texts of the session's owner that fit the user's message.

They are quoted like earlier messages (`quoted_history.py`): in a note of their own right before the user's message,
framed as a record, limited in tokens, and for one turn.
"""

from collections.abc import Collection, Sequence

from throughline.context.fit_prompt import FittedPrompt
from throughline.context.questions import FILLER_WORDS, GENERAL_WORDS
from throughline.context.quoted_history import (
    NOT_SAID_NOW,
    WHOLE_CHARACTERS,
    Quotation,
    note_of,
    record_note,
    tokens_of_note,
    with_note,
)
from throughline.context.view.view import View
from throughline.domain.prompt import PromptMessage
from throughline.domain.recall import Memory

TITLE = "Memories: texts that the user had stored for later, and that may matter to the next message."
MOST_QUOTED = 5

LEAST_FIT = 0.24
"""Least fit of a quoted memory.

One of four words in common is enough if it stands in no other memory: a memory is short, and seldom repeats more of
what it matters to.
"""

EMPTY_WORDS = FILLER_WORDS | GENERAL_WORDS
"""Words that fit a memory to no message, since they may stand in a text about anything."""


def fit_of(shared: float, message: Collection[str], memory: Collection[str]) -> float:
    """Return how well a memory fits a message: 0 to 1, the shared words as a share of the shorter one's.

    `shared` is the sum over the shared words of their rarity, 1 for a word that only one memory has. `message` and
    `memory` are the words of each without EMPTY_WORDS.
    """
    return min(shared / max(min(len(message), len(memory)), 1), 1.0)


def with_memories(fitted: FittedPrompt, memories: Sequence[Memory]) -> tuple[FittedPrompt, tuple[Memory, ...]]:
    """Return the prompt with as many memories, best first, as there is room for, and those that it quotes."""
    return with_note(fitted, tuple(memories), memories_note)


def tokens_of_notes(view: View, quotations: Sequence[Quotation], memories: Sequence[Memory]) -> int:
    """Return the tokens, by our count, that the notes of what was found may take; 0 if nothing was found."""
    notes = [note_of(quotations)] if quotations else []
    notes += [memories_note(memories)] if memories else []
    return sum(tokens_of_note(view, note) for note in notes)


def memories_note(memories: Sequence[Memory]) -> PromptMessage:
    """Return the note with the memories. Of a long one the beginning is quoted."""
    return record_note(
        f"{TITLE} {NOT_SAID_NOW}", [(f"[memory {memory.id}]", _shortened(memory.text)) for memory in memories]
    )


def _shortened(text: str) -> str:
    return text if len(text) <= WHOLE_CHARACTERS else f"{text[:WHOLE_CHARACTERS]} …"
