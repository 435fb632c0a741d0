"""Recognising a user's standing instructions: orders that hold from now on, not for one thing once.

A net below the model, which names the instructions it reads by itself. `instruction_patterns.py` has the
words. `ledger.py` asks this of each sentence that is the user's own, neither quoted nor code.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from throughline.context.summaries.instruction_patterns import PATTERNS

SENTENCE_CHARACTERS = 300
"""A longer sentence is a list, a log or a paste, and no instruction."""

_CLAUSE_END = re.compile(r"[,;，；、。—–()…]+\s*|\s-\s")
_PLAIN = str.maketrans({"’": "'", "*": None, "`": None, "¿": None, "«": None, "»": None})


def is_standing_instruction(sentence: str) -> bool:
    """Whether a user's `sentence` asks for something lasting; what it quotes should be blanked out before."""
    return _RECOGNISER.recognises(sentence)


@dataclass(frozen=True, slots=True)
class InstructionRecogniser:
    """Recognises by the lists of `instruction_patterns.py`, each compiled to one expression."""

    fillers: re.Pattern[str]
    asks: re.Pattern[str]
    reports: re.Pattern[str]
    conditions: re.Pattern[str]
    lasting: re.Pattern[str]
    forms: re.Pattern[str]
    moments: re.Pattern[str]

    def recognises(self, sentence: str) -> bool:
        """See `is_standing_instruction`."""
        if len(sentence) > SENTENCE_CHARACTERS:
            return False
        plain = " ".join(sentence.translate(_PLAIN).lower().split())
        clauses = _CLAUSE_END.split(plain.rstrip(".!?！？ "))
        orders = [self._order_in(clause, is_question=plain.endswith(("?", "？"))) for clause in clauses]
        return any(self._lasts(order, following) for order, following in zip(orders, (*orders[1:], ""), strict=True))

    def _order_in(self, clause: str, *, is_question: bool) -> str:
        """Return a clause without the words before its order; '' if it is part of a question that asks for nothing."""
        bare = _without_start(self.fillers, clause)
        order = _without_start(self.asks, bare)
        return "" if is_question and order == bare else _without_start(self.fillers, order)

    def _lasts(self, order: str, following: str) -> bool:
        """Whether a clause, of which the `following` one may be the main clause, is an order that lasts."""
        if self.forms.match(order):
            return not self.moments.search(order)
        if self.reports.match(order) or not (self.lasting.search(order) or self.conditions.search(order)):
            return False
        rest = "" if self.conditions.match(order) else _without_start(self.fillers, self.lasting.sub("", order))
        told = rest or following
        return bool(told) and not self.reports.match(told)


def _without_start(words: re.Pattern[str], clause: str) -> str:
    """Return the clause without the words it begins with, as many as there are."""
    clause = clause.strip(" :")
    while (found := words.match(clause)) is not None:
        clause = clause[found.end() :].lstrip(" :")
    return clause


def recogniser_of(patterns: Mapping[str, str]) -> InstructionRecogniser:
    """Compile lists that are named and written as `PATTERNS` is."""
    compiled = {name: re.compile("|".join(map(_expression, entries_of(words)))) for name, words in patterns.items()}
    return InstructionRecogniser(**compiled)


def entries_of(words: str) -> list[str]:
    """Return the words and phrases of a list."""
    return [entry.strip() for entry in words.replace("\n", ",").split(",") if entry.strip()]


def _expression(entry: str) -> str:
    """Return the regular expression of an entry; scripts that write without spaces have no ends of words."""
    expression = re.escape(entry).replace("…", ".{0,40}").replace(r"\*", r"\w*")
    return expression if entry[-1] > "\u2e80" else rf"(?<!\w){expression}(?![\w-])"


_RECOGNISER = recogniser_of(PATTERNS)
