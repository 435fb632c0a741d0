"""Reasoning of a model: the text that it writes before an answer or a step, and what its provider wants back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from throughline.domain.json_types import JsonObject, JsonValue

MAX_REASONING_CHARACTERS = 200_000
"""Most characters of the reasoning before one answer that are stored, without CUT_MARK."""

READABLE = frozenset({"thinking", "text", "summary"})
"""Members of parts with text that anybody can read."""

CUT_MARK = "\n[The rest of the reasoning was not stored.]"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Reasoning:
    """The reasoning before one answer or step of a model.

    `text` is for people; '' if there is nothing to read. With `is_shown` users may read it, otherwise only operators.

    `parts` are what the provider wants back with the step, unchanged, while the run goes on; most want nothing. They
    are sent only to the model whose calibration key is `model`: another one refuses them, or should not read them.
    """

    text: str = ""
    parts: tuple[JsonObject, ...] = ()
    model: str = ""
    is_shown: bool = True


def readable_and_opaque(part: JsonObject) -> tuple[str, int]:
    """Return the text of a part, and the number of its other characters: signatures and encrypted text."""
    readable, opaque = [], 0
    for name, text in _texts_in(part, ""):
        if name in READABLE:
            readable.append(text)
        elif name != "type":
            opaque += len(text)
    return "".join(readable), opaque


def characters_in(part: JsonObject) -> int:
    """Return the number of characters of all texts in a part."""
    return sum(len(text) for _, text in _texts_in(part, ""))


def _texts_in(value: "JsonObject | JsonValue", name: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield name, value
        case Mapping():
            for key, member in value.items():
                yield from _texts_in(member, key)
        case list():
            for item in value:
                yield from _texts_in(item, name)
        case _:
            pass


def bounded_reasoning(text: str) -> str:
    """Return the text in at most MAX_REASONING_CHARACTERS; CUT_MARK follows one that was cut."""
    return text if len(text) <= MAX_REASONING_CHARACTERS else f"{text[:MAX_REASONING_CHARACTERS]}{CUT_MARK}"
