"""An answer at a terminal, drawn as Markdown while it arrives.

A block that can no longer change is printed for good. Only the last one, which is not finished, is drawn again when
more of it arrives: of that as much as the screen has rows for, until it is finished and printed whole.
"""

from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment, Segments

from throughline.cli.markdown_view import Block, Row, blocks_of, rows_of

DRAWN_PARTS = 64
"""The unfinished block is drawn when a part of it, this small, is new: many small pieces must not cost its square."""

LARGEST_BLOCK = 20_000
"""Characters of an unfinished block after which it is printed, and what follows is a block of its own."""

ERASE = "\x1b[K\n\x1b[J\x1b[1A"
"""Erases the row of the cursor, and then those below: tmux keeps a copy of a screen that is erased in one go."""


class LiveAnswer:
    """The text of an answer on a console that is a terminal. `width` is that of the rows, in columns."""

    def __init__(self, console: Console, *, widest: int) -> None:
        """Draw on `console`, in rows of at most `widest` columns."""
        self._console = console
        self._widest = widest
        self._begin()

    def _begin(self) -> None:
        self._text = ""  # what is not printed for good
        self._new = 0  # characters of it that are not drawn
        self._drawn: list[Row] = []  # its rows on the screen
        self._has_rows = False  # whether a row of the answer is printed for good
        self._continues = False  # whether the text goes on in the block that was printed last

    def write(self, text: str) -> None:
        """Add a printable piece of the answer."""
        self._text += text
        self._new += len(text)
        if self._new * DRAWN_PARTS >= len(self._text):
            self._print_finished()
            self.draw()
        if len(self._text) > LARGEST_BLOCK:
            self._print(blocks_of(self._text))
            self._text = ""

    def draw(self) -> None:
        """Draw the unfinished block as it is now."""
        self._new = 0
        self._replace([], self._rows(blocks_of(self._text))[1])

    def hide(self) -> None:
        """Take the unfinished block from the screen, for lines that something else prints; `draw` brings it back."""
        self._replace([], [])

    def finish(self) -> None:
        """Print the rest of the answer. What is written next begins another one."""
        if self._text:
            self._print(blocks_of(self._text))
        self._begin()

    def _print_finished(self) -> None:
        """Print the blocks behind which another one has begun, and finished lines of code, and forget their text."""
        whole, end, rest = self._text.rpartition("\n")
        if not end:
            return
        *finished, last = blocks_of(whole + end) or (Block(()),)
        opener, *lines = last.lines or ("",)
        count = last.code.count("\n") if last.code else 0
        if count:
            finished.append(Block((), continues=last.continues, code=last.code))
            lines = lines[count:]
        if finished:
            self._print(finished)
            self._continues = count > 0 or last.continues
            self._text = "".join((opener, *lines, rest))

    def _print(self, blocks: Iterable[Block]) -> None:
        has_rows, rows = self._rows(blocks)
        self._replace(rows, [])
        self._has_rows, self._continues, self._drawn = has_rows, False, []

    def _rows(self, blocks: Iterable[Block]) -> tuple[bool, list[Row]]:
        """Return whether the answer has rows with those of the blocks, and these, with a blank one between blocks."""
        rows: list[Row] = []
        has_rows, continues = self._has_rows, self._continues
        for block in blocks:
            drawn = rows_of(self._console, block, width=min(self._console.width, self._widest))
            if drawn and has_rows and not (continues or block.continues):
                rows.append([])
            rows.extend(drawn)
            has_rows, continues = has_rows or bool(drawn), False
        return has_rows, rows

    def _replace(self, printed: list[Row], unfinished: list[Row]) -> None:
        """Write rows in place of those that were drawn last. Rows that are the same stay untouched."""
        rows = printed + self._last_that_fit(unfinished)
        same = 0
        for old, new in zip(self._drawn, rows, strict=False):
            if old != new:
                break
            same += 1
        up = min(sum(map(self._height, self._drawn[same:])), self._console.height - 1)
        self._drawn = rows
        back = f"\x1b[{up}A{ERASE}" if up else ""
        with self._console.capture() as capture:
            self._console.print(Segments(_joined(rows[same:])), soft_wrap=True, end="")
        if back or rows[same:]:
            self._console.file.write(back + capture.get())
            self._console.file.flush()

    def _last_that_fit(self, rows: list[Row]) -> list[Row]:
        left, first = self._console.height - 1, len(rows)
        while first and left >= self._height(rows[first - 1]):
            first -= 1
            left -= self._height(rows[first])
        return rows[first:]

    def _height(self, row: Row) -> int:
        """Return how many lines of the terminal a row takes, which is more than one for a long line of code."""
        return max(1, -(-Segment.get_line_length(row) // self._console.width))


def _joined(rows: Iterable[Row]) -> Iterable[Segment]:
    for row in rows:
        yield from row
        yield Segment.line()
