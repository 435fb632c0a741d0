"""Recognition of a user's standing instructions: orders that hold from now on, not for one occasion.

It supplements the summary model, which also names instructions. A clause counts if it contains a word of permanence and
is no report, or if it begins with a permanent form. `find_facts.py` passes it sentences that are neither quoted nor
code.
"""

import re
from collections.abc import Mapping

from throughline.context.summaries.instruction_patterns import PATTERNS
from throughline.context.summaries.word_lists import one_of

SENTENCE_CHARACTERS = 300
"""Longest sentence considered; a longer one is a list, a log or a paste."""

_CLAUSE_END = re.compile(r"[,;，；、。—–()…]+\s*|\s-\s")
_PLAIN = str.maketrans({"’": "'", "*": None, "`": None, "¿": None, "«": None, "»": None})
_WORDS = {name: one_of(words) for name, words in PATTERNS.items()}


def is_standing_instruction(sentence: str, words: Mapping[str, re.Pattern[str]] = _WORDS) -> bool:
    """Return whether a user's `sentence` asks for something permanent; quoted text must be blanked out before."""
    if len(sentence) > SENTENCE_CHARACTERS:
        return False
    plain = " ".join(sentence.translate(_PLAIN).lower().split())
    clauses = [_without_start(words["fillers"], clause) for clause in _CLAUSE_END.split(plain.rstrip(".!?！？ "))]
    orders = [_without_start(words["fillers"], _without_start(words["asks"], clause)) for clause in clauses]
    if plain.endswith(("?", "？")):  # in a question only a polite request can be an order
        orders = [order if order != clause else "" for order, clause in zip(orders, clauses, strict=True)]
    return any(_lasts(order, after, words) for order, after in zip(orders, (*orders[1:], ""), strict=True))


def _without_start(words: re.Pattern[str], clause: str) -> str:
    """Return the clause without all listed words at its beginning."""
    clause = clause.strip(" :")
    while (found := words.match(clause)) is not None:
        clause = clause[found.end() :].lstrip(" :")
    return clause


def _lasts(order: str, following: str, words: Mapping[str, re.Pattern[str]]) -> bool:
    """Return whether a clause is a permanent order; after a condition, the `following` clause is the order."""
    rest = _without_start(words["fillers"], words["lasting"].sub("", words["conditions"].sub("", order)))
    if words["forms"].match(order):
        return not words["moments"].search(rest)
    is_lasting = rest != order or (following and not words["lasting"].sub("", following).strip())  # "…, always"
    if not is_lasting or words["reports"].match(order):
        return False
    main = (following or rest) if words["conditions"].match(order) else (rest or following)
    return bool(main) and not words["reports"].match(main)
