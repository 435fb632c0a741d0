"""Sentences of a text and their importance, for the offline model, judged by simple signs in many languages."""

import re
from collections.abc import Iterator

from throughline.context.summaries.readable_text import sentences_of as sentence_ranges
from throughline.domain.message import Role

INTRODUCTION = "I am Throughline's offline model"
"""Beginning of the offline model's own answers, by which they are recognised and left out of summaries and quotes."""

MAX_CHARACTERS = 300
"""Length to which a sentence is cut."""

STATES = 3
"""Importance from which a sentence states something: a number and a name, or a statement about the speaker."""

_SMALL_TALK = (
    "yeah yes yep yup no nope ok okay k thanks thank thx you a lot very much so sure noted sounds good great fine cool "
    "nice right well alright hello hi hey there hm hmm perfect got it i see to me that is "
    "ja nein gut danke bitte schön super hallo sí si vale bueno gracias hola oui merci bonjour 好 好的 谢谢 你好"
)
"""Words that carry no information; a sentence of these words alone is filler."""

FILLER_WORDS = frozenset(_SMALL_TALK.split())

_DIGIT = re.compile(r"\d")
_NAME = re.compile(r"(?<=[a-zß-ÿ\d,;:] )(?!I\b)[A-ZÀ-ÖØ-Þ]\w|[\w/]\.\w{2}|\w_\w|`")
_FULL_NAME = re.compile(r"(?<=[a-zß-ÿ\d,;:] )[A-ZÀ-ÖØ-Þ][a-zß-ÿ]++ [A-ZÀ-ÖØ-Þ][a-zß-ÿ]")
_OWN = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|ich|mir|mich|mein\w*|wir|uns|unser\w*|yo|me|mi|mis|soy|nos|nuestr\w*|je|mon|ma|mes"
    r"|nous|notre|nos)\b|[我咱]",
    re.IGNORECASE,
)
_TELLING = re.compile(
    r"allerg|alérg|alerg|过敏|decid|agreed|entsch|beschl|acord|决定|定在|\bmust\b|\bmuss\b|\bmüssen\b|\bdebe|必须"
    r"|never|always|\bnie\b|immer\b|nunca|siempre|prefer|rather|lieber|prefier|喜欢|deadline|\bdue\b|until|frist"
    r"|budget|presupuesto|\bnamed?\b|called|heißt|llama\b|名字|birthday|geburtstag|cumpleaños|生日|address|password",
    re.IGNORECASE,
)
"""Words and parts of words, in four languages, that mark what a person wants to be remembered."""

_QUESTION = re.compile(r"[?？][\s\"'”’)]*+\Z")
_WORD = re.compile(r"\w+")


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of `text` in order, each cut to MAX_CHARACTERS."""
    for start, stop in sentence_ranges(text):
        sentence = " ".join(text[start:stop].split())
        if any(map(str.isalnum, sentence)):
            yield sentence[:MAX_CHARACTERS]


def is_question(sentence: str) -> bool:
    """Return whether the sentence ends with a question mark."""
    return bool(_QUESTION.search(sentence[-MAX_CHARACTERS:]))


def is_filler(sentence: str) -> bool:
    """Return whether the sentence consists of small-talk words alone, such as `Yeah.`; a name alone does not."""
    return FILLER_WORDS.issuperset(_WORD.findall(sentence.casefold()))


def worth(sentence: str, role: Role = Role.USER) -> int:
    """Return the importance of a sentence, about -7 to 7: numbers, names and statements about the speaker count.

    Small talk, questions and sentences of the assistant count less.
    """
    signs = (
        2 * bool(_DIGIT.search(sentence)),
        2 * bool(_TELLING.search(sentence)),
        bool(_NAME.search(sentence)),
        bool(_FULL_NAME.search(sentence)),
        bool(_OWN.search(sentence)),
        -3 * is_filler(sentence),
        -2 * is_question(sentence),
        -2 * (role is Role.ASSISTANT),
        -(role is Role.TOOL),
    )
    return sum(signs)
