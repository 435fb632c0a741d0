"""Questions in a user's message: the sentences that ask for something, and the words with which people ask.

Turns look up what `questions_of` returns. The search before a turn leaves ASKING_WORDS out, other searches weigh them
less, and the offline model tells questions from statements by them.
"""

import re
from itertools import islice

FIRST_WORDS = 6
READ_CHARACTERS = 8_000
"""Characters at a message's end in which a question is looked for: below a pasted text stands the question."""

MOST_QUESTION_CHARACTERS = 1_000
SHORT_MESSAGE = 500
"""Characters up to which a whole message is looked up, not only its question."""

MOST_QUESTIONS = 3
"""Most questions of a message that are looked up, each by a search of its own."""

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

_GENERAL = """
    a about again all already also am an and another any anybody anyone anything are as ask at back bad be been being
    best better big bit both bring but by can change check clear come could date day days did different do does doing
    done early easy else enough even ever every everything explain fast few fine first fix for from get getting giving
    go goes going gone good got great had has have hear hello help her here hey hi him his hour how i if in into is it
    its just keep know last late later let like list little ll long longer look lot made make many matter may maybe me
    mean means might mind mine minute minutes moment month more morning most much must my need next nice no none not
    nothing now of off ok okay old on once one ones only open or other our out over own please possible put quick
    quickly re read ready real really right run s same say see set shall she short shorter should simple simpler
    simply slow so some somebody someone something soon sorry start still stop such summarise summarize summary sure t
    take tell than thank thanks that the them then there these they thing things think this those three time times to
    today together tomorrow tonight too true try two understand until up us use used user ve very wait want wants was
    way we week well were while will with without work works would write wrong year yes yesterday yet you your
    alles als also am bist dir helfen hilf kannst meinst übersetzen an auch auf bei besser bitte da danke das dein
    deine den der die dies du ein eine einen er es etwas fertig ganz genau geht gerade gut guten habe heute hier ich
    ihr im in ist ja jetzt kann klar können könntest kürzer machen mal mehr mein mich mir mit morgen nein nicht noch
    nochmal nun nur oder schon sein sich sicher sie sind so spät stimmt tag tun uhr und uns von weiter wetter wir
    wirklich zeit zu
    a ahora algo ayudar está estás estas bien bueno como con de día el en es esta este gracias hola hora hoy la las lo
    los más me mi no otra otro para pero por puedes que quieres se seguro si sí sin son su tal te tiempo tu un una
    vale y ya yo
    à au aujourd ça comment va vas vous aide aider avec bien bonjour ce cela de des du elle en encore est et faire
    heure hui il je jour la le les lui ma maintenant mais me merci moi mon ne non nous on oui pas peux pouvez pour
    prêt que se si sûr ta temps toi ton tu un une
    你好 你好吗 现在几点 几点了 现在几点了 今天几号 谢谢"""
GENERAL_WORDS = QUESTION_WORDS | ASKING_WORDS | frozenset(_GENERAL.split())
"""Words that may stand in a text about anything."""

_NEARBY = """
    ai answer assistant bot details english example examples format french funny german human idea joke kind log logs
    mistake name new news option options output part point problem progress question questions reason robot spanish
    spell spelling step steps table task text translate weather word words number"""
SMALL_TALK_WORDS = GENERAL_WORDS | frozenset(_NEARBY.split())
"""Words of small talk and commands. A question without any other word is about now, unless it is about the user."""

_FILLER = (
    "yeah yes yep yup no nope ok okay k thanks thank thx you a lot very much so sure noted sounds good great fine cool "
    "nice right well alright hello hi hey there hm hmm perfect got it i see to me that is "
    "ja nein gut danke bitte schön super hallo sí si vale bueno gracias hola oui merci bonjour 好 好的 谢谢 你好"
)
FILLER_WORDS = frozenset(_FILLER.split())
"""Words that carry no information; a sentence of these words alone is filler."""

_PAST = frozenset({"was", "were", "had"})
"""With these a question about a joke or a number is about one of before: `What was the joke?`."""

_OF_USER = re.compile(
    r"\b(?:my|mine|our|ours|(?:did|do|have|had|was|am|were) (?:i|we)|i (?:\w+ )?(?:said|told|mentioned|wanted|asked)|"
    r"mein(?:e[nmrs]?)?|unser\w*|(?:habe?n?|hatten?|war|waren|bin|sind) (?:ich|wir)|mi|nuestr\w+|hemos|habíamos|dij\w+|"
    r"mon|ma|mes|notre|(?:ai|avais|suis|étais)-je|(?:avons|avions|sommes)-nous)\b",
    re.IGNORECASE,
)
"""Shows that a question is about the user, and so perhaps about something said before: `What is my name?`."""

_BEGINNINGS = QUESTION_WORDS | REQUESTS
_CLAUSE_WORDS = frozenset({"when", "where", "why", "how", "what", "which"})
_SUBJECTS = "i you he she it we they the a an my your our his her their this that these those there reminds"
_AFTER_CLAUSE_WORD = frozenset(_SUBJECTS.split())
"""After one of _CLAUSE_WORDS, the beginning of a statement: `When we met, it rained.`, `What a storm!`.

In a question a verb, a noun or a measure stands there: `When did we meet`, `What time`, `How much`.
"""
_SENTENCE = re.compile(r"[^.!?？。！\n]+[.!?？。！]*")
_WORD = re.compile(r"\w+")
_PART = re.compile(
    rf"(?:[,;]? (?:and|und|y|et)|;) (?=(?:{'|'.join(_QUESTION_WORDS.split())}|did|do|does|is|are|has|have)\b)",
    re.IGNORECASE,
)
"""Between two questions of a sentence: `What is the gate code, and who has the key?`"""


def asks(text: str) -> bool:
    """Return whether a sentence of a message asks for something."""
    return bool(_asked_sentences(text))


def questions_of(text: str) -> tuple[str, ...]:
    """Return what to look up for a message: each question in it by itself; none if it asks about nothing said before.

    The only question of a short message is looked up with the rest of the message, which often says what it is about.
    Of more than MOST_QUESTIONS the last are looked up: people explain first and ask in the end.
    """
    parts = [part for sentence in _asked_sentences(text) for part in _PART.split(sentence)]
    if len(parts) == 1 and len(text) <= SHORT_MESSAGE:
        parts = [" ".join(text.split())]
    about = [part[-MOST_QUESTION_CHARACTERS:] for part in parts if _has_subject(part)]
    return tuple(about[-MOST_QUESTIONS:])


def _has_subject(question: str) -> bool:
    """Return whether the question can be about something said before, not only about now or the last answer."""
    words = {found.group().casefold() for found in _WORD.finditer(question)}
    general = GENERAL_WORDS if words & _PAST else SMALL_TALK_WORDS
    return not words <= general or _OF_USER.search(question) is not None


def _asked_sentences(text: str) -> list[str]:
    sentences = _SENTENCE.findall(text[-READ_CHARACTERS:])
    return [" ".join(sentence.split()) for sentence in sentences if _is_question(sentence)]


def begins_asking(sentence: str) -> bool:
    """Return whether the sentence begins like a question or a request, with or without a question mark.

    One that goes on like a statement and ends like one is none.
    """
    words = [found.group().casefold() for found in islice(_WORD.finditer(sentence), FIRST_WORDS)]
    first, second, *_ = (*(word for word in words if word not in POLITE), "", "")
    if first in _CLAUSE_WORDS and second in _AFTER_CLAUSE_WORD and sentence.rstrip()[-1:] in {".", "!"}:
        return False
    return first in _BEGINNINGS or (first in REQUESTS_FOR_SOMEBODY and second in SOMEBODY)


def _is_question(sentence: str) -> bool:
    return sentence.rstrip()[-1:] in {"?", "？"} or begins_asking(sentence)
