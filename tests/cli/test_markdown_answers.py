"""Answers at a terminal: drawn as Markdown while they arrive, whatever they contain and however they are cut."""

import itertools
import re
from io import StringIO
from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.command_stage import TerminalScreen
from fakes.wire_shapes import RUN_ID, message_out
from throughline.cli.chat.print_answer import AnswerView
from throughline.cli.screen import LARGEST_BLOCK, REDRAW_SECONDS, Screen
from throughline.wire.events import MessageCompleted, MessageDelta, Reset

ANSWER = """\
# Installing the harbour service

The service needs **PostgreSQL 14** and *much* memory; see the
[documentation](https://docs.example.com/install) and `config.toml`. A Vec<T> is <b>no</b> tag.

1. Download the package from the registry, which takes a minute or two.
2. Run it:
   ```sh
   harbour serve
   ```
   - without errors

```python
def harbour(ships: list[str], tides: dict[str, float]) -> None:

    ...
```

| Setting | Default |
|---|---:|
| `port` | 8000 |

> A quotation that is long enough to be wrapped.

[1]: https://example.com/source
![chart](https://example.com/c.png) <https://example.com/auto>
~~old~~
"""
SHOWN = """\
Installing the harbour service

The service needs PostgreSQL 14 and much
memory; see the
documentation
(https://docs.example.com/install) and
config.toml. A Vec<T> is <b>no</b> tag.

  1 Download the package from the
    registry, which takes a minute or
    two.
  2 Run it:
    harbour serve
     • without errors

def harbour(ships: list[str], tides: dic
t[str, float]) -> None:

    ...

 Setting  Default
 ────────────────
 port        8000

▌ A quotation that is long enough to
▌ be wrapped.

[1]: https://example.com/source
!chart (https://example.com/c.png)
<https://example.com/auto>
old"""
PIECES = st.sampled_from([
    *(
        "word ",
        "a",
        "\n",
        "\n\n",
        "- ",
        "* ",
        "1. ",
        "12) ",
        "  ",
        "    ",
        "\t",
        "# ",
        "> ",
        "```",
        "```py\n",
        "~~~\n",
        "`",
    ),
    *(
        "**",
        "_",
        "~~",
        "|",
        "|---|---|\n",
        "| a | b |\n",
        "---\n",
        "===\n",
        "[a](b)",
        "[1]: x\n",
        "<b>",
        "<!--",
        "![x](y)",
    ),
    *("&#x202e;", "&#27;", "<http://a/%1b>", "\\", "日本", "🙂", "\x1b[2J", "\u202e", "\u2028", "x" * 45),
])


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.delenv("NO_COLOR", raising=False)


class Seconds:
    """Clock of the drawing."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(*pieces: str, width: int = 40, seconds: float = 1.0) -> TerminalScreen:
    """Write an answer in these pieces, with this time between them, at a terminal with ten rows."""
    terminal, clock = TerminalScreen(width, 10), Seconds()
    screen = Screen(out=terminal, err=StringIO(), width=width, clock=clock)
    for piece in pieces:
        clock.now += seconds
        screen.write(piece)
    screen.end_line()
    return terminal


def delta(text: str) -> MessageDelta:
    return MessageDelta(message_id=RUN_ID, text=text)


def test_markdown_is_drawn_and_what_it_does_not_know_stays_text() -> None:
    assert "\n".join(drawn(ANSWER).rows) == SHOWN


NESTED = "".join(f"{'  ' * level}- level {level}\n" for level in range(12))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("| cmd | what |\n|---|---|\n| `ps | grep x` | finds x |", [" cmd  what", " ─────", " `ps  grep x` | finds x"]),
        ("> | a | b |\n> |---|---|\n> | 1 | 2 | 3 | | 4 |", ["▌", "▌  a  b", "▌  ─────", "▌  1  2 | 3 | 4", "▌"]),
        ("- | a |\n  |---|\n  | 1 | 2", [" •", "    a", "    ─────", "    1 | 2"]),
        ("```python app/main.py\nx = 1\n\ny = 2\n```", ["python app/main.py", "x = 1", "", "y = 2"]),
        ("- a\n  ~~~ sh in a list\n  ls\n  ~~~", [" • a", "   sh in a list", "   ls"]),
        ('[a](http://u "the title") end', ['a (http://u "the title") end']),
        (NESTED, NESTED.splitlines()),
        ("- " * 12 + "deep", ["- " * 12 + "deep"]),
        (">" * 21 + " deep\n\nafter", [">" * 21 + " deep", "", "after"]),
        ("> " * 19 + "deep", [("> " * 19).strip(), "deep"]),
        ("|a" * 9 + "|\n" + "|-" * 9 + "|\n|b|", ["|a" * 9 + "|", "|-" * 9 + "|", "|b|"]),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_cannot_be_drawn_is_shown_as_text(text: str, rows: list[str], size: int) -> None:
    shown = drawn(*(text[at : at + size] for at in range(0, len(text), size))).rows

    assert [re.sub("─+", "─────", row) for row in shown] == rows


def test_a_table_breaks_long_words_and_cuts_none() -> None:
    shown = "".join(drawn(f"| a | b |\n|---|---|\n| {'x' * 30} | {'y' * 30} |").rows)

    assert (shown.count("x"), shown.count("y")) == (30, 30)


def test_words_are_not_broken_and_long_lines_of_code_only_by_the_terminal() -> None:
    words, code = "harbour " * 60, "path/" * 30
    terminal = drawn(f"{words}\n\n```\n{code}\n```\n", width=100)

    *rows, _, first, second = terminal.rows
    assert " ".join(rows) == words.strip()
    assert max(map(len, rows)) <= 100
    assert first + second == code
    assert code in terminal.written


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_an_answer_in_pieces_looks_like_the_same_answer_at_once(size: int) -> None:
    text = ANSWER * 3

    assert drawn(*(text[at : at + size] for at in range(0, len(text), size))).rows == drawn(text).rows


@given(st.lists(PIECES, max_size=30), st.sampled_from([1.0, 0.03]))
def test_any_text_in_any_pieces_is_drawn_without_control_characters(pieces: list[str], seconds: float) -> None:
    assert drawn(*pieces, seconds=seconds).rows == drawn("".join(pieces)).rows


@pytest.mark.parametrize(
    "text",
    [
        "a&#27;[31mb&#x9b;31m",
        "safe&#x202e;evas &#8294;",
        "[a](<https://x/\x1b]8;;https://y\x07>)",
        "[a](https://x/&#27;]0;t&#7;)",
        "<https://x/%1b%5b2J%07>",
        "[a](https://x/%1b]8;;%07)",
        "`\x1b[31m`\n\n    \x1b[2J\n\n```\x07sh\n\x1b]52;c;x\x07\n```",
        "| \x1b[1A | &#x202d; |\n|---|---|\n| \x9b2J | &#155;2J |",
    ],
)
def test_nothing_in_an_answer_reaches_the_terminal_as_a_command(text: str) -> None:
    written = drawn(text).written

    assert "\x1b]" not in written
    assert not set(written) & set("\x07\x9b\u202d\u202e\u2066")


@pytest.mark.parametrize("width", [5, 9, 41, 79])
def test_rows_of_wide_characters_are_counted_as_the_terminal_breaks_them(width: int) -> None:
    text = "漢字カナ" * 20

    assert "".join(drawn(*f"```\n{text}\n```\nend", width=width).rows) == f"{text}end"


def test_a_terminal_that_says_it_has_no_columns_is_taken_for_a_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    terminal = TerminalScreen(80, 10)
    screen = Screen(out=terminal, err=StringIO())
    screen.write("words\n\n```\ncode\n```\n")
    screen.end_line()
    screen.say("a line")

    assert terminal.rows == ["words", "", "code", "a line"]


def test_numbers_of_a_long_list_stand_below_each_other() -> None:
    rows = drawn(*(f"{n}. item\n" for n in range(8, 102))).rows

    assert rows[:3] == ["  8 item", "  9 item", " 10 item"]
    assert rows[-3:] == [" 99 item", " 100 item", " 101 item"]


def test_text_appears_while_it_arrives() -> None:
    terminal, clock = TerminalScreen(40, 10), Seconds()
    screen = Screen(out=terminal, err=StringIO(), width=40, clock=clock)

    shown = []
    for piece in ("The **har", "bour**\n\n- o", "ne\n- tw", "o\n\n```\nco", "de\nmo", "re"):
        clock.now += 1
        screen.write(piece)
        shown.append(terminal.rows[-1])

    assert shown == ["The **har", " • o", " • tw", "co", "mo", "more"]


def test_small_pieces_are_drawn_together_after_a_while() -> None:
    terminal, clock = TerminalScreen(40, 10), Seconds()
    screen = Screen(out=terminal, err=StringIO(), width=40, clock=clock)

    shown = []
    for piece in "harbour":
        clock.now += REDRAW_SECONDS / 2.5
        screen.write(piece)
        shown.append(terminal.rows[-1])
    screen.write("s")
    screen.catch_up()
    written = terminal.written
    screen.catch_up()

    assert shown == ["h", "h", "h", "harb", "harb", "harb", "harbour"]
    assert terminal.rows == ["harbours"]
    assert terminal.written == written


def test_a_drawing_that_takes_long_is_followed_by_a_rest() -> None:
    clock = itertools.count()
    terminal = TerminalScreen(40, 10)
    screen = Screen(out=terminal, err=StringIO(), width=40, clock=lambda: float(next(clock)))

    for piece in "abcdefgh":
        screen.write(piece)

    assert terminal.rows == ["abcde"]


def test_an_answer_taller_than_the_screen_loses_no_line() -> None:
    row = "| {} | cell |\n"
    table = "| n | b |\n|---|---|\n" + "".join(row.format(n) for n in range(100))
    lines = "".join(f"line {n}\n" for n in range(100))
    items = "".join(f"- item {n}\n" for n in range(100))
    text = f"{table}\n{lines}\n{items}\n```\n{lines}```\n"

    rows = drawn(*text.splitlines(keepends=True)).rows

    assert rows == drawn(text).rows
    assert [int(row.split()[0]) for row in rows if "cell" in row] == list(range(100))
    assert [row for row in rows if row.startswith("line")] == lines.splitlines() * 2
    assert [row for row in rows if "•" in row] == [f" • item {n}" for n in range(100)]


def test_code_and_lists_are_printed_for_good_before_they_end() -> None:
    terminal = TerminalScreen(40, 10)
    ticks = itertools.count(step=0.1)
    screen = Screen(out=terminal, err=StringIO(), width=40, clock=lambda: next(ticks))
    for n in range(50):
        screen.write(f"- item {n}\n")
    screen.write("\n```\n")
    for n in range(50):
        screen.write(f"line {n}\n")

    screen.catch_up()

    assert len(terminal.rows) == 101


def test_a_block_without_end_is_printed_at_last() -> None:
    text = "word " * LARGEST_BLOCK

    terminal = drawn(*(text[at : at + 500] for at in range(0, len(text), 500)))

    assert " ".join(terminal.rows).split() == text.split()


LONG_LINES = "".join(f"word{n} *a* **b**\n" for n in range(LARGEST_BLOCK // 8))


@pytest.mark.parametrize("size", [4999, 10**6])
@pytest.mark.parametrize(
    ("text", "begin"),
    [
        (f"```\n{'`' * 3}x{'A' * LARGEST_BLOCK}{'`' * 5} \n{LONG_LINES}```\n", ""),
        (f"~~~py\n{LONG_LINES}\n\n{LONG_LINES}~~~\n", ""),
        (f"1. Do:\n   ```sh\n{indent(LONG_LINES, '   ')}   ```\n", "   "),
        (f"- Do:\n\n  word\n\n{indent(LONG_LINES, '  ')}\n  # word\n", "  "),
        (f"> {LONG_LINES.replace(chr(10), chr(10) + '> ')}\n", "> "),
        (f"|a|b|\n|-|-|\n{LONG_LINES.replace(' ', '|')}", ""),
        (LONG_LINES, ""),
        (indent(LONG_LINES, "    "), ""),
    ],
)
def test_the_rest_of_a_block_that_is_too_long_goes_on_as_text_until_it_ends(text: str, begin: str, size: int) -> None:
    whole = f"**before**\n\n{text}\nAfter **it**:\n\n- `x`\n"

    rows = drawn(*(whole[at : at + size] for at in range(0, len(whole), size))).rows

    assert rows[:2] + rows[-4:] == ["before", "", "", "After it:", "", " • x"]
    assert re.findall(r"word\d+", " ".join(rows)) == re.findall(r"word\d+", text)
    assert rows[-30].startswith(begin)
    assert rows[-30].rstrip("| ").replace("|", " ").endswith("*a* **b**")


def test_a_remark_stands_above_the_unfinished_block() -> None:
    terminal = TerminalScreen(40, 10)
    screen = Screen(out=terminal, err=terminal, width=40)

    screen.write("done\n\nhalf\nof ")
    screen.note("connection lost, trying again (1)")
    screen.write("a line")
    screen.end_line()

    assert terminal.rows == ["done", "· connection lost, trying again (1)", "", "half", "of a line"]


def test_an_answer_that_starts_again_begins_a_new_text() -> None:
    terminal = TerminalScreen(40, 10)
    view = AnswerView(Screen(out=terminal, err=terminal, width=40))

    for event in (delta("```\nhalf"), Reset(attempt=2), delta("**whole**")):
        view.show(event)
    view.show(MessageCompleted(message=message_out(2)))

    assert terminal.rows == ["half", "· the answer starts again", "whole"]


@pytest.mark.parametrize("setting", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_without_colours_an_answer_stays_as_it_is(setting: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*setting)

    assert drawn(ANSWER, width=400).written == ANSWER


def test_in_a_pipe_an_answer_stays_as_it_is() -> None:
    out = StringIO()
    screen = Screen(out=out, err=StringIO())
    for piece in (ANSWER[:30], ANSWER[30:-1]):
        screen.write(piece)
    screen.end_line()

    assert out.getvalue() == ANSWER
