"""Keeps LangChain from spending quadratic time on the arguments of streamed tool calls.

It parses each piece, and all pieces together at the end, as JSON that may be cut, by taking away one character after
the other: one piece of 100 kB that is no JSON stopped the event loop for minutes. It has no option for it. Here nobody
reads what it finds: the answer is put together from the raw pieces (answer.py), and the tool parses its arguments once.
"""

import json
from collections.abc import Callable

from langchain_core.messages import ai
from langchain_core.utils import json as json_utils

MOST_CUT_CHARACTERS = 500
"""Up to here a text is parsed as LangChain does it, which takes some milliseconds; a longer one has to be whole."""

_parse_cut: Callable[..., object] = json_utils.parse_partial_json


def parse_in_linear_time() -> None:
    """Have long pieces of tool calls parsed only if they are whole JSON. Done again, it changes nothing more.

    Raises ImportError where LangChain has no such place any more: then it has to be looked at anew.
    """
    if getattr(ai, "parse_partial_json", None) not in {_parse_cut, _parse}:
        raise ImportError("langchain_core.messages.ai parses arguments in another way than throughline expects")
    setattr(ai, "parse_partial_json", _parse)  # noqa: B010  # the one place that calls it, under another type


def _parse(text: str, *, strict: bool = False) -> object:
    """Return the value of the text. Raises ValueError; LangChain then keeps the piece as one it could not parse."""
    return _parse_cut(text, strict=strict) if len(text) <= MOST_CUT_CHARACTERS else json.loads(text, strict=strict)
