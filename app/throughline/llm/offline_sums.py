"""Search for the sum that a message asks for, for the offline model.

Dates, ranges, phone numbers, fractions and versions are no sums. A sum in a statement (`Room 4 + 5 are booked`) is not
asked for.
"""

import re

from throughline.context.questions import begins_asking
from throughline.llm.offline_sentences import is_filler, is_question

HEAD_CHARACTERS = 2000
"""Number of characters of a message that are read; a longer message is a paste."""

_OPERAND = r"\d++(?:[.,]\d++)*+[ \t)]*+"
_EXPRESSION = re.compile(
    rf"(?P<sum>[-+( \t]*+{_OPERAND}(?:(?:\*\*|[-+*/%^×÷])[-+( \t]*+{_OPERAND})++)"
    rf"|[-+( \t]*+{_OPERAND}|[-+( \t]++"
)
"""An expression, or else a number, signs or spaces that begin none, which are skipped as a whole."""

_NUMBER = re.compile(r"\d[\d.,]*+")
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*+|[1-9]\d{0,2}+(?:,\d{3})++)(?:\.\d++)?")
_DATE = re.compile(r"(?:\d{4}([-/])\d{1,2}\1\d{1,2}|\d{1,2}([-/])\d{1,2}\2\d{2,4}|24/7)")
_CERTAIN = re.compile(r"[+*^×÷]")
"""Operators that stand between two numbers only in a sum. `-`, `/` and `%` also stand in ranges, dates and shares."""

_ASKED_BEFORE = re.compile(
    r"(?:\bwhat(?:['’]?s| is)|\bhow much is|\bcalculate|\bcompute|\b(?:was|wie ?viel) ist|\b(?:be)?rechne"
    r"|\bcu[aá]nto es|\bcalcula|等于|计算|算)[\s:]*+\Z",
    re.IGNORECASE,
)
_CALCULATE = re.compile(
    r"\b(?:calculate|compute|add|multiply|divide|subtract|solve|evaluate|(?:be)?rechne|addiere|calcula)\b|等于|计算|算",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?;。？！](?=\s|\Z)|[。？！]|\n")
_GOES_ON_BEFORE, _GOES_ON_BEHIND = re.compile(r"[\w.,/:#)-]"), re.compile(r"[\w/:%-]")
"""Characters next to an expression that make it a part of a word, a number or an address."""

_NOTHING_BEHIND = re.compile(r"[\s=?？!.,)]*+(?:please|bitte|por favor|等于多少)?[\s?？!.]*+", re.IGNORECASE)
_SIGNS = str.maketrans({"×": "*", "÷": "/", ",": None})


def sum_in(message: str) -> str:
    """Return the first sum that a message asks for, in the calculator's syntax; '' if it asks for none."""
    head = message[:HEAD_CHARACTERS]
    found = (match for match in _EXPRESSION.finditer(head) if match["sum"])
    return next((sum_text for match in found if (sum_text := _asked(head, match.start("sum"), match.end("sum")))), "")


def _asked(head: str, start: int, stop: int) -> str:
    """Return the expression between the two offsets if it is a sum, '' if it is something else."""
    text = head[start:stop]
    start, stop = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    text, before, behind = text.strip(), head[:start], head[stop:]
    is_part = _GOES_ON_BEFORE.match(before[-1:]) or _GOES_ON_BEHIND.match(behind[:1])
    is_plain = all(_PLAIN_NUMBER.fullmatch(number) for number in _NUMBER.findall(text))
    if is_part or _DATE.fullmatch(text) or not is_plain:
        return ""
    is_whole = bool(_NOTHING_BEHIND.fullmatch(behind)) and _is_asking(before, text)
    is_certain = bool(_CERTAIN.search(text.lstrip("-+( "))) and _is_in_request(before, behind)
    return _balanced(text).translate(_SIGNS) if is_certain or is_whole else ""


def _is_in_request(before: str, behind: str) -> bool:
    """Return whether the sentence around a sum asks for something, or consists of the sum."""
    end = _SENTENCE_END.search(behind)
    start, rest = _SENTENCE_END.split(before)[-1], behind[: end.end() if end else None]
    is_alone = is_filler(start) and bool(_NOTHING_BEHIND.fullmatch(rest))
    asks = is_question(rest) or begins_asking(start) or bool(_CALCULATE.search(start))
    return is_alone or asks


def _is_asking(before: str, text: str) -> bool:
    """Return whether the words before it ask for it, or the message is only a sum: `3 - 2`, but not `10-12`."""
    return bool(_ASKED_BEFORE.search(before)) or (not before.strip() and (" " in text or "(" in text))


def _balanced(text: str) -> str:
    """Return the text without unbalanced brackets around it, which belong to its sentence."""
    surplus = text.count("(") - text.count(")")
    return text[surplus:] if surplus > 0 and text.startswith("(" * surplus) else text[: len(text) + min(surplus, 0)]
