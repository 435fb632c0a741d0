"""Comparison of a quotation with the text of the message it is said to come from."""

import re

_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,200}+)[\])]?")
_UNCOMPARED = str.maketrans(dict.fromkeys("\"'`*«»‹›‚‘’‛„“”‟＂＇", ""))
_END = " .,;:!?"


def contains_quotation(text: str, quotation: str) -> bool:
    """Return whether `text` contains the quotation.

    Case, white space, quotation marks, and Markdown's marks of emphasis and code are not compared, nor is punctuation
    at the end of the quotation. The parts around an ellipsis must be contained in their order.
    """
    folded, at = _folded(text), 0
    parts = [_folded(part) for part in _ELLIPSIS.split(quotation)]
    parts[-1] = parts[-1].rstrip(_END)
    for part in parts:
        found = folded.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _folded(text: str) -> str:
    return " ".join(text.translate(_UNCOMPARED).casefold().split())
