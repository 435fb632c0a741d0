"""Output of the command line: results go to standard output, notes and errors to standard error."""

import asyncio
import errno
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from throughline.cli.dependencies import LineReader
from throughline.cli.live_answer import LiveAnswer
from throughline.cli.markdown_view import THEME
from throughline.cli.printable import printable, wrapped


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
        self._is_terminal = (out or sys.stdout).isatty()
        if width is None and not self._is_terminal:
            width = WIDTH_WITHOUT_TERMINAL
        self._out = _PipeConsole(file=out, width=width, highlight=False, theme=THEME)
        self._err = _PipeConsole(file=err, stderr=err is None, width=width, highlight=False)
        for console in (self._out, self._err):
            if console.width < 1:
                console.width = USUAL_WIDTH
        self._mid_line = False
        is_drawn = self._is_terminal and self._out.color_system is not None and not self._out.no_color
        self._answer = LiveAnswer(self._out, widest=WIDEST, clock=clock) if is_drawn else None

    @property
    def width(self) -> int:
        """Largest width of a drawing in columns."""
        return min(self._out.width, WIDEST)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self._is_terminal

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line of the result. At a terminal, a line that is too long is wrapped between words."""
        shown = printable(text)
        is_too_wide = self._is_terminal and cell_len(shown) > self._out.width
        lines = wrapped(shown, width=self._out.width) if is_too_wide else [shown]
        self.draw(Text("\n".join(lines), style=style))

    def draw(self, drawing: RenderableType) -> None:
        """Print a table or a drawing to standard output. Its texts must have no control characters.

        At a terminal, lines that are too long are wrapped between words; for a file or pipe, a text keeps its lines.
        """
        self.end_line()
        self._out.print(drawing, soft_wrap=isinstance(drawing, Text) and not self._is_terminal)

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
