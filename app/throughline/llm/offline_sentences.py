"""The sentences of a text and how much each says, by plain signs that hold in many languages; nothing is understood."""

import re
from collections.abc import Iterator

from throughline.context.summaries.sentences import sentences_of as places_of
from throughline.domain.message import Role

INTRODUCTION = "I am Throughline's offline model"
"""The model's own answers are not worth keeping."""

MAX_CHARACTERS = 300
"""A longer sentence is cut."""

STATES = 3
"""A sentence of this worth states something: a number and a name, or something that a person says of themselves."""

_SMALL_TALK = (
    "yeah yes yep yup no nope ok okay k thanks thank thx you a lot very much so sure noted sounds good great fine cool "
    "nice right well alright hello hi hey there hm hmm perfect got it i see to me that is "
    "ja nein gut danke bitte schön super hallo sí si vale bueno gracias hola oui merci bonjour 好 好的 谢谢 你好"
)
"""What is made of these words alone says nothing."""

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
"""A few words and parts of words that mark what a person wants to be remembered, in four languages."""

_QUESTION = re.compile(r"[?？][\s\"'”’)]*+\Z")
_WORD = re.compile(r"\w+")


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of `text` in order, shortened to what is worth quoting."""
    for start, stop in places_of(text):
        sentence = " ".join(text[start:stop].split())
        if any(map(str.isalnum, sentence)):
            yield sentence[:MAX_CHARACTERS]


def is_question(sentence: str) -> bool:
    """Whether it ends with a question mark."""
    return bool(_QUESTION.search(sentence[-MAX_CHARACTERS:]))


def is_filler(sentence: str) -> bool:
    """Whether the sentence is made of small-talk words alone, such as `Yeah.`; a name alone is none."""
    return FILLER_WORDS.issuperset(_WORD.findall(sentence.casefold()))


def worth(sentence: str, role: Role = Role.USER) -> int:
    """Return how much a sentence says, about -7 to 7: numbers, names and what a person states of themselves count.

    Small talk, questions and what the assistant says count less.
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
