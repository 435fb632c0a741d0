"""Facts found by rules in messages: standing instructions, statements, citations, and what its form makes certain.

Such forms are errors, paths, addresses, identifiers, commands and settings.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from throughline.context.summaries.fact_subjects import subject_key, words_of
from throughline.context.summaries.keep_lines import (
    KeepLine,
    later_statements,
    read_keep_lines,
    taken_facts,
)
from throughline.context.summaries.readable_text import (
    QUOTE_CHARACTERS,
    SCANNED_CHARACTERS,
    one_line,
    one_of,
    own_sentences,
    scanned,
    sentences_of,
    without_pasted_blocks,
    without_quotations,
)
from throughline.context.summaries.statements import has_word, is_statement, stated_facts
from throughline.context.summaries.structured_facts import structured_facts
from throughline.context.summaries.summary_prompt import NOTHING
from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

# Facts from citations: if a line of a summary cites one message alone, the sentence it restates is also kept verbatim.
#
# A model that writes "Ana must not have penicillin [#12]" shows that message 12 matters, even if it does not name it
# below `KEEP:`.

MOST_CITED = 60
"""Most facts taken from one summary."""

LEAST_SHARED = 0.5
"""Share of words that line and sentence must have in common, relative to the shorter of the two."""

_SINGLE = re.compile(r"\[#(\d{1,9})\]")
_HEADING = re.compile(r"#{1,4}\s+(\w+)")
_KINDS = {"decisions": FactKind.DECISION, "open": FactKind.OPEN_QUESTION, "intent": FactKind.PREFERENCE}
"""Sections of a summary and the kind of their facts; facts in other sections, or other languages, are values."""

_TELLER = words_of("user")
"""Words of a line such as `The user: …`, that are not the sentence's own."""


def cited_facts(text: str, lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the restated sentence for each line of a summary that cites exactly one user message.

    It is the sentence of that message which shares most words with the line; none if that is less than LEAST_SHARED, if
    it is a number without a word, or if the line is a copy of what states nothing.
    `lines` are the lines below `KEEP:`. If one of them names the same sentence, it determines the fact's kind and
    subject.
    """
    named = {line.position: line for line in read_keep_lines(lines)}
    said = {message.position: _Said(message) for message in messages if message.role is Role.USER}
    kind = FactKind.VALUE
    found: list[KeptFact] = []
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            kind = _KINDS.get(heading[1].casefold(), FactKind.VALUE)
        places = {int(number) for number in _SINGLE.findall(line)}
        if len(places) == 1 and (read := said.get(places.pop())) is not None:
            found.extend(_facts_of_citations(line, read, kind, named.get(read.message.position)))
        if len(found) >= MOST_CITED:
            break
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class _Said:
    """A message whose sentences are found once for all lines that cite it."""

    message: Message

    @cached_property
    def sentences(self) -> list[str]:
        own = own_sentences(text_of(self.message.content)[:SCANNED_CHARACTERS])
        return [sentence for sentence in own if len(sentence) <= QUOTE_CHARACTERS]


def _facts_of_citations(line: str, said: _Said, kind: FactKind, named: KeepLine | None) -> Iterator[KeptFact]:
    line_words, message = words_of(_SINGLE.sub("", line)), said.message
    shared = {sentence: _shared(line_words, words_of(sentence)) for sentence in said.sentences}
    best = max(shared, key=lambda sentence: shared[sentence], default="")
    is_copied = bool(best) and line_words - _TELLER == words_of(best)
    states = is_statement(best) or best.upper() == best.lower()  # in scripts without capitals names are not known
    if has_word(best) and shared[best] >= LEAST_SHARED and (states or not is_copied):
        is_about = named is not None and _shared(words_of(named.quote), words_of(best)) >= LEAST_SHARED
        kind, subject = (named.kind, named.subject) if named is not None and is_about else (kind, "")
        yield KeptFact(kind, best, message.position, Role.USER, subject, message.author or "", chosen=1)


def _shared(line_words: frozenset[str], words: frozenset[str]) -> float:
    return len(line_words & words) / max(min(len(line_words), len(words)), 1)


# Recognition of a user's standing instructions: orders that hold from now on, not for one occasion.
#
# It supplements the summary model, which also names instructions. A clause counts if it contains a word of permanence
# and is no report, or if it begins with a permanent form. It gets sentences that are neither quoted
# nor code.

# The words by which standing instructions are recognised among other sentences.
#
# `readable_text.py` defines their syntax. Each list covers nine languages in turn; a further language adds its lines.
# Each entry decides about one of the sentences in `tests/context/instruction_sentences.py`, or a test fails.

PATTERNS = {
    # Words that may stand before any order.
    "fillers": """please, and, but, so, thanks, bitte, und, et, mais, por favor, y, per favore, e, пожалуйста, и,
        请, 請""",
    # Beginnings of a request, including one phrased as a question.
    "asks": """can you, could you, would you, will you, you have to, i want you to, i'd like you to, i need you to,
        i'd rather you, make sure, you should, kannst du, könntest du, könnten sie, du sollst,
        du musst, peux-tu, pourrais-tu, pouvez-vous, pourriez-vous, je veux que tu, puedes, podrías,
        me gustaría que, puoi, potresti, você pode, poderia, можешь, можете, не мог бы ты, не могли бы вы, 我希望你,
        能不能""",
    # Beginnings of a clause that reports something.
    "reports": """i, we, he, she, it, you, the, this, that, these, there, my, our, his, her, their, a, never mind,
        …i never, …they never, comes, one thing you, what you don't, error, warning, todo, assert, said, nice, fails,
        …that always, when you're, when you get, when you have, before you start, before you go, ich, er, sie, es,
        wir, man, du, der, die, das, ein, eine, mein*, unser*, dies*, im, am, wie immer, noch, je, j'ai, il, elle, on,
        nous, ils, c'est, ce, cette, le, la, les, un, une, mon, n'ai,
        comme toujours, yo, él, ella, el, los, las, mi, mis, esto, este, esta, ha, hay, habrá, como siempre, se,
        me, lui, lei, lo, gli, mio, mia, questo, questa, ho, non ho, non sono, come sempre, è, ci saranno,
        fallisce, eu, ele, ela, o, os, as, um, uma, meu, minha, isso, fui, foi, tive, há, recebi, haverá,
        como sempre, falha, я, она, мы, это, эта, как всегда, будет, такого, …*ает, …*ают, …*ила, …сказал, 我, 他,
        她, 它, 这, 那, 再说, 会, 彼, 私は, …ました, …です, …います, …えます, …失敗します, …れます""",
    # Parts of clauses that predict or report, unless the clause begins with a word of permanence.
    "predictions": """will never, can never, can always, was never""",
    # Conditions before or in an order that make it permanent.
    "conditions": """whenever, every time, each time, when you, when a, when an, when *ing, when in doubt,
        whatever i, whatever happens,
        if you're not sure, if you don't know, if a, if i say, for the rest of, unless i say otherwise,
        before you, before each, before every, for every, jedes mal, chaque fois que, cada vez que, ogni volta che,
        toda vez que, каждый раз, 每次, 每当""",
    # Words that make an order permanent.
    "lasting": """always, never, from now on, from here on, from this, by default, in future, going forward, ever,
        under no circumstances, at no time, in general, at all times, throughout, until further notice,
        whole project, without asking, without my, no more, must, whole session, all our,
        your answers, your replies, everything you, anything you, in every, every answer, after every, at a time,
        once at most in, of every mail, of every email, of every reply, of every message,
        of every letter, of every report,
        immer, nie, niemals, stets, ab jetzt, ab sofort, von jetzt an, künftig, zukünftig, in zukunft,
        auf keinen fall, grundsätzlich, generell, standardmäßig, bis auf weiteres, ohne meine, ohne rückfrage,
        müssen, jede … braucht, jede … soll, bei jeder, vor jeder, toujours, jamais, à partir de maintenant,
        pour toute la suite, désormais, dorénavant, à l'avenir, par défaut, à chaque fois, en aucun cas, sans mon,
        sans me demander, doivent, chaque … doit, toutes tes, siempre, nunca, de ahora en adelante,
        en el futuro, por defecto, bajo ningún concepto, deben, cada … debe, sempre, non … mai,
        d'ora in, da ora in, da adesso in, in futuro, di default, in nessun caso, senza chieder*, senza il mio,
        devono, ogni … deve, de agora em diante, daqui em diante, no futuro,
        por padrão, em hipótese alguma, sem me perguntar, sem minha, devem, cada … deve, всегда, никогда, отныне,
        впредь, с этого, в будущем, по умолчанию, ни в коем случае, без моего, без спроса, должны, каждый … должен,
        始终, 始終, 永远, 一律, 从现在, 從現在, 从今, 以后, 今后, 务必, 默认, 没有我的同意, 沒有我的同意, 必须,
        不得, 前先问我, 就别, 每个数字都要, 每个日期都要, 总是先, 总是用, 不要再, 统一, 常に, いつも, 必ず, 今後,
        これから, 毎回, 絶対に, 許可な, デフォルト, すべての, 以降""",
    # Beginnings of orders that are permanent by their nature.
    "forms": """call me, my name is, my timezone is, my pronouns are, don't use, don't mention, don't explain,
        don't apologi*, no *s, keep it short, keep your, keep all, keep … under, keep the tone, answer in, reply in,
        write in, respond only, use *s, quote *s, write *s in, write *s with*, round *s, stay under, i want all,
        treat everything, all … should, every … should, every … needs, each … needs, only use, only suggest,
        remember, keep in mind, bear in mind, don't forget that, you must, you may not, you're not allowed,
        don't guess, show every … as, give all *s in, leave … out of every, keep … out of every, sign every mail,
        sign every letter, sign every email, sign every message, house rule, the rule is, avoid, be concise, stick to,
        treat me, address me, speak to me, refer to me, ask before, use british, i don't want any, prefer, assume,
        stop *ing, no need to, nenn mich, sprich mich mit, sprich mich bitte mit, nenne zu jede* … quelle, ich heiße,
        verwende keine, benutze keine, keine emojis, antworte auf, halte dich kurz, duze mich, merk dir, denk daran,
        vermeide, verzichte auf, schreib in, frag mich, hör auf, appelle-moi, je m'appelle, tutoie-moi, n'utilise pas,
        pas d'emojis, réponds en, sois bref, souviens-toi, n'oublie pas que, évite, demande-moi, arrête de, llámame,
        me llamo, sin emojis, responde en, recuerda que, ten en cuenta, evita, trátame, sé breve, deja de, pregúntame,
        chiamami, mi chiamo, non usare, niente emoji, rispondi in, ricorda*, tieni presente, dammi del, chiedimi,
        smettila di, me chame, meu nome é, não use, sem emojis, responda em, lembre-se, tenha em mente, evite,
        seja breve, pare de, pergunte antes, зови меня, меня зовут, не используй, без смайликов, отвечай на, запомни,
        учти, избегай, обращайся ко мне, перестань, спроси меня, 叫我, 不要使用, 别用, 用英文回, 记住, 注意, 避免,
        回答要, …と呼んで, …使わないで, …避けて, …覚えておいて, …以内に""",
    # Words that limit such an order to one occasion.
    "moments": """this, back, worries, thanks, a minute, nicht, demain, mañana, domani, amanhã""",
}


SENTENCE_CHARACTERS = 300
"""Longest sentence considered; a longer one is a list, a log or a paste."""

_CLAUSE_END = re.compile(r"[,;，；、。—–()…]+\s*|\s-\s")
_PLAIN = str.maketrans({"’": "'", "*": None, "`": None, "¿": None, "«": None, "»": None})
_CONTRACTED = (
    ("do not ", "don't "),
    ("you are ", "you're "),
    ("dont ", "don't "),
    ("pls ", "please "),
    ("a partir de ahora ", "de ahora en adelante "),
)
_WORDS = {name: one_of(words) for name, words in PATTERNS.items()}


def is_standing_instruction(sentence: str, words: Mapping[str, re.Pattern[str]] = _WORDS) -> bool:
    """Return whether a user's `sentence` asks for something permanent; quoted text must be blanked out before."""
    if len(sentence) > SENTENCE_CHARACTERS:
        return False
    plain = " ".join(sentence.translate(_PLAIN).lower().split())
    for long, short in _CONTRACTED:
        plain = plain.replace(long, short)
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
    if words["predictions"].search(order) and not words["lasting"].match(order):
        return False
    main = (following or rest) if words["conditions"].match(order) else (rest or following)
    return bool(main) and not words["reports"].match(main)


MOST_SUBJECTS = 12
"""Most subjects of known facts that a summary request names to the model."""


def without_recall_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages from which facts are kept: all but results of recall tools, which repeat earlier messages."""
    return tuple(message for message in messages if message.name not in RECALL_TOOLS)


def named_facts(text: str, lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts of `messages` that a model named in the lines below its text, and those that its text cites."""
    return (*taken_facts(lines, messages), *cited_facts(text, lines, messages))


def facts_of(
    messages: Sequence[Message], named: Sequence[KeptFact], before: Sequence[KeptFact]
) -> tuple[KeptFact, ...]:
    """Return the facts kept from `messages`: those that a model `named`, those that rules find, and changes of either.

    `before` are the facts kept from earlier messages.
    """
    facts = (*named, *found_facts(messages))
    return (*facts, *later_statements((*before, *facts), messages))


_LIST_MARK = re.compile(r"\A[-*•]\s+")
_CITATION = re.compile(r"\s*\[#[^\]\n]{1,80}\]\s*\Z")
_EMPTY_HEADING = re.compile(r"^#{1,4} [^\n]*\n+(?=#{1,4} |\Z)", re.MULTILINE)


def without_kept(text: str, facts: Sequence[KeptFact]) -> str:
    """Return a summary without lines that only repeat a fact or NOTHING, and without empty headings.

    Facts stand in the summary's own part, word for word; in the text they would stand twice. Linear time.
    """
    kept = {_bare(NOTHING), *(_bare(fact.text) for fact in facts)}
    bare = ((line, _bare(_CITATION.sub("", _LIST_MARK.sub("", line.strip())))) for line in text.splitlines())
    lines = [line for line, said in bare if said not in kept]
    return _EMPTY_HEADING.sub("", "\n".join(lines) + "\n").strip()


def _bare(text: str) -> str:
    return one_line(text).casefold().rstrip(".!…")


def subjects_again(facts: Sequence[KeptFact], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return subjects of kept facts whose words occur in the messages, the newest first, at most `MOST_SUBJECTS`."""
    words = {word for message in messages for word in words_of(text_of(message.content)[:SCANNED_CHARACTERS])}
    current = [fact for fact in reversed(facts) if fact.subject and not fact.replaced_by]
    again = dict.fromkeys(fact.subject for fact in current if subject_key(fact.subject) <= words)
    return tuple(islice(again, MOST_SUBJECTS))


def found_facts(messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts that rules find in `messages`, in position order. The time is linear in the text read."""
    ordered = sorted(messages, key=lambda message: message.position)
    return tuple(fact for message in ordered for fact in _of(message))


def _of(message: Message) -> Iterator[KeptFact]:
    author, structured = message.author or "", structured_facts(message)
    if message.role is Role.USER:
        for sentence in standing_instructions(text_of(message.content)):
            yield KeptFact(FactKind.INSTRUCTION, sentence, message.position, author=author)
        known = {fact.text for fact in structured}
        yield from (fact for fact in stated_facts(message) if fact.text not in known)
    for fact in structured:
        is_tracked = fact.kind is FactKind.VALUE
        passed_over = 0 if message.role is Role.USER else 1
        yield replace(fact, author=author, subject=fact.subject if is_tracked else "", passed_over=passed_over)


def standing_instructions(text: str) -> tuple[str, ...]:
    """Return the sentences of a user's text that ask for something permanent, each once."""
    return tuple(dict.fromkeys(_instructions(scanned(text))))


def _instructions(text: str) -> Iterator[str]:
    """Yield the standing instructions among the user's own sentences; quoted text does not count."""
    visible = without_pasted_blocks(text)
    masked = without_quotations(visible)
    for start, stop in sentences_of(masked):
        if is_standing_instruction(masked[start:stop]):
            yield one_line(visible[start:stop], QUOTE_CHARACTERS)
