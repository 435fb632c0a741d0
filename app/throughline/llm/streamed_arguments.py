"""Patch of LangChain that avoids quadratic time for the arguments of streamed tool calls.

LangChain parses each piece, and all pieces at the end, as possibly incomplete JSON, by removing one character after the
other. One piece of 100 kB that was no JSON blocked the event loop for minutes. LangChain has no option for it. Its
result is not needed here: `assemble_answer.py` joins the raw pieces, and the tool parses its arguments once.
"""

import json
from collections.abc import Callable

from langchain_core.messages import ai
from langchain_core.utils import json as json_utils

MOST_CUT_CHARACTERS = 500
"""Longest text parsed in LangChain's way, which takes a few milliseconds; a longer one must be complete JSON."""

_parse_cut: Callable[..., object] = json_utils.parse_partial_json


def parse_in_linear_time() -> None:
    """Patch LangChain so that long pieces of tool calls are parsed only if they are complete JSON. Idempotent.

    Raises ImportError if LangChain no longer has the function to patch; the patch must then be revised.
    """
    if getattr(ai, "parse_partial_json", None) not in {_parse_cut, _parse}:
        raise ImportError("langchain_core.messages.ai parses arguments in another way than throughline expects")
    setattr(ai, "parse_partial_json", _parse)  # noqa: B010  # the one place that calls it, under another type


def _parse(text: str, *, strict: bool = False) -> object:
    """Return the value of the text. Raises ValueError; LangChain then keeps the piece as unparsable."""
    return _parse_cut(text, strict=strict) if len(text) <= MOST_CUT_CHARACTERS else json.loads(text, strict=strict)
