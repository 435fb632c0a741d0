from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.cli.printable import moment, one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2qpicture\x1b\\b", "b"),
        ("a\x9b31mb\x7f\x08", "a31mb"),
        ("tab\tand\r\nline", "tab\tand\nline"),
        ("safe\u202eevas", "safeevas"),
        *((f"a{chr(mark)}b", "ab") for mark in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),
        ("\ud800x", "\ufffdx"),
        ("[bold]kept[/bold] 日本 🙂", "[bold]kept[/bold] 日本 🙂"),
    ],
)
def test_escape_sequences_and_controls_are_taken_out_and_the_rest_is_kept(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not any((ord(sign) < 32 and sign not in "\n\t") or 0x7F <= ord(sign) < 0xA0 for sign in printable(text))


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_line_and_no_longer_than_allowed(text: str, limit: int) -> None:
    shown = one_line(text, limit=limit)

    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1


def test_a_time_no_clock_could_show_is_a_dash() -> None:
    assert moment(datetime.fromisoformat("0001-01-01T00:00:00+01:00")) == moment(None) == "–"
