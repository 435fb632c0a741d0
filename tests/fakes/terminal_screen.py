"""A terminal that shows what is written to it, and refuses every sequence that an answer's drawing does not need."""

import re
from io import StringIO

from rich.cells import cell_len

REFUSED = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
ALLOWED = re.compile(rf"\x1b\[(?P<up>\d+)A|\x1b\[[JK]|\x1b\[[\d;]*m|\n|[^{REFUSED}]")


class TerminalScreen(StringIO):
    """What a person looks at: rows of `width` columns, of which the last `height` can still be changed."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self._width, self._height = width, height
        self._rows = [""]
        self._at = 0
        self.written = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written += text
        position = 0
        while position < len(text):
            found = ALLOWED.match(text, position)
            assert found is not None, f"the terminal would obey {text[position : position + 10]!r}"
            self._obey(found)
            position = found.end()
        return len(text)

    def _obey(self, found: re.Match[str]) -> None:
        piece = found.group()
        if found["up"]:
            assert self._at - int(found["up"]) >= self._top, "rows that have left the screen cannot be reached"
            self._at -= int(found["up"])
        elif piece == "\x1b[K":
            self._rows[self._at] = ""
        elif piece == "\x1b[J":
            assert self._at > self._top, "tmux keeps a copy of a screen that is erased whole"
            del self._rows[self._at + 1 :]
            self._rows[self._at] = ""
        elif piece == "\n":
            self._next_row()
        elif not piece.startswith("\x1b"):
            if cell_len(self._rows[self._at] + piece) > self._width:
                self._next_row()
            self._rows[self._at] += piece

    def _next_row(self) -> None:
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append("")

    @property
    def _top(self) -> int:
        """The first row that is still on the screen."""
        return max(len(self._rows) - self._height, 0)

    @property
    def rows(self) -> list[str]:
        """All rows, those that have left the screen too, without empty ones at and below the cursor."""
        last = len(self._rows)
        while last > self._at and not self._rows[last - 1]:
            last -= 1
        return self._rows[:last]
