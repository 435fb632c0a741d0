"""Words with which people withdraw, change or add to what they said before, in several languages."""

import re
from functools import lru_cache

from throughline.context.summaries.fact_subjects import MOST_KNOWN
from throughline.context.summaries.readable_text import words_in

ENDING_WORDS = words_in(
    "forget cancel cancelled canceled dropped withdrawn revoked vergiss abgesagt gestrichen zurückgezogen "
    "zurückgenommen descartado descartada olvida cancelado cancelada anulado anulada retirado retirada annulé retiré"
)
"""Words that say that something no longer holds, such as `cancelled`."""

CHANGE_WORDS = ENDING_WORDS | words_in("""
    not no longer instead rather moved moves changed changes postponed actually correction now wait drop off new
    nicht statt stattdessen doch jetzt nun verschoben verlegt geändert korrektur sondern kein keine neue neuer
    ahora cambio cambió vez ya mejor sino aplazado movido corrección nueva nuevo
    pas plus finalement plutôt maintenant oublie annulée non nouvelle nouveau
    não agora invés esqueça mais invece ora più
    не теперь вместо больше отмена
""")
"""Words with which people withdraw or change a statement, one line per language."""

NEGATIONS = words_in("no not kein keine keinen sin pas sem")
"""Words that end a subject if they stand directly before it: "no reminder"."""

CHANGE_PARTS = words_in("不是 改 而是 取消 不再 更正 不去 撤回 推迟 算了 现在 新的 ではなく 変更 取り消")
"""Words of change in scripts without spaces, as parts of a sentence."""

_CORRECTING = CHANGE_WORDS - NEGATIONS - words_in("not nicht no pas")
"""Words that correct something even in an addition. Negations do not: "I also do not eat nuts"."""

ADDING_WORDS = words_in("""
    also additionally auch ebenfalls ausserdem también además aussi également também anche тоже также
""")
"""Casefolded words with which people add to an earlier statement.

German "also" ("so") counts as well: showing two facts of which one holds is less harmful than showing a true one as
replaced.
"""

_PLACED_ADDING = re.compile(r"\b(?:too|as well)\s*(?:[,.;:!?)]|\Z)|也(?!许)|还(?![是没款钱书])|又", re.IGNORECASE)
"""Words of addition that mean something else in other positions: "too late", "might as well", 也许, 还是."""

MOVED_ON = re.compile(
    r"\bmov(?:e|ed|ing) on(?: to (?:the next|the other|another|other|something)\b|(?= (?:with|and|since|already|now)\b)"
    r"|(?=[,.;:!?)]|\Z))",
    re.IGNORECASE,
)
"""Phrases such as "moved on to the next task", in which the word `moved` changes no earlier statement."""

_DENIED_CHANGE = re.compile(
    r"(?:\b(?:not|never|nicht|no|pas)|n['’]t) (?:been |be |yet |ever |wurde |ha |han |si |se )?"
    r"(?:forget|cancel(?:led|ed)?|dropped|withdrawn|moved|postponed|changed"
    r"|abgesagt|verschoben|geändert|cancelad[oa]|cambiado|olvid(?:es|en|emos|arse)|annulée?|changé)\b"
    r"|\b(?:vergiss|vergesst|vergessen sie)(?: \w{1,20}){0,2} nicht\b|\bn['’]oublie[zs]? (?:surtout )?pas\b",
    re.IGNORECASE,
)

NO_LONGER = re.compile(
    r"\b(?:no longer(?! than)|off the table|called off|fell through|(?:not|nobody|nothing|no one)\b.{0,40}\bany ?more"
    r"|nicht mehr(?! als)|kein\w{0,2} .{0,40}\bmehr|ya no|ne .{0,20} plus)\b|n['’]t .{0,40}\bany ?more\b",
    re.IGNORECASE,
)
"""Phrases that say that something no longer holds."""

_MAY_END = re.compile(
    r"\b(?:is|are|was) off\b|\b(?:takes?|took|taken) over\b(?! \d)|\b(?:decided|voted) against\b"
    r"|\bnot (?:doing|going to)\b|\blass(?:en|e|t)? (?:wir|ich|ihr) (?:bleiben|sein)\b"
    r"|取消|不再|不去|撤回|算了",
    re.IGNORECASE,
)
"""Phrases that often, but not always, say that something has ended. They make a sentence a statement."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


@lru_cache(MOST_KNOWN)
def changes(sentence: str) -> bool:
    """Return whether a sentence has words with which people withdraw or change a statement."""
    words = words_in_order(without_denied_changes(MOVED_ON.sub(" ", sentence)))
    has_word = not CHANGE_WORDS.isdisjoint(words) or any(part in sentence for part in CHANGE_PARTS)
    return has_word or NO_LONGER.search(sentence) is not None


def has_ending_word(sentence: str) -> bool:
    """Return whether a sentence certainly ends something, by one of ENDING_WORDS: "the trip is cancelled"."""
    return not ENDING_WORDS.isdisjoint(words_in_order(without_denied_changes(sentence)))


_FORGETTING_WORDS = words_in("forget vergiss olvida oublie")


@lru_cache(MOST_KNOWN)
def is_ending_something(sentence: str) -> bool:
    """Return whether a sentence says that something does not take place any more, in words that are no small talk."""
    words = words_in_order(without_denied_changes(sentence))
    return _MAY_END.search(sentence) is not None or not (ENDING_WORDS - _FORGETTING_WORDS).isdisjoint(words)


@lru_cache(MOST_KNOWN)
def may_end(sentence: str) -> bool:
    """Return whether a sentence may say that something has ended, is not done, or was taken over by somebody else."""
    has_phrase = NO_LONGER.search(sentence) is not None or _MAY_END.search(sentence) is not None
    return has_phrase or has_ending_word(sentence)


@lru_cache(MOST_KNOWN)
def adds(sentence: str) -> bool:
    """Return whether a sentence adds to an earlier statement, as "too" does, and corrects nothing. Linear time."""
    words = words_in_order(sentence)
    is_added = not ADDING_WORDS.isdisjoint(words) or bool(_PLACED_ADDING.search(sentence))
    return is_added and _CORRECTING.isdisjoint(words) and not any(part in sentence for part in CHANGE_PARTS)


def without_denied_changes(sentence: str) -> str:
    """Return a sentence without denied changes and endings, such as "not moved" and "don't forget"."""
    return _DENIED_CHANGE.sub(" ", sentence)


def words_in_order(text: str) -> list[str]:
    """Return the casefolded words of `text`; of scripts without spaces, each letter."""
    return _WORD.findall(text.casefold())
