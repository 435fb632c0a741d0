"""Output of the command line, and answers drawn while they arrive.

Results go to standard output, notes and errors to standard error.
"""

import asyncio
import errno
import io
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TextIO

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from throughline.cli.dependencies import LineReader
from throughline.cli.markdown_view import THEME, MarkdownBlock, Row, blocks_of, lines_of, rows_of
from throughline.cli.printable import printable, to_the_second, wrapped
from throughline.domain.replica import ReplicaAge

# An answer at a terminal, drawn as Markdown while it arrives. A block that can no longer change is printed for good.
# Only the last one, which is not finished, is drawn again when more of it arrives: of that as much as the screen has
# rows for, until it is finished and printed whole.

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

    def _blocks(self, text: str) -> list[MarkdownBlock]:
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
        *finished, last = self._blocks(whole + end) or [MarkdownBlock(())]
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

    def _print(self, blocks: Iterable[MarkdownBlock]) -> None:
        has_rows, rows = self._rows(blocks)
        self._replace(rows, [])
        self._has_rows, self._continues, self._drawn = has_rows, False, []
        self._due = -math.inf  # the unfinished block is off the screen

    def _rows(self, blocks: Iterable[MarkdownBlock]) -> tuple[bool, list[Row]]:
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


class TerminalLines:
    """Lines typed at a terminal."""

    is_terminal = True

    def __init__(self, history_file: Path | None = None) -> None:
        """Keep the history in `history_file`, by default in the user's state folder."""
        self._session: PromptSession[str] = PromptSession(history=_open_history(history_file or _history_file()))
        self._questions: PromptSession[str] = PromptSession(history=InMemoryHistory(), enable_open_in_editor=True)

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line, or the answer to `question`; None for Ctrl-D.

        Ctrl-X Ctrl-E opens $EDITOR for an answer.
        """
        asked = self._questions if question else self._session
        try:
            return await asked.prompt_async(FormattedText([("bold", question or "you> ")]), default=text)
        except EOFError:
            return None


class PipedLines:
    """Lines of a file or pipe.

    Each line is read in a daemon thread: a pipe without input must block neither the event loop nor the program's exit.
    """

    is_terminal = False

    def __init__(self, source: TextIO) -> None:
        self._source = source

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line without its line end, None at the end. Nobody reads the question in a file or pipe."""
        del question, text
        line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        threading.Thread(target=_read_into, args=(self._source, line), daemon=True).start()
        text = await line
        return text.rstrip("\r\n") if text else None


def standard_input_lines() -> LineReader:
    """Return the reader for standard input: with editing if standard input and output are terminals."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalLines()
    return PipedLines(sys.stdin)


def _read_into(source: TextIO, line: asyncio.Future[str]) -> None:
    text = ""
    failure: Exception | None = None
    try:
        text = source.readline()
    except (OSError, ValueError) as error:
        failure = error
    with suppress(RuntimeError):  # the loop is closed: nothing waits for the line any more
        line.get_loop().call_soon_threadsafe(_deliver, line, text, failure)


def _deliver(line: asyncio.Future[str], text: str, failure: Exception | None) -> None:
    if line.done():
        return
    if failure is None:
        line.set_result(text)
    else:
        line.set_exception(failure)


def _history_file() -> Path:
    return platformdirs.user_state_path("throughline", appauthor=False) / "chat_history"


def _open_history(path: Path) -> History:
    """Return a history stored in `path`, readable for the user alone. If that fails, keep it in memory only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("ab"):
            return FileHistory(path)
    except OSError:
        return InMemoryHistory()


WIDTH_WITHOUT_TERMINAL = 120
USUAL_WIDTH = 80  # of a terminal that says it has no columns
WIDEST = 110


class _PipeConsole(Console):
    """Console that raises BrokenPipeError if its reader is gone, instead of exiting in the middle of a task."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "The reader of the output is gone.")


class Screen:
    """Standard output and standard error as consoles.

    Escape sequences and control characters are removed from each `str`, and no `str` is read as markup.
    """

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `out` and `err`, by default the process's standard streams. `clock` returns seconds."""
        self.is_terminal = (out or sys.stdout).isatty()
        if width is None and not self.is_terminal:
            width = WIDTH_WITHOUT_TERMINAL
        self._out = _PipeConsole(file=out, width=width, highlight=False, theme=THEME)
        self._err = _PipeConsole(file=err, stderr=err is None, width=width, highlight=False)
        for console in (self._out, self._err):
            if console.width < 1:
                console.width = USUAL_WIDTH
        self._mid_line = False
        is_drawn = self.is_terminal and self._out.color_system is not None and not self._out.no_color
        self._answer = LiveAnswer(self._out, widest=WIDEST, clock=clock) if is_drawn else None

    @property
    def width(self) -> int:
        """Largest width of a drawing in columns."""
        return min(self._out.width, WIDEST)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line of the result. At a terminal, a line that is too long is wrapped between words."""
        shown = printable(text)
        is_too_wide = self.is_terminal and cell_len(shown) > self._out.width
        lines = wrapped(shown, width=self._out.width) if is_too_wide else [shown]
        self.draw(Text("\n".join(lines), style=style))

    def draw(self, drawing: RenderableType) -> None:
        """Print a table or a drawing to standard output. Its texts must have no control characters.

        At a terminal, lines that are too long are wrapped between words; for a file or pipe, a text keeps its lines.
        """
        self.end_line()
        self._out.print(drawing, soft_wrap=isinstance(drawing, Text) and not self.is_terminal)

    def write(self, text: str) -> None:
        """Print a piece of an answer as it arrives: as Markdown at a terminal with colours, else as it is."""
        shown = printable(text)
        if self._answer is not None:
            self._answer.write(shown)
        elif shown:
            self._out.out(shown, end="", highlight=False)
            self._out.file.flush()
            self._mid_line = not shown.endswith("\n")

    def catch_up(self) -> None:
        """Draw the end of an answer that was written too soon after the last drawing."""
        if self._answer is not None:
            self._answer.catch_up()

    def end_line(self) -> None:
        """Start a new line unless the output is at the start of one. An answer that was being written is over."""
        if self._answer is not None:
            self._answer.finish()
        if self._mid_line:
            self._mid_line = False
            self._out.out("", highlight=False)

    def note(self, text: str, *, command: str = "") -> None:
        """Print a dimmed remark to standard error. `command` is for copying and stays on one line."""
        whole = f"· {printable(text)} {printable(command)}".rstrip()
        if command and self._err.is_terminal and cell_len(whole) > self._err.width:
            self._print([*self._lines(f"· {printable(text)}"), f"  {printable(command)}"], style="dim")
        else:
            self._print(self._lines(whole), style="dim")

    def note_age(self, age: ReplicaAge | None) -> None:
        """Remark how old the data of an answer may be; nothing for None, data of the primary."""
        if age is None:
            return
        lacks = "the newest changes" if age.as_of is None else f"changes after {to_the_second(age.as_of)}"
        self.note(f"a replica of the database answered: {lacks} may be missing")

    def warn(self, text: str) -> None:
        """Print a remark to standard error that is not to be overlooked."""
        self._print(self._lines(f"· {printable(text)}"), style="yellow")

    def error(self, text: str) -> None:
        """Print an error as one paragraph."""
        self._print(self._lines(f"Error: {' '.join(printable(text).split())}"), style="red")

    def _lines(self, text: str) -> list[str]:
        """Return the text wrapped for a terminal; for a file or pipe, it stays on one line."""
        return wrapped(text, width=self._err.width) if self._err.is_terminal else [text]

    def _print(self, lines: Iterable[str], *, style: str) -> None:
        """Print the lines to standard error, above what is still unfinished of an answer."""
        if self._answer is None:
            self.end_line()
        else:
            self._answer.hide()
        self._err.print(Text("\n".join(lines), style=style), soft_wrap=True)
        if self._answer is not None:
            self._answer.draw()


def tolerate_any_character() -> None:
    """Let standard streams replace characters that cannot be encoded or decoded, instead of raising an error."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
