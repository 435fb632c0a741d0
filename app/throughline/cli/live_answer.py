"""An answer at a terminal, drawn as Markdown while it arrives.

A block that can no longer change is printed for good. Only the last one, which is not finished, is drawn again when
more of it arrives: of that as much as the screen has rows for, until it is finished and printed whole.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments

from throughline.cli.markdown_view import Block, Row, blocks_of, lines_of, rows_of

REDRAW_SECONDS = 0.07
"""Time between two drawings of the unfinished block, however small the pieces are in which it arrives."""

REST_PARTS = 4
"""A drawing that takes long is followed by a rest of so many times its duration."""

LARGEST_BLOCK = 20_000
"""Characters of an unfinished block after which it is printed, and the rest of it follows as code or plain text."""

LARGEST_PIECE = LARGEST_BLOCK // 4
"""Characters that are added at once, so that no block becomes much larger than that."""

LONGEST_WORD = 200
"""Characters at the end of a part that go with the next one, so that no word and no line's beginning is broken."""

ERASE = "\x1b[K\n\x1b[J\x1b[1A"
"""Erases the row of the cursor, and then those below: tmux keeps a copy of a screen that is erased in one go."""


class LiveAnswer:
    """The text of an answer on a console that is a terminal. `width` is that of the rows, in columns."""

    def __init__(self, console: Console, *, widest: int, clock: Callable[[], float]) -> None:
        """Draw on `console`, in rows of at most `widest` columns. `clock` returns seconds."""
        self._console = console
        self._widest = widest
        self._clock = clock
        self._due = -math.inf  # when the unfinished block may be drawn again
        self._begin()

    def _begin(self) -> None:
        self._text = ""  # what is not printed for good
        self._opener = ""  # what begins its first block for the parser, if the block's own beginning is printed
        self._is_drawn = True  # whether all of it is on the screen
        self._drawn: list[Row] = []  # its rows on the screen
        self._has_rows = False  # whether a row of the answer is printed for good
        self._continues = False  # whether the text goes on in the block that was printed last

    def write(self, text: str) -> None:
        """Add a printable piece of the answer."""
        for at in range(0, len(text), LARGEST_PIECE):
            self._add(text[at : at + LARGEST_PIECE])
        if self._clock() >= self._due:
            self.catch_up()

    def catch_up(self) -> None:
        """Draw what is not drawn yet."""
        if self._is_drawn:
            return
        began = self._clock()
        self._print_finished()
        self.draw()
        ended = self._clock()
        self._due = ended + max(REDRAW_SECONDS, REST_PARTS * (ended - began))

    def _add(self, text: str) -> None:
        self._text += text
        self._is_drawn = False
        if len(self._text) > LARGEST_BLOCK:
            self._print_finished()
        if len(self._text) > LARGEST_BLOCK:
            self._print_part()

    def draw(self) -> None:
        """Draw the unfinished block as it is now."""
        self._is_drawn = True
        self._replace([], self._rows(self._blocks(self._text))[1])

    def hide(self) -> None:
        """Take the unfinished block from the screen, for lines that something else prints; `draw` brings it back."""
        self._replace([], [])

    def finish(self) -> None:
        """Print the rest of the answer. What is written next begins another one."""
        if self._text:
            self._print(self._blocks(self._text))
        self._begin()

    def _blocks(self, text: str) -> list[Block]:
        """Return the blocks of a text that goes on behind what is printed."""
        blocks = [*blocks_of(self._opener + text)]
        if self._opener:
            lines = lines_of("".join(blocks[0].lines).removeprefix(self._opener))
            blocks[0] = replace(blocks[0], lines=lines, is_plain=blocks[0].code is None)
        return blocks

    def _print_finished(self) -> None:
        """Print the blocks behind which another one has begun, and finished lines of code, and forget their text."""
        whole, end, rest = self._text.rpartition("\n")
        if not end:
            return
        *finished, last = self._blocks(whole + end) or [Block(())]
        opener, lines = "" if finished else self._opener, last.lines
        if last.code and "\n" in last.code:
            opener, lines = f"{last.opener}\n", lines[last.code.count("\n") + (not opener) :]
        elif last.is_plain:
            blank = [*takewhile(str.isspace, reversed(lines[:-1]))]
            opener, lines = f"{last.opener}\n", tuple(reversed(blank))
        if "".join(lines) == whole + end:
            return
        goes_on = bool(opener)
        self._print([*finished, last] if goes_on else finished)
        self._continues = goes_on or last.continues
        self._opener, self._text = opener, "".join((*lines, rest))

    def _print_part(self) -> None:
        """Print a block that is too long without its end. Its rest goes on as code, or else as plain text."""
        text = self._text
        last = self._blocks(text)[-1]
        is_closed = last.code is not None and "\n" in "".join(last.lines[0 if self._opener else 1 :])
        if is_closed:
            kept = 0
        elif last.code is not None:
            kept = len(text) - len(text.rstrip("`~ \t")) + 1  # what goes on must not look like a closing fence
        else:
            before_word = text.rstrip()
            kept = len(text) - len(before_word[: max(map(before_word.rfind, " \n"))].rstrip())
        kept = kept if kept <= LONGEST_WORD else 0
        printed, self._text = text[: len(text) - kept], text[len(text) - kept :]
        self._print(self._blocks(printed))
        ends = printed[len(printed.rstrip()) :].count("\n") if last.code is None else 1
        self._opener = "" if is_closed else last.opener + "\n" * min(ends, 2)
        self._continues = not is_closed

    def _print(self, blocks: Iterable[Block]) -> None:
        has_rows, rows = self._rows(blocks)
        self._replace(rows, [])
        self._has_rows, self._continues, self._drawn = has_rows, False, []
        self._due = -math.inf  # the unfinished block is off the screen

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
        width = self._console.width
        if Segment.get_line_length(row) <= width:
            return 1
        lines, used = 1, 0
        for cells in map(cell_len, "".join(segment.text for segment in row)):
            if used + cells > width:  # a character of two cells is not divided
                lines, used = lines + 1, 0
            used += cells
        return lines


def _joined(rows: Iterable[Row]) -> Iterable[Segment]:
    for row in rows:
        yield from row
        yield Segment.line()
