"""The chat loop. Each line is a message or a command."""

from collections.abc import Awaitable

from throughline.cli.answering import answer, ask_pending
from throughline.cli.chat_commands import run_command
from throughline.cli.chat_state import ChatState
from throughline.cli.dependencies import LineReader
from throughline.domain.errors import ThroughlineError
from throughline.domain.text import clean_text, is_blank


async def chat(state: ChatState, lines: LineReader) -> None:
    """Read and execute lines until the end of input or `/quit`.

    At a terminal, the chat begins with what a waiting turn of its session asks, and an error is printed and the chat
    continues. For lines from a pipe, the first error is raised, because the remaining lines were written for another
    situation.
    """
    if lines.is_terminal:
        state.lines = lines
        await _attempt(state, ask_pending(state))
    while not state.is_over:
        try:
            line = await lines.read()
        except KeyboardInterrupt:
            state.screen.note("/quit or Ctrl-D leaves")
            continue
        if line is None:
            return
        await _attempt(state, take_line(state, clean_text(line)))


async def _attempt(state: ChatState, work: Awaitable[object]) -> None:
    try:
        await work
    except ThroughlineError as error:
        if state.lines is None:
            raise
        state.screen.error(error.detail)


async def take_line(state: ChatState, line: str) -> None:
    """Run the command in a line, or send the line as a message. A blank line does nothing."""
    if is_blank(line):
        return
    if line.startswith("/") and not line.startswith("//"):
        await run_command(state, line)
    else:
        await answer(state, line.removeprefix("/") if line.startswith("//") else line)
