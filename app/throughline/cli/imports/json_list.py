"""The conversations of an export, one at a time: of a file of any size only the present one is in memory."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO, TextIO

from throughline.cli.imports.conversation import Members
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput

CHUNK = 1_000_000
MAX_CONVERSATION = 64_000_000
"""Most characters of one conversation. An import of the service takes fewer bytes, but other branches count here."""

CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")
"""The names of files with conversations in an archive; large exports have several, with numbers."""

BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
"""What reading a broken, encrypted or unusually packed archive raises."""


class NoList(InvalidInput):
    """A file does not begin as a list of JSON objects."""


DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Item:
    """A conversation as it is in an export. `place` says where, for people."""

    place: str
    members: Members


@dataclass(frozen=True, slots=True)
class ExportFile:
    """An export: a JSON file, or a ZIP archive with some. `name` is for error texts."""

    file: BinaryIO
    name: str

    @property
    def is_archive(self) -> bool:
        """Whether the file is a ZIP archive."""
        return _is_archive(self.file)

    def others(self) -> list[str]:
        """Return the names of files in the archive that have no conversations."""
        return [name for name in self._names() if not _has_conversations(name)] if self.is_archive else []

    def items(self) -> Generator[Item]:
        """Yield the conversations. Raises InvalidInput, which names the place, for what is no list of objects."""
        if not self.is_archive:
            yield from _items(self.file, self.name)
            return
        names = [name for name in self._names() if _has_conversations(name)]
        if not names:
            raise InvalidInput(f"{self.name} has no file conversations.json: it is no export of ChatGPT or Claude.")
        try:
            for name in names:
                yield from self._packed(name)
        except BROKEN as error:
            raise InvalidInput(f"{self.name} cannot be unpacked: {error}. Download it again.") from error

    def _packed(self, name: str) -> Iterator[Item]:
        with zipfile.ZipFile(self.file) as archive, archive.open(name) as packed:
            yield from _items(packed, name)

    def _names(self) -> list[str]:
        """Return the names of the archive's files in order, without what macOS adds."""
        try:
            with zipfile.ZipFile(self.file) as archive:
                names = [each.filename for each in archive.infolist() if not each.is_dir()]
        except BROKEN as error:
            raise InvalidInput(f"{self.name} is no readable ZIP archive: {error}. Download it again.") from error
        return sorted(name for name in names if not name.startswith("__MACOSX/"))


def _has_conversations(name: str) -> bool:
    return CONVERSATIONS.fullmatch(name.rpartition("/")[2]) is not None


def _is_archive(file: BinaryIO) -> bool:
    file.seek(0)
    begins_so = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    return begins_so


def _items(file: IO[bytes], name: str) -> Iterator[Item]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig")
    try:
        yield from _Reading(text, name).items()
    finally:
        text.detach()


class _Reading:
    """Reading of a list of JSON objects from a text, of which the part from `_at` on is still to be read."""

    def __init__(self, file: TextIO, name: str) -> None:
        self._file, self._name = file, name
        self._text, self._at = "", 0
        self._dropped = 0

    def items(self) -> Iterator[Item]:
        """Yield the objects of the list. Raises InvalidInput."""
        if self._next() != "[":
            raise NoList(f"{self._name} is no list of conversations.")
        self._at += 1
        number = 0
        while self._next() != "]":
            number += 1
            place = f"conversation {number} in {self._name}"
            if self._next() != "{":
                raise NoList(f"{place} is no JSON object (character {self._position:,}).")
            value = self._object(place)
            assert isinstance(value, dict), "it begins with a brace"
            yield Item(place, value)
            if self._next() == ",":
                self._at += 1
            elif self._next() != "]":
                raise InvalidInput(
                    f"{self._name} is cut off or damaged behind conversation {number} (character {self._position:,})."
                )

    @property
    def _position(self) -> int:
        return self._dropped + self._at + 1

    def _next(self) -> str:
        """Return the next character that is no white space, '' at the end of the file."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._read(CHUNK):
                return ""

    def _object(self, place: str) -> JsonValue:
        while True:
            try:
                value: JsonValue
                value, self._at = DECODER.raw_decode(self._text, self._at)
            except ValueError as error:
                self._complete(place, error)
            except RecursionError:
                raise InvalidInput(f"{place} is nested too deeply.") from None
            else:
                return value

    def _complete(self, place: str, error: ValueError) -> None:
        """Read more of the object, as much again as is known of it. Raises InvalidInput at the end of the file."""
        known = len(self._text) - self._at
        if known > MAX_CONVERSATION:
            raise InvalidInput(
                f"{place} has more than {MAX_CONVERSATION:,} characters, or is no valid JSON "
                f"(from character {self._position:,})."
            )
        if not self._read(max(CHUNK, known)):
            wrong = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
            at = error.pos if isinstance(error, json.JSONDecodeError) else self._at
            raise InvalidInput(f"{place} is no valid JSON: {wrong} (character {self._dropped + at + 1:,}).")

    def _read(self, count: int) -> bool:
        """Drop what has been read and read `count` further characters. Returns whether there were any."""
        try:
            more = self._file.read(count)
        except UnicodeDecodeError:
            read = self._dropped + len(self._text)
            kind = InvalidInput if read else NoList
            raise kind(f"{self._name} is not in UTF-8 (behind character {read:,}).") from None
        if more:
            self._dropped += self._at
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)
