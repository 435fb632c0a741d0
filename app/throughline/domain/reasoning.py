"""Reasoning of a model: the text that it writes before an answer or a step, and what its provider wants back."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from throughline.domain.basic_types import JsonObject, JsonValue

# `<think>` blocks: reasoning that a model writes into its text, removed from a whole text or while it arrives.
#
# Answers to users are read by ThinkBlockSplitter, which knows only the tags that models are trained to write. Texts of
# summary models are read by `without_thinking`, which tolerates more: nobody asks for a summary that begins with a tag.

TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"))
"""The tags of a block at the beginning of an answer, exactly as models write them."""

MOST_BLANKS = 1_000
"""Whitespace before a first tag up to which a block is recognised."""

_THINKING = re.compile(r"[<\[](?:think(?:ing)?|thoughts?|reasoning)[>\]]", re.IGNORECASE)
_THOUGHT = re.compile(r"[<\[]/(?:think(?:ing)?|thoughts?|reasoning)[>\]]\s*+", re.IGNORECASE)
_THOUGHT_LINE = re.compile(r"^[^\S\n]*+</think(?:ing)?>[^\S\n]*+$", re.IGNORECASE | re.MULTILINE)
_FINAL_CHANNEL = "<|channel|>final<|message|>"


def without_thinking(text: str) -> str:
    """Return `text` without the `<think>` blocks at its beginning; '' if such a block never ends.

    Some chat templates open the block in the prompt. The answer then contains only its end, on a line of its own.
    """
    text, end = text.rpartition(_FINAL_CHANNEL)[2].strip(), 0
    unopened = _THOUGHT_LINE.search(text)
    if unopened and not _THINKING.search(text, 0, unopened.start()):
        text = text[unopened.end() :].lstrip()
    while opening := _THINKING.match(text, end):
        closing = _THOUGHT.search(text, opening.end())
        end = closing.end() if closing else len(text)
    return text[end:]


@dataclass(frozen=True, slots=True)
class SplitText:
    """A piece of an answer, split into its reasoning and its text."""

    reasoning: str = ""
    text: str = ""


@dataclass(slots=True)
class ThinkBlockSplitter:
    """Splitter of an answer that arrives in pieces: blocks at its very beginning are reasoning, all else is text.

    A tag anywhere else is text that the user may have asked for. A block that never ends is reasoning to its end: it
    is not shown as the answer. `_held` is text whose kind is not known yet, `_closing` the tag that ends the block.
    """

    _held: str = ""
    _closing: str = ""
    _has_text: bool = False
    _has_block: bool = False
    _is_stopped: bool = False

    def feed(self, piece: str) -> SplitText:
        """Add a piece and return what is known of it now. The time is linear in all pieces."""
        if self._has_text:
            return SplitText(text=piece)
        self._held += piece
        reasoning: list[str] = []
        while self._closing or (not self._is_stopped and self._opens()):
            reasoning.append(self._take_thought())
            if self._closing:
                return SplitText("".join(reasoning))
        return SplitText("".join(reasoning), "" if self._may_open() else self._take_text())

    def stop(self) -> None:
        """Recognise no further block: the server separates reasoning from text itself."""
        self._is_stopped = True

    def flush(self) -> SplitText:
        """Return what was held back; call it after the last piece."""
        if not self._closing:
            return SplitText(text=self._take_text())
        held, self._held = self._held, ""
        return SplitText(reasoning=held)

    def _opens(self) -> bool:
        """Take a tag that opens a block; return whether there is one."""
        begun = self._begun()
        for opening, closing in TAGS:
            if begun.startswith(opening):
                self._held, self._closing = begun[len(opening) :], closing
                return True
        return False

    def _may_open(self) -> bool:
        """Return whether the text so far may become a tag that opens a block."""
        begun = self._begun()
        return not self._is_stopped and any(opening.startswith(begun) for opening, _ in TAGS)

    def _begun(self) -> str:
        """Return the text so far without the whitespace before it, unless there is more than MOST_BLANKS of it."""
        begun = self._held.lstrip()
        return begun if len(self._held) - len(begun) <= MOST_BLANKS else self._held

    def _take_thought(self) -> str:
        """Take the block's text that was not returned yet. The closing tag ends the block.

        Text that may be the beginning of that tag is kept for the next call.
        """
        thought, is_closed, after = self._held.partition(self._closing)
        if is_closed:
            self._held, self._closing, self._has_block = after, "", True
            return thought
        sizes = range(len(self._closing) - 1, 0, -1)
        begun = next((size for size in sizes if thought.endswith(self._closing[:size])), 0)
        known = len(thought) - begun
        self._held = thought[known:]
        return thought[:known]

    def _take_text(self) -> str:
        text, self._held = self._held, ""
        text = text.lstrip() if self._has_block else text
        self._has_text = self._has_text or bool(text)
        return text


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
