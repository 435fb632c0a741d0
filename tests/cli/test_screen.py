"""What is told beside the results: at a terminal no word is broken, in a pipe no line is."""

from io import StringIO

import pytest
from rich.text import Text

from throughline.cli.printable import printable
from throughline.cli.screen import Screen

LONG = "The service at http://127.0.0.1:8000 did not answer in time. Try again, or look at the log of the service."


class Terminal(StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


def told_at(err: StringIO, *, width: int, command: str = "") -> list[str]:
    Screen(out=StringIO(), err=err, width=width).note(LONG, command=command)
    return printable(err.getvalue()).splitlines()


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_note_and_an_error_break_between_words_at_a_terminal(width: int) -> None:
    err = Terminal()
    Screen(out=StringIO(), err=err, width=width).error(LONG)

    for lines in (told_at(Terminal(), width=width), printable(err.getvalue()).splitlines()):
        assert max(map(len, lines)) <= width
        assert LONG in " ".join(lines)


def test_a_line_of_result_breaks_between_words_at_a_terminal_alone() -> None:
    screen, pipe = Terminal(), StringIO()
    for out in (screen, pipe):
        Screen(out=out, err=StringIO(), width=40).say(f"  1  two  {LONG}")

    lines = printable(screen.getvalue()).splitlines()
    assert lines[0].startswith("  1  two  The service")
    assert max(map(len, lines)) <= 40
    assert pipe.getvalue().splitlines() == [f"  1  two  {LONG}"]


def test_a_drawn_text_breaks_between_words_at_a_terminal_alone() -> None:
    message = Text("#1 user ", style="bold") + Text(f"{LONG}\n    indented words")
    screen, pipe = Terminal(), StringIO()
    for out in (screen, pipe):
        Screen(out=out, err=StringIO(), width=40).draw(message)

    *lines, indented = printable(screen.getvalue()).splitlines()
    assert " ".join(line.rstrip() for line in lines) == f"#1 user {LONG}"
    assert max(map(len, lines)) <= 40
    assert indented == "    indented words"
    assert pipe.getvalue().splitlines() == message.plain.splitlines()


def test_in_a_pipe_a_note_stays_one_line() -> None:
    assert told_at(StringIO(), width=30) == [f"· {LONG}"]


def test_a_command_to_be_copied_is_never_broken() -> None:
    command = "throughline chat --session 00000000-0000-0000-0000-000000000001 --url http://127.0.0.1:8000"

    assert told_at(Terminal(), width=60, command=command)[-1] == f"  {command}"
    assert told_at(Terminal(), width=400, command=command) == [f"· {LONG} {command}"]
