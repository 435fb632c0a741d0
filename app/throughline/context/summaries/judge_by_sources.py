"""Judgement of a summary by what it stands for: the messages that the summary model read, and the summary before.

`check_summary` calls it for texts of summary models. Every rule holds only for sources with enough words: a short
conversation may have a short summary. What a word means is not judged.
"""

import re
from collections import Counter
from functools import cache
from itertools import islice

from throughline.context.questions import SMALL_TALK_WORDS

LEAST_SOURCE_WORDS = 20
"""Number of different telling words of the sources, without numbers, from which a summary is judged by them."""

WORDS_PER_WORD, MOST_NEEDED = 40, 5
"""Different words of the sources for each one that a summary needs, and the most that it needs at all."""

SHARED_PERCENT, JUDGED_WORDS = 10, 12
"""Least share of a summary's telling words that the sources must have, too, and the number of them that it takes.

Of the summaries that people and large models wrote of meetings and chats, all but one in a hundred share 20 percent.
"""

LOOP_WORDS, LOOP_PERCENT = 40, 30
"""Length in words from which a text may be a loop, and the share of different groups of words below which it is one."""

STEM_CHARACTERS = 6
"""Number of first letters compared: `allergic` and `allergies` share as many."""

USER_WORDS, USER_SHARED, WORDS_PER_SHARED, KNOWN_PERCENT = 8, 2, 4, 50
"""Number of telling words of users and tools, without numbers, from which what a summary adds is judged by them.

It has to share USER_SHARED with them, or one of WORDS_PER_SHARED if it adds few, unless KNOWN_PERCENT of what it adds
stands in the record: a summary of what an assistant explained may have hardly a word of the question. If it shares
nothing with users, that takes MOST_KNOWN_PERCENT.
"""

TALK_PERCENT, TALK_SHARED_PERCENT, MOST_KNOWN_PERCENT = 50, 40, 75
"""Share of sentences in the voice of a chat from which a text may be talk, and the shares of the words that it adds
from which it is none, because users, or anybody in the record, said them.
"""

LEAST_LISTED = 2
"""Number of items from which a list without a heading may hold nothing but questions."""

READ_CHARACTERS = 400_000
"""Length of the sources that is compared; more is not needed to recognise a text about something else."""

LANGUAGE_WORDS, LANGUAGE_FACTOR = 8, 4
"""Number of function words of a language that make it certain, and the factor by which they outnumber all others."""

LANGUAGE_PERCENT = 12
"""Least share of a text's words that are function words of its language."""

FOREIGN_PERMILLE = 33
"""Share of the record's words from which a language counts as spoken in it, too."""

SCRIPT_LETTERS, SCRIPT_PERCENT = 30, 85
"""Number of letters that makes a text's script certain, and their least share of all its letters."""

REPORTED_SHARE = 0.8
"""Least share of an order's telling words that the sources have, too, if it reports what a user asked for."""

TOO_LITTLE = "It says too little for what it stands for."
NOTHING_SHARED = "No word, name or number of the conversation is in it."
MOSTLY_OTHER = "It is about something else than the conversation."
IN_A_LOOP = "It repeats the same words."
OTHER_LANGUAGE = "It is not in the language of the conversation."
NOT_OF_USERS = "It tells nothing of what users said."
TALK = "It talks to a reader and reports nothing."
ONLY_QUESTIONS = "It asks a question and reports nothing."
ONLY_ORDERS = "It gives orders and tells nothing of the conversation."

_EMPTY_WORDS = """
    user users assistant summary conversation conversations chat discussed discussion discuss discussions talked talking
    talk asked asking asks wants wanted provides provided providing information topic topics various including context
    message messages intent state decisions decision open items section which both being over about into also between
    their they there these those would should could will have been were with from that this what when where
    nutzer assistent zusammenfassung gespräch benutzer usuario asistente resumen conversación utilisateur résumé
    用户 助手 对话 总结 我们 他们 你们 这个 那个 可以 什么"""
_EMPTY = SMALL_TALK_WORDS | frozenset(_EMPTY_WORDS.split())
"""Words that stand in a text about anything, or that any summary may use."""

_HAN = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[^\W_{_HAN}]+|[{_HAN}]+")
_UNSPACED, _LETTERS = re.compile(f"[{_HAN}]"), re.compile(r"[^\W\d_]+")
_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,120}\]|^#{1,4} [^\n]*$", re.MULTILINE)
_OTHER_SPEAKER = re.compile(r"^\[#\d+ (?:tool|calls)[^\n]*+(?:\n(?!\[#)[^\n]*+)*+", re.MULTILINE)
_OF_USERS = re.compile(r"^\[#\d+ (?:user|tool)\b[^\[\]\n]*+\]([^\n]*+(?:\n(?!\[#)[^\n]*+)*+)", re.MULTILINE)
_NOT_SPOKEN = re.compile(
    r"```[^`]*(?:```|\Z)|`[^`\n]*`|\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|«[^»\n]{0,400}»|https?://\S+"
)

NUMBER = re.compile(r"\d+(?:[.,:]\d+)*+")
REPORTED = re.compile(
    r"\b(?:wants?|wanted|asked|asks|requested|requests|prefers?|preferred|said|says|told|insists?|insisted|agreed"
    r"|möchte|wollte|bittet|wünscht|sagte|quiere|pidió|prefiere|dijo|veut|demande|préfère|souhaite)\b",
    re.IGNORECASE,
)
"""Verbs with which a summary reports what somebody wants."""

_ORDER = re.compile(
    r"\A\W*+(?:please |bitte )?(?:(?:you (?:must|should|shall|are to|will|may|can)|(?:the )?assistant (?:must|shall"
    r"|should|is to|has to|will)|always|never|from now on|do not|don['’]t|when(?:ever)? you|make sure|ensure"
    r"|remember to|every (?:answer|reply|response)|du (?:musst|sollst|darfst)|der assistent (?:muss|soll|darf)|ab jetzt"
    r"|immer|niemals|siempre|nunca|debes|el asistente debe|a partir de ahora|toujours|jamais|tu dois|vous devez"
    r"|l['’]assistant doit|désormais)\b|从现在起|你必须|助手必须)",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:always|never|from now on|every|each|whatever|whenever|no matter|at all times|immer|nie|niemals|stets"
    r"|ab jetzt|jede\w*|siempre|nunca|cada|a partir de ahora|toujours|jamais|chaque|désormais)\b"
    r"|从现在起|总是|永远|必须|每",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\b(?:whatever|whenever|when|if|what|no matter)\b[^,.;\n]{0,60}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s++|(?<=[。！？])|\n\s*+")
_ITEM = re.compile(r"^[^\S\n]*+(?:[-*•+|]|\d{1,3}[.)])\s", re.MULTILINE)
_OPEN_LABEL = re.compile(
    r"\b(?:open|unanswered|unresolved|pending|offene?|ungeklärt|abiert[ao]s|ouvertes)\b[^.?\n]{0,40}[:：]",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^#{1,4} \w", re.MULTILINE)
_TALK = re.compile(
    r"\b(?:(?:i|we|you)(?:['’](?:m|re|ll|ve|d)\b| (?:am|are|will|hope|love|think|feel|can|know|just)\b)|let['’]s\b"
    r"|let me\b|feel free\b|thank you\b|(?:dear|our|your|my) (?:dear|friends?|world|stor(?:y|ies)|heart)\b)",
    re.IGNORECASE,
)
"""Words of somebody who speaks to somebody else of the moment."""

_STRUCTURED = re.compile(f"{_HEADING.pattern}|{_ITEM.pattern}", re.MULTILINE)

_SCRIPTS = {
    "Latin": "a-zA-Z\u00c0-\u024f\u1e00-\u1eff",
    "Greek": "\u0370-\u03ff",
    "Cyrillic": "\u0400-\u052f",
    "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff",
    "Indic": "\u0900-\u0dff",
    "Thai": "\u0e00-\u0e7f",
    "Hangul": "\uac00-\ud7af",
    "Han": _HAN,
}
_SCRIPT_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
LETTERS_PER_SIGN = {"Han": 3, "Hangul": 2}
"""Letters for which a character of a script counts that writes a word with fewer of them."""

_FUNCTION_WORDS = {
    "English": "the of and is was were that with for has have are by from not be which they will this",
    "German": "der das und ist nicht mit von für wird wurde hat ein eine einen dem den zu auf sich auch wurden soll",
    "Spanish": "el los las una por para con fue más como su sus pero está ha se y que del",
    "French": "les une est pour dans avec qui pas sur et au aux ce été sont il elle des du que",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}


def why_unlike_sources(text: str, sources: set[str], record: str, *, has_guidance: bool = False) -> str:
    """Return why `text` cannot stand for `record` and the summary before it, '' if it can.

    `sources` are the telling words of both. `has_guidance`: a user asked for something of the text, which may be
    another language, a single word or the numbers alone.
    """
    if not has_guidance and is_other_language(text, record):
        return OTHER_LANGUAGE
    if is_orders_only(text, sources):
        return ONLY_ORDERS
    words = telling_words(_TAG.sub(" ", text))
    shared = len(words & sources)
    if not shared:
        return NOTHING_SHARED if words else TOO_LITTLE
    if not has_guidance and len(words) < min(len(sources) // WORDS_PER_WORD, MOST_NEEDED):
        return TOO_LITTLE
    is_other = len(words) >= JUDGED_WORDS and 100 * shared < SHARED_PERCENT * len(words)
    return MOSTLY_OTHER if is_other else ""


def why_unlike_users(text: str, record: str, existing: str) -> str:
    """Return why `text` cannot stand for what users and tools say in `record`, '' if it can.

    Only the words that the `existing` summary does not have are judged: a text may repeat it where nothing new is said.
    """
    said = " ".join(_OF_USERS.findall(record[:READ_CHARACTERS]))
    words, users = telling_words(_TAG.sub(" ", text)) - telling_words(_TAG.sub(" ", existing)), telling_words(said)
    if not users or _likely_language(text) != _likely_language(said):
        return ""
    shared = len(words & users)
    known = 100 * len(words & telling_words(_TAG.sub(" ", record)))
    is_unlike = shared < min(USER_SHARED, len(words) // WORDS_PER_SHARED) and _are_enough(users, USER_WORDS)
    if is_unlike and known < (KNOWN_PERCENT if shared else MOST_KNOWN_PERCENT) * len(words):
        return NOT_OF_USERS
    is_foreign = 100 * shared < TALK_SHARED_PERCENT * len(words) and known < MOST_KNOWN_PERCENT * len(words)
    return TALK if is_foreign and is_talk(text) else ""


def is_talk(text: str) -> bool:
    """Return whether half of the sentences are in the voice of a chat, without citations and quotation marks."""
    sentences = _spoken_sentences(text)
    talked = sum(1 for sentence in sentences if "[#" not in sentence and _TALK.search(_NOT_SPOKEN.sub(" ", sentence)))
    return bool(sentences) and 100 * talked >= TALK_PERCENT * len(sentences)


def is_question(text: str) -> bool:
    """Return whether the text has nothing but questions, and no heading, label or list that calls them open ones."""
    if "[#" in text or _HEADING.search(text) or _OPEN_LABEL.search(text) or len(_ITEM.findall(text)) >= LEAST_LISTED:
        return False
    sentences = _spoken_sentences(text)
    return bool(sentences) and all(sentence.rstrip(" \"'*_”’)").endswith(("?", "？")) for sentence in sentences)


def _spoken_sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(text) if _LETTERS.search(sentence)]


def telling_words(text: str) -> set[str]:
    """Return the beginnings of the different words in `text` that tell something: no function words, no small talk.

    Scripts without spaces are split into pairs of characters.
    """
    found: set[str] = set()
    for word in _WORD.findall(text[:READ_CHARACTERS].casefold()):
        if _UNSPACED.match(word):
            found.update(pair for at in range(max(len(word) - 1, 1)) if (pair := word[at : at + 2]) not in _EMPTY)
        elif word not in _EMPTY and len(word) > 2 - (word.isdigit() or not word.isascii()):
            found.add(word.removesuffix("s")[:STEM_CHARACTERS])
    return found


def is_orders_only(text: str, sources: set[str]) -> bool:
    """Return whether each sentence orders the assistant to do something for good, in words that nobody said.

    A list, a text with sections, and a sentence about what somebody wants report rules that a user gave.
    """
    if _STRUCTURED.search(text):
        return False
    sentences = _spoken_sentences(_TAG.sub(" ", text))
    if not sentences or not all(map(_is_order, sentences)):
        return False
    words = telling_words(_LASTING.sub(" ", _TAG.sub(" ", text))) - _answering_words()
    return len(words & sources) < REPORTED_SHARE * len(words)


@cache
def _answering_words() -> frozenset[str]:
    """Return the telling words of any rule for answers."""
    return frozenset(
        telling_words(
            "answer answers reply replies respond response responses write say tell speak use keep mention avoid"
            " antworten antwort schreiben responder respuesta escribir répondre réponse écrire"
        )
    )


def _is_order(sentence: str) -> bool:
    is_lasting = _ORDER.match(sentence) and _LASTING.search(sentence)
    return bool(is_lasting) and not REPORTED.search(_CLAUSE.sub("", sentence))


@cache
def _spoken_words(language: str) -> frozenset[str]:
    others = (words for name, words in _LANGUAGES.items() if name != language)
    return _LANGUAGES[language].difference(*others)


def has_loop(text: str) -> bool:
    """Return whether a text, or one of its sentences, is a loop."""
    return any(map(is_loop, (text, *_SENTENCE_END.split(text))))


def is_loop(text: str) -> bool:
    """Return whether a long text consists of the same few words again and again."""
    words = text.split()
    if len(words) < LOOP_WORDS:
        return False
    groups = list(zip(words, words[1:], words[2:], strict=False))
    return 100 * len(set(groups)) < LOOP_PERCENT * len(groups)


def is_other_language(text: str, record: str) -> bool:
    """Return whether `text` is certainly in another script or language than what users and assistants say in `record`.

    Code, quotations, headings and the results of tools do not count.
    """
    text = _NOT_SPOKEN.sub(" ", _TAG.sub(" ", text))
    spoken = _NOT_SPOKEN.sub(" ", _TAG.sub(" ", _OTHER_SPEAKER.sub("", record[:READ_CHARACTERS])))
    return _is_other(_scripts(text), _scripts(spoken), SCRIPT_LETTERS, SCRIPT_PERCENT) or _is_other_words(text, spoken)


def _is_other(text: Counter[str], spoken: Counter[str], least: int, percent: int) -> bool:
    if not text or not spoken:
        return False
    (own, size), (other, read) = text.most_common(1)[0], spoken.most_common(1)[0]
    is_certain = size >= least and 100 * size >= percent * text.total()
    is_known = read >= least and 100 * read >= percent * spoken.total()
    return own != other and is_certain and is_known


def _scripts(text: str) -> Counter[str]:
    """Return the letters of each script in `text`."""
    counted = Counter({name: len(letters.findall(text)) for name, letters in _SCRIPT_LETTERS.items()})
    return Counter({name: size * LETTERS_PER_SIGN.get(name, 1) for name, size in counted.items() if size})


def _is_other_words(text: str, spoken: str) -> bool:
    """Return whether the function words of both are certainly of different languages."""
    own, other = _language(text), _language(spoken)
    if not own or not other or own == other:
        return False
    words = Counter(islice((word.casefold() for word in _LETTERS.findall(spoken)), READ_CHARACTERS))
    return 1000 * sum(words[word] for word in _spoken_words(own)) < FOREIGN_PERMILLE * words.total()


def _language(text: str) -> str:
    """Return the language of the function words in `text`; '' if it is not certain, or none of the known ones."""
    words = Counter(word.casefold() for word in _LETTERS.findall(text))
    hits = Counter({name: sum(words[word] for word in _spoken_words(name)) for name in _LANGUAGES})
    (first, most), (_, second) = hits.most_common(2)
    is_certain = most >= LANGUAGE_WORDS and most >= LANGUAGE_FACTOR * second
    return first if is_certain and 100 * most >= LANGUAGE_PERCENT * words.total() else ""


def _likely_language(text: str) -> str:
    """Return the known language that most function words in `text` are of; '' without any."""
    words = Counter(word.casefold() for word in _LETTERS.findall(text))
    hits = Counter({name: sum(words[word] for word in _spoken_words(name)) for name in _LANGUAGES})
    (language, most), *_ = hits.most_common(1)
    return language if most else ""


def words_of_sources(record: str, existing: str) -> set[str]:
    """Return the telling words of both; empty if they are too few to judge a summary by them."""
    words = telling_words(_TAG.sub(" ", record)) | telling_words(_TAG.sub(" ", existing))
    return words if _are_enough(words, LEAST_SOURCE_WORDS) else set()


def _are_enough(words: set[str], least: int) -> bool:
    return sum(not word.isdigit() for word in words) >= least
