import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.tools.built_in import calculator, make_current_time
from throughline.tools.tool import ToolFailed


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17 * 23", "391"),
        ("(17 * 23 + 4) / 5", "79"),
        ("0.1 + 0.2", "0.3"),
        ("-2 ** 2", "-4"),
        ("2^10", "1024"),
        ("6 × 7 − 2 ÷ 1", "40"),
        ("7 // 2 + 7 % 2", "4"),
        ("2 ** -1", "0.5"),
        ("1 ** 999999999", "1"),
        ("sqrt(16) + max(1, 2, 3)", "7"),
        ("round(3.14159, 2)", "3.14"),
        ("round(2.7)", "3"),
        ("floor(pi)", "3"),
        ("  1\n", "1"),
    ],
)
def test_arithmetic_is_calculated(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "not an arithmetic expression"),
        ("1 +", "not an arithmetic expression"),
        ("x = 1", "not an arithmetic expression"),
        ("\x00", "not an arithmetic expression"),
        ("(" * 300, "not an arithmetic expression"),
        ("1" * 501, "at most 500 characters"),
        ("-" * 200 + "1", "nested too deeply"),
        ("1 / 0", "Division by zero"),
        ("0 ** -1", "Division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 99999", "too large"),
        ("1e308 * 10", "too large"),
        ("exp(1000)", "too large"),
        ("(2 ** 4000) * (2 ** 4000)", "too large"),
        ("(-8) ** 0.5", "not a real number"),
        ("sqrt(-1)", "cannot take"),
        ("sqrt(1, 2)", "cannot take"),
        ("round(1, -999999999)", "cannot take"),
        ("max()", "cannot take"),
        ("x + 1", "x is not allowed"),
        ("True", "not allowed"),
        ("'a' * 9", "not allowed"),
        ("1 if 1 else 2", "not allowed"),
        ("2j", "not allowed"),
        ("__import__('os').system('true')", "not allowed"),
        ("(1).__class__", "not allowed"),
        ("[x for x in (1, 2)]", "not allowed"),
        ("1 << 99", "not allowed"),
        ("round(number=1)", "not allowed"),
    ],
)
def test_what_is_no_bounded_arithmetic_is_refused_with_a_reason(expression: str, words: str) -> None:
    with pytest.raises(ToolFailed, match=words):
        calculator(expression)


@given(st.text(alphabet="0123456789.+-*/%()e, abmxsqrtlogfp", max_size=80))
def test_any_text_ends_in_a_number_or_a_reason(expression: str) -> None:
    with contextlib.suppress(ToolFailed):
        assert calculator(expression)


def test_the_time_is_told_in_the_zone_asked_for() -> None:
    current_time = make_current_time(lambda: 1_700_000_000.0)

    assert current_time() == "2023-11-14T22:13:20+00:00 (Tuesday, UTC)"
    assert current_time("Asia/Tokyo") == "2023-11-15T07:13:20+09:00 (Wednesday, Asia/Tokyo)"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "a\x00b", "x" * 5_000])
def test_an_unknown_time_zone_is_refused_with_an_example(zone: str) -> None:
    with pytest.raises(ToolFailed, match="Europe/Berlin"):
        make_current_time(lambda: 0.0)(zone)
