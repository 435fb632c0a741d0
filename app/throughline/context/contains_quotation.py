"""Comparison of a quotation with the text of the message it is said to come from."""

import re

_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,200}+)[\])]?")
_UNCOMPARED = str.maketrans(dict.fromkeys("\"'`*«»‹›‚‘’‛„“”‟＂＇", ""))
_END = " .,;:!?"


def contains_quotation(folded: str, quotation: str) -> bool:
    """Return whether a text, as `fold_text` returns it, contains the quotation.

    Case, white space, quotation marks, and Markdown's marks of emphasis and code are not compared, nor is punctuation
    at the end of the quotation. The parts around an ellipsis must be contained in their order.
    """
    at = 0
    parts = [fold_text(part) for part in _ELLIPSIS.split(quotation)]
    parts[-1] = parts[-1].rstrip(_END)
    for part in parts:
        found = folded.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def fold_text(text: str) -> str:
    """Return the text as quotations are compared: lower case, single spaces, no quotation marks or Markdown marks."""
    return " ".join(text.translate(_UNCOMPARED).casefold().split())
