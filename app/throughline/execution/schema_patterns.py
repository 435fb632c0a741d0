"""Patterns of client-sent JSON schemas: bounds of their size, and matching in time linear in size times text.

The engine takes no limit for the compiled size, so the size is estimated from the text of the pattern.
"""

import re
from collections.abc import Iterable

from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from pydantic_core import ValidationError as NoMatch

MAX_PATTERNS = 20
MAX_PATTERN_CHARACTERS = 200
MAX_PATTERN_SIZE = 300
"""Most characters of a pattern with its counted repetitions, such as `{8}`, written out."""

MAX_SIZE_OF_ALL = 1_000
MAX_MATCHED_CHARACTERS = 10_000

_TOKEN = re.compile(r"\\[xuU]\{[0-9A-Fa-f]*\}|\\.|\{([0-9,\s]*)\}|\(\?[a-zA-Z]*x", re.DOTALL)
"""An escaped character, a counted repetition, or the flag for free spacing."""

_ENDS_OF_REPEATED = tuple(")}?*+")
"""Ends of groups and of repetitions, which a counted repetition after them multiplies."""


class PatternRefused(ValueError):
    """Raised for a pattern that is not supported; the text continues `has a pattern at <place> that`."""


def check_size(pattern: str) -> None:
    """Raise PatternRefused for a pattern that is too large."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternRefused(f"has {len(pattern)} characters; at most {MAX_PATTERN_CHARACTERS} are allowed")
    if pattern_size(pattern) > MAX_PATTERN_SIZE:
        raise PatternRefused(
            f"has more than {MAX_PATTERN_SIZE} characters with its repetitions such as {{8}} written out; lower them, "
            "or use maxLength"
        )


def check_form(pattern: str) -> None:
    """Raise PatternRefused unless the pattern can be matched in linear time."""
    try:
        Matcher(pattern)
    except PatternError as error:
        raise PatternRefused(
            "cannot be matched in linear time: it is no regular expression, or it has look-around, back references or "
            "free spacing"
        ) from error


def check_number(patterns: Iterable[str]) -> str:
    """Return why the patterns of a schema are too many, '' if they are not."""
    different = set(patterns)
    if len(different) > MAX_PATTERNS:
        return f"has {len(different)} different patterns; at most {MAX_PATTERNS} are allowed"
    size = sum(pattern_size(pattern) for pattern in different)
    if size > MAX_SIZE_OF_ALL:
        return (
            f"has patterns of {size} characters with their counted repetitions written out; at most {MAX_SIZE_OF_ALL} "
            "are allowed"
        )
    return ""


def pattern_size(pattern: str) -> int:
    """Return an upper bound of the characters of the pattern with its counted repetitions written out.

    Repetitions of single characters and sets add up. Those of groups and of repetitions multiply the whole, as if all
    were nested.
    Repetitions in a set of characters count, too.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return len(pattern)
    size, factor = len(pattern), 1
    for token in _TOKEN.finditer(pattern):
        bounds = token.group(1)
        if bounds is None:
            continue
        count = max(1, *(_number(bound) for bound in bounds.split(",")))
        if pattern.endswith(_ENDS_OF_REPEATED, 0, token.start()):
            factor *= count
        else:
            size += count
    return size * factor


class Matcher:
    """A compiled pattern. Making one raises PatternError for a pattern that the engine does not know."""

    __slots__ = ("_validator", "size")

    def __init__(self, pattern: str) -> None:
        if any(token.group().startswith("(?") for token in _TOKEN.finditer(pattern)):
            raise PatternError("free spacing would hide repetitions from pattern_size")
        self.size = pattern_size(pattern)
        # The linear engine of pydantic.
        self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))

    def matches(self, text: str) -> bool:
        """Whether the pattern matches somewhere in `text`."""
        try:
            self._validator.validate_python(text)
        except NoMatch:
            return False
        return True


def _number(digits: str) -> int:
    return int("".join(digits.split()) or 0)
