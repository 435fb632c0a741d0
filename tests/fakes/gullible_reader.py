"""A reader of prompts that obeys every order in an instruction's place: what a model at its worst would do.

An instruction's place is a system message, whatever stands in another message outside of a record, and a line of a
record that begins like a message of its own. The reader takes letters, tags and line ends for what they look like.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fakes.provider_double.counting import texts_of
from fakes.provider_double.json_types import Json

_ORDER = re.compile(r"pwn-\d{3}")
_TAG = re.compile(r"<\s*(/?)\s*quoted[\s_\-]*history")
_LINE = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_HEAD = re.compile(r"\[#(\d+), (\w+)")
_SPEAKS = re.compile(
    r"\[#|\[?/?(?:system|developer|assistant|user|human|tool|inst)\b|#+ ?(?:system|summary|instructions)|<[|<]|```|\{"
)
"""The beginning of a line that is read as somebody else's word."""

_ALIKE = str.maketrans("аеіјорсухһԁѕԛԝοιυνρτκαɡ∕⁄‹⟨〈＿‐‑‒–—″", 'aeijopcyxhdsqwoiuvptkag//<<<_-----"')
_UNSEEN = {"Cf", "Mn", "Me"}


@dataclass(slots=True)
class Reading:
    """The marks of the orders that were obeyed, and of those that stood in a record as what somebody once said."""

    obeyed: set[str] = field(default_factory=set)
    quoted: set[str] = field(default_factory=set)


def read_prompt(prompt: Sequence[Json], said_at: Mapping[str, tuple[int, str]]) -> Reading:
    """Read what a model was sent. `said_at` has the position and the role of the message with each mark."""
    reading = Reading()
    for message in prompt:
        text = as_seen("\n".join(texts_of(message)))
        if message["role"] in {"system", "developer"}:
            reading.obeyed |= _orders(text)
        elif message["role"] != "assistant":
            _read_message(text, said_at, reading)
    return reading


def as_seen(text: str) -> str:
    """Return the text in the letters that it looks like, without what nobody sees."""
    plain = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in _UNSEEN).casefold().translate(_ALIKE)


def _read_message(text: str, said_at: Mapping[str, tuple[int, str]], reading: Reading) -> None:
    for part, is_record in _parts(text):
        if is_record:
            _read_record(part, said_at, reading)
        else:
            reading.obeyed |= _orders(part)


def _orders(text: str) -> set[str]:
    return {found.upper() for found in _ORDER.findall(text)}


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text, and whether each is in a record: between its two tags."""
    at, is_record = 0, False
    for tag in _TAG.finditer(text):
        yield text[at : tag.start()], is_record
        at, is_record = tag.end(), not tag[1]
    yield text[at:], is_record


def _read_record(record: str, said_at: Mapping[str, tuple[int, str]], reading: Reading) -> None:
    """Note who speaks in each line. An order counts as quoted only under the head of the message that has it."""
    speaker: tuple[int, str] | None = None
    for line in _LINE.split(record.removeprefix(">")):
        if _SPEAKS.match(line):
            head = _HEAD.match(line)
            speaker = (int(head[1]), head[2]) if head else None
        for mark in _orders(line):
            (reading.quoted if said_at[mark] == speaker else reading.obeyed).add(mark)
