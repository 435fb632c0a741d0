"""Sentences that ask for something, and the words with which people ask.

Turns look up what `question_of` returns. The search leaves ASKING_WORDS out of a question, and the offline model tells
questions from statements by the same words.
"""

import re
from itertools import islice

FIRST_WORDS = 6
READ_CHARACTERS = 8_000
"""Characters at a message's end in which a question is looked for: those who paste a text ask after it."""

MOST_QUESTION_CHARACTERS = 1_000

_QUESTION_WORDS = """
    who whom whose what when where which why how
    wer wen wem wessen was wann wo welche welcher welches warum wieso wie wieviel
    qué quién cuándo dónde cuál cómo
    quel quelle quand pourquoi où"""
QUESTION_WORDS = frozenset(_QUESTION_WORDS.split())
"""Words with which a question begins, in English, German, Spanish and French.

The French `comment` is not among them, because an English request may begin with it.
"""

_REQUESTS = """
    remind recall find search list quote repeat
    erinnere erinner nenne nenn zeige zeig suche such"""
REQUESTS = frozenset(_REQUESTS.split())
"""Words with which a request for something said before begins.

`remember` is not among them: what follows is more often a fact to keep.
"""

REQUESTS_FOR_SOMEBODY = frozenset({"tell", "show", "give", "look"})
SOMEBODY = frozenset({"me", "us", "up"})
"""Words that make a request of a word of REQUESTS_FOR_SOMEBODY before them: `show me`, `look up`."""

POLITE = frozenset({"please", "and", "but", "so", "ok", "okay", "bitte", "und", "can", "could", "you", "kannst", "du"})
"""Words that may stand before a question or request."""

_SAYING = """
    say says said saying tells told mention mentions mentioned talk talks talked discuss discussed remember
    know think mean ask asked please earlier before again
    sagen sagt sagte gesagt erzählen erzählt erwähnt besprochen erinnern erinnerst weißt gib
    habe hast haben habt hatte hattest hatten hattet nochmal bitte vorher
    dijo dije dijimos dijiste dicho decir recuerda recuerdas recuerdame dime muestra busca has hemos
    habíamos favor antes
    dit disait dire dites rappelle rappelles rappeler souviens montre cherche donne qu'avons-nous avons
    avez avait avions avant
    说过 我们 们说 过什 什么 关于 记得 告诉 之前 请问"""
ASKING_WORDS = REQUESTS | REQUESTS_FOR_SOMEBODY | frozenset(_SAYING.split())
"""Words with which people ask for something said before. In a question they tell nothing about its subject."""

_BEGINNINGS = QUESTION_WORDS | REQUESTS
_SENTENCE = re.compile(r"[^.!?？。！\n]+[.!?？。！]*")
_WORD = re.compile(r"\w+")


def question_of(text: str) -> str:
    """Return the sentences of a message that ask for something; '' if none does, so that nothing is looked up."""
    asked = [sentence for sentence in _SENTENCE.findall(text[-READ_CHARACTERS:]) if _is_question(sentence)]
    return " ".join(" ".join(asked).split())[-MOST_QUESTION_CHARACTERS:]


def begins_asking(sentence: str) -> bool:
    """Return whether the sentence begins like a question or a request, whatever its last sign is."""
    words = [found.group().casefold() for found in islice(_WORD.finditer(sentence), FIRST_WORDS)]
    first, second, *_ = (*(word for word in words if word not in POLITE), "", "")
    return first in _BEGINNINGS or (first in REQUESTS_FOR_SOMEBODY and second in SOMEBODY)


def _is_question(sentence: str) -> bool:
    return sentence.rstrip()[-1:] in {"?", "？"} or begins_asking(sentence)
