"""Statements in a user's own words that are kept by rule, without a model: their kind and importance.

A statement has a number, a name, or words with which people say what they want, prefer, decide or may not do. Small
talk and questions have less. The offline model chooses its sentences by the same importance. English, German, Spanish
and French are known in full; other languages by numbers and names.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from throughline.context.questions import FILLER_WORDS, begins_asking
from throughline.context.summaries.change_words import changes, is_ending_something
from throughline.context.summaries.fact_subjects import MOST_KNOWN
from throughline.context.summaries.readable_text import (
    QUOTE_CHARACTERS,
    SCANNED_CHARACTERS,
    one_of,
    own_sentences,
    told_sentences,
    words_in,
)
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

STATES = 2
"""Importance from which a sentence states something to keep."""

IMPORTANCE_CHOICES, SHORT_CHARACTERS = 4, 60
"""Choices of a model that a fact's importance counts for, and characters up to which length costs a fact nothing."""

MOST_OF_MESSAGE, MOST_PASTED = 20, 8
"""Most statements kept from one message, and of these from text pasted into it."""

NUMBER_WORDS = words_in("""
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half quarter dozen percent
    first second third fourth fifth sixth seventh eighth ninth tenth
    zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig hundert tausend prozent halb erste zweite dritte
    dos tres cuatro cinco seis siete ocho nueve diez doce veinte cien mil primer primera segundo tercero
    deux trois quatre cinq sept huit neuf dix douze vingt cent mille premier deuxième troisième
""")
_KINDS = {
    FactKind.DECISION: """decid*, decision:, agreed, settled on, go* with, we chose, chosen, entschied*, entscheid*,
        beschlossen, beschliess*, einigten, acord*, décid*, 决定, 定在""",
    FactKind.LIMIT: """at most, at least, no more than, no less than, no fewer than, no longer than, longer than, must,
        may not, not allowed, not be allowed, forbid*, not exceed, maximum, minimum, limit, limits, limited, cap of,
        cannot, can't … before, can't … after, can't hire, allows, up to, only, within, room for, older than, closes,
        holds, stops at, need at, above, höchstens, mindestens, müssen, muss, darf, dürfen, verboten, grenze,
        nicht mehr als, como máximo, al menos, debe*, no puede*, límite, prohib*, au plus, au moins, doit, doivent,
        interdit*, 必须, 最多, 至少, 不得, 不能超过""",
    FactKind.GOAL: """goal, goals, aim, aims, objective, target, want to, wants to, i'd like to, we'd like to,
        would like to, plan to, plan is to, plans to, planning to, hope to, hopes to, trying to, intend* to, need to,
        needs to, have to get, has to get, working toward*, dream is, idea is, going to, we are after, ziel, wollen,
        möchte*, vorhaben, hoffe, objetivo, quiero, queremos, quisiera, espero, pienso, objectif, je veux, nous voulons,
        voudrais, espère, 目标, 想要, 希望, 打算, 计划""",
    FactKind.PREFERENCE: """prefer*, favourite, favorite, favour, favor, love, hate, hates, enjoy, rather, i like,
        we like, i don't like, i do not like, dislike*, fond of, keen on, can't stand, happiest, easier on,
        appreciate, hard to, cat person, dog person, any day, usually, i find, i'd pick, always take, bothers me,
        allerg*, vegetarian, vegan, diabet*, celiac,
        coeliac, intoleran*, autis*, asthma*, pregnan*, lieber, am liebsten, ich mag, wir mögen, hasse,
        bevorzug*, prefiero, me gusta*,
        me encanta, odio, préfère, j'aime, déteste, alérgic*, 喜欢, 讨厌, 过敏, 更愿意""",
    FactKind.DEADLINE: """deadline, due, until, by the end, by monday, by tuesday, by wednesday, by thursday, by friday,
        by january, by february, by march, by april, by may, by june, by july, by august, by september, by october,
        by november, by december, frist, bis zum, bis ende, bis montag, bis freitag, plazo, antes de*, échéance,
        avant le, 截止, 期限""",
}
_RELATIONS = """sister, brother, wife, husband, partner, mother, father, mum, mom, dad, daughter, son, cousin,
    friend, boss, manager, coach, colleague, neighbour, neighbor, doctor, lawyer, landlord, teacher, dog, cat, customer,
    client, supervisor, trainer*, provider, competitor, cto, ceo, cfo, lead, schwester, bruder, frau, mann, mutter,
    vater, tochter, sohn, freund, freundin, chef, chefin, kollege, kollegin, ärztin, arzt, hund, katze, kunde,
    kundin, hermana, hermano, esposa, marido, madre, padre, hija, hijo, amiga, amigo, jefe, jefa, médico, perro,
    gato, cliente, sœur, frère, femme, mari, mère, père, fille, fils, ami, amie, médecin, chien, chat, 姐姐, 妹妹,
    哥哥, 弟弟, 妻子, 丈夫, 医生"""
_PEOPLE = one_of(_RELATIONS)
"""Words for people and animals: with a name beside them, or as somebody's own, the sentence is about a person."""

_OWN_PEOPLE = re.compile(
    r"\b(?:my|our|mein\w*|unser\w*|mis?|nuestr[oa]s?|mon|ma|mes|nos) (?:\w+ )?(?:" + _PEOPLE.pattern + ")"
)
_STATE_VERBS = re.compile(
    r"\b(?:is|are|has|works?|lives?|studies|plays|was born|ist|sind|hat|arbeitet|wohnt|es|tiene|trabaja|vive|est"
    r"|travaille)\b"
)
_SELF = one_of("""i am a, i'm a, i am an, i'm an, i work, i teach, i study, i sing in, i play in, i play the, i live,
    we live, i grew up, i was born, i have a, i have an, i have two, we have a, we have two, my car is, i own,
    i don't eat, i don't drink, i don't smoke, i don't drive, i do not eat, i do not drink, i never eat,
    i never drink, i can't swim, i can't drive, i speak, ich bin, ich arbeite, ich wohne, wir haben, ich esse kein*,
    ich trinke kein*, soy, trabajo, vivo en, tengo un, tengo una, no como, no bebo, je suis, je travaille, j'habite,
    j'ai un, j'ai une""")
"""Phrases with which people describe themselves, without a name or a number."""

_PATTERNS = {kind: one_of(words) for kind, words in _KINDS.items()}
_TELLING = one_of("""named, name, called, heisst, llama, s'appelle, 名字, birthday, geburtstag, cumpleaños, 生日,
    address, password, phone, budget, presupuesto, i live in, i work at, i work as, i am from,
    i'm from, never, always, nie, immer, nunca, siempre, jamais, toujours""")
"""Words of other statements that people want to be remembered."""

_PASSING = one_of("""today, tonight, yesterday, just now, right now, last night, this morning, this evening, this week,
    a bit, these days, lately, anyway, haha*, lol, sorry, thanks, thank you, good morning, good evening, good night,
    weather, raining, tired, sleepy, bored, so far, came back, back to, again, heute, gestern, gerade, danke, wetter,
    müde, hoy, ayer, gracias, cansad*, aujourd'hui, hier, merci, fatigu*, 天气, 谢谢, 今天""")
"""Words of small talk, and of what holds for a moment only."""

_NOT_PASSING = re.compile(
    r"\b(?:from|as of|starting|since|ab|seit|desde|a partir de|dès) (?:today|heute|hoy|aujourd'hui)\b"
    r"|\Asorry, (?=(?:that|it|make|i mis|i meant))"
)
"""Words of _PASSING in what holds from now on, and in a correction."""

_DIGIT = re.compile(r"\d")
_NAME = re.compile(r"(?<=[a-zß-ÿ\d,;] )(?!I\b|I['’])[A-ZÀ-ÖØ-Þ]\w|[\w/]\.\w{2}|\w_\w|\w-\w*\d|`")
_FULL_NAME = re.compile(r"(?<=[a-zß-ÿ\d,;] )[A-ZÀ-ÖØ-Þ][a-zß-ÿ]++ [A-ZÀ-ÖØ-Þ][a-zß-ÿ]")
_OWN = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|ich|mir|mich|mein\w*|wir|uns|unser\w*|yo|me|mi|mis|soy|nos|nuestr\w*|je|mon|ma|mes"
    r"|nous|notre|nos)\b|[我咱]",
    re.IGNORECASE,
)
FEW_LINES, TELLING_FACTOR, LEAST_TELLING = 3, 1.5, 0.2
"""Fewest lines of a text that is judged; two telling lines of three are enough; least share returned."""

_CITED = re.compile(r"\[#[^\]\n]{1,80}\]")
_QUESTION = re.compile(r"[?？][\s\"'”’)]*+\Z")
LEAST_WORDS = 3
"""Words, numbers included, below which a statement needs an importance one higher."""

_ORDER = re.compile(
    r"(?:please |ok,? |now |and |bitte ){0,3}(?:translate|explain|sort|summari[sz]e|write|rewrite|show|give|add|fix"
    r"|create|make (?:it|that|this)|convert|compare|draft|check|run|continue|describe|generate|wait|let me know|help"
    r"|try|put|send|print|list|find|look|shorten|format|review|i have a question|same in|only the|übersetze?|erkläre?"
    r"|schreibe?|zeige?|(?:do|did|does|is|are|can|could|would|will|have|has|should|shall|may) (?:i|you|we|they|it))\b",
    re.IGNORECASE,
)
"""Beginning of a request that is done once, or of a question without a question word."""

_FIRST_PERSON = re.compile(
    r"^(?!\w[\w .'’-]{0,40}: ).*\b(?:i|me|my|mine|ich|mir|mich|mein\w*|yo|mi|mis|je|mon|ma|mes)\b", re.IGNORECASE
)
"""In pasted text somebody else speaks of themselves, unless a name stands before it."""

_CLAUSE_END = re.compile(r"[,;–—]\s+|\s-\s|\.\s+")
_CODE = re.compile(
    r"[{}]|^\||(?:\S[,;|]\S[^,;|]*){3}|;\Z|\w\(\)|^[\w.]+ [-+*]?= "
    r"|^(?:SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE) "
)
"""Signs of code, of a query, and of a row of a table."""


_SENTENCE_WORD = re.compile(r"(?<!\S)[\"'“‘(]?(?:[^\W\d_]+|\d)")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{3}")
_WORD = re.compile(r"\w+")


def is_question(sentence: str) -> bool:
    """Return whether the sentence ends with a question mark."""
    return bool(_QUESTION.search(sentence[-QUOTE_CHARACTERS:]))


def is_filler(sentence: str) -> bool:
    """Return whether the sentence consists of small-talk words alone, such as `Yeah.`; a name alone does not."""
    return FILLER_WORDS.issuperset(_WORD.findall(sentence.casefold()))


def has_word(sentence: str) -> bool:
    """Return whether the sentence has a word: a number alone, such as `(10)`, does not say what it counts."""
    return any(map(str.isalpha, sentence))


@lru_cache(MOST_KNOWN)
def kind_of(sentence: str) -> FactKind | None:
    """Return the kind of a statement by its words; None if these say nothing of it."""
    plain = _plain(sentence)
    is_named = bool(_NAME.search(sentence)) and _PEOPLE.search(plain) is not None
    if is_named or (_OWN_PEOPLE.search(plain) and _STATE_VERBS.search(plain)):
        return FactKind.PERSON
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(plain)), None)


def _plain(sentence: str) -> str:
    return " ".join(sentence.casefold().replace("’", "'").split())


def importance(sentence: str, role: Role = Role.USER) -> int:
    """Return the importance of a sentence, from -9 to 11: numbers, names, and words of a kind of statement count.

    Small talk, questions, sentences of the assistant and results of tools count less.
    """
    return _importance(sentence) - 2 * (role is Role.ASSISTANT) - (role is Role.TOOL)


def worth(fact: KeptFact) -> tuple[float, int, int]:
    """Return the sort key of a fact: score for its length, importance, then position.

    The score is the share of model choices for the fact, to which its importance counts like IMPORTANCE_CHOICES further
    ones. Facts longer than SHORT_CHARACTERS score less: they leave less room for others.
    """
    of_words = importance(fact.text, fact.said_by)
    chance = min(max((of_words + 2) / 8, 0.05), 0.95)  # importance 2 states something, and is an even chance
    choices = fact.chosen + fact.passed_over + IMPORTANCE_CHOICES
    length = max(len(fact.text), SHORT_CHARACTERS)
    score = (fact.chosen + IMPORTANCE_CHOICES * chance) / choices * (SHORT_CHARACTERS / length) ** 0.25
    return score, of_words, fact.position


@lru_cache(MOST_KNOWN)
def _importance(sentence: str) -> int:
    plain = _plain(sentence)
    has_number = bool(_DIGIT.search(sentence)) or not NUMBER_WORDS.isdisjoint(_WORD.findall(plain))
    has_kind = kind_of(sentence) is not None or bool(_TELLING.search(plain))
    signs = (
        2 * has_number,
        2 * has_kind,
        2 * bool(_NAME.search(sentence)),
        bool(_FULL_NAME.search(sentence)),
        bool(_OWN.search(sentence)),
        bool(_SELF.search(plain)),
        changes(sentence),
        is_ending_something(sentence),
        -2 * bool(_PASSING.search(_NOT_PASSING.sub("", plain))),
        -3 * is_filler(sentence),
        -2 * is_question(sentence),
    )
    return sum(signs)


def is_about_speaker(sentence: str) -> bool:
    """Return whether the speaker says something of themselves: "my phone", "we need"."""
    return _OWN.search(sentence) is not None


def telling_share(text: str) -> float:
    """Return TELLING_FACTOR times the share of telling lines, from LEAST_TELLING to 1; 1 below FEW_LINES lines."""
    lines = [_CITED.sub("", line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) < FEW_LINES:
        return 1.0
    return max(min(TELLING_FACTOR * sum(map(tells, lines)) / len(lines), 1.0), LEAST_TELLING)


def tells(sentence: str) -> bool:
    """Return whether a sentence tells something; in scripts without capital letters each does: names are not known."""
    return _importance(sentence) >= STATES or sentence.upper() == sentence.lower()


def stated_facts(message: Message) -> Iterator[KeptFact]:
    """Yield the statements in the user's own sentences and in pasted prose, the most important ones, in their order."""
    text = text_of(message.content)[:SCANNED_CHARACTERS]
    told = dict.fromkeys(said for sentence in told_sentences(text) if (said := statement_in(sentence)))
    own = "\n".join(own_sentences(text))
    spoken = [one for one in told if one in own]
    pasted = [one for one in told if one not in own and not _FIRST_PERSON.search(one)]
    best = {
        *islice(sorted(spoken, key=importance, reverse=True), MOST_OF_MESSAGE),
        *islice(sorted(pasted, key=importance, reverse=True), MOST_PASTED),
    }
    for sentence in told:
        if sentence in best:
            kind = kind_of(sentence) or FactKind.VALUE
            yield KeptFact(kind, sentence, message.position, author=message.author or "", is_unjudged=False)


def statement_in(sentence: str) -> str:
    """Return what a user's sentence states; '' if it states nothing.

    Of a sentence that also asks, it is the clauses before or behind the question: "I'm allergic to nuts, can you …".
    """
    if is_statement(sentence):
        return sentence
    if len(sentence) > QUOTE_CHARACTERS or not _CLAUSE_END.search(sentence):
        return ""
    for clause in _CLAUSE_END.finditer(sentence):
        before, behind = sentence[: clause.start()].strip(), sentence[clause.end() :].strip(" .!")
        if is_statement(before) and is_asking(behind + sentence[-1]):
            return before
        if is_statement(behind) and is_asking(before):
            return behind
    return ""


def is_asking(sentence: str) -> bool:
    """Return whether a sentence asks for something, or only announces what follows."""
    is_request = begins_asking(sentence) or _ORDER.match(sentence) is not None
    return is_request or is_question(sentence) or sentence.endswith((":", "："))


def is_statement(sentence: str) -> bool:
    """Return whether a sentence of a user is kept as a statement.

    Questions, requests, code, a row of a table and a line that only announces what follows are none. Two words state
    something if both tell it: "I'm vegan", "Deadline Friday".
    """
    words = len(_SENTENCE_WORD.findall(sentence))
    is_sentence = words >= LEAST_WORDS or _UNSPACED.search(sentence) is not None
    states = importance(sentence) >= (STATES if is_sentence else STATES + 1)
    is_short = len(sentence) <= QUOTE_CHARACTERS
    return is_short and words + is_sentence > 1 and states and not (is_asking(sentence) or _CODE.search(sentence))
