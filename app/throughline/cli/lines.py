"""Reading of input lines: with editing and history at a terminal, line by line from a pipe."""

import asyncio
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from throughline.cli.dependencies import LineReader


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
