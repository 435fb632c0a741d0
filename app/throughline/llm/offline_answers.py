"""Answers of the offline model: explicitly requested tool calls, their results, and quotes from its prompt."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from throughline.context.questions import ASKING_WORDS, FILLER_WORDS, QUESTION_WORDS, begins_asking
from throughline.context.summaries.readable_text import sentences_of as sentence_ranges
from throughline.context.summaries.statements import is_filler, is_question
from throughline.context.view.groups import SUMMARY_TAG, SUMMARY_TITLE
from throughline.context.view.placeholder_texts import SEARCH, TAG, undelimited
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, ToolSpec

INTRODUCTION = "I am Throughline's offline model"
"""Beginning of the offline model's own answers, by which they are recognised and left out of summaries and quotes."""

MAX_CHARACTERS = 300
"""Length to which a sentence is cut."""


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of `text` in order, each cut to MAX_CHARACTERS."""
    for start, stop in sentence_ranges(text):
        sentence = " ".join(text[start:stop].split())
        if any(map(str.isalnum, sentence)):
            yield sentence[:MAX_CHARACTERS]


LEAST_WORD = 3
"""Shortest word compared with a question, except numbers and words with a non-ASCII character."""

STEM_CHARACTERS = 6
"""Number of first letters compared: `allergic`, `allergy` and `allergies` share as many."""

ANSWERING_PERCENT = 50
"""Share of a question's words, by their length, that a sentence must contain to answer it."""

_HAN = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[^\W{_HAN}]+|[{_HAN}]")
_TAG = re.compile(r"\[(?:#\d+|memory )[^\[\]\n]{0,80}\]\s*+")
_EMPTY_WORDS = (
    "are were been being did does done has have had can could would should shall will may might must the and for with "
    "about from into that this these those there then than them they their its our ours you your yours his her hers "
    "him she mine not any some all just now knew remembered call called name named comment "
    "ich mir mich mein meine meinen dein deine ist sind bin habe hat heißt der die das den dem "
    "ein eine und für mit von los las una uno por para con mis soy está les des une est mon mes 我 你 的 是 "
    "什 么 吗 了 在 谁 哪 里 怎 几 呢"
)
"""Words that are not compared, because no question is about them."""

_EMPTY = FILLER_WORDS | QUESTION_WORDS | ASKING_WORDS | frozenset(_EMPTY_WORDS.split())


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence and its speaker; `answers` is False if it merely shares a word with the question."""

    who: str
    sentence: str
    answers: bool


def question_in(message: str) -> str:
    """Return the sentences of `message` that ask for something, '' if none does."""
    return " ".join(sentence for sentence in sentences_of(message) if is_question(sentence) or begins_asking(sentence))


def words_of(text: str) -> dict[str, str]:
    """Return the meaningful words of `text` in order, keyed by their stems."""
    words = (word for word in _WORD.findall(text) if word.casefold() not in _EMPTY)
    telling = (word for word in words if len(word) >= LEAST_WORD or word.isdigit() or not word.isascii())
    return {_stem(word): word for word in telling}


def best_quote(question: str, texts: Iterable[tuple[str, str]]) -> Quote | None:
    """Return the sentence of the (speaker, text) pairs that shares most with the question; None if none shares a word.

    The last of equal ones is returned. Questions and replaced facts are not quoted.
    """
    wanted = {stem: len(word) for stem, word in words_of(question).items()}
    best, most = None, 1
    for who, text in texts:
        for sentence in sentences_of(_TAG.sub("", _current_lines(text))):
            weight = sum(wanted.get(stem, 0) for stem in words_of(sentence))
            if weight >= most and not is_question(sentence):
                most = weight
                best = Quote(who, sentence, answers=weight * 100 >= ANSWERING_PERCENT * sum(wanted.values()))
    return best


def _current_lines(text: str) -> str:
    """Return the text without the lines that a summary marks as replaced."""
    return "\n".join(line for line in text.split("\n") if "[#" not in line or "replaced by" not in line)


def _stem(word: str) -> str:
    return word.casefold().removesuffix("s")[:STEM_CHARACTERS]


# Search for the sum that a message asks for, for the offline model.
#
# Dates, ranges, phone numbers, fractions and versions are no sums. A sum in a statement (`Room 4 + 5 are booked`) is
# not asked for.

HEAD_CHARACTERS = 2000
"""Number of characters of a message that are read; a longer message is a paste."""

_OPERAND = r"\d++(?:[.,]\d++)*+[ \t)]*+"
_EXPRESSION = re.compile(
    rf"(?P<sum>[-+( \t]*+{_OPERAND}(?:(?:\*\*|[-+*/%^×÷])[-+( \t]*+{_OPERAND})++)"
    rf"|[-+( \t]*+{_OPERAND}|[-+( \t]++"
)
"""An expression, or else a number, signs or spaces that begin none, which are skipped as a whole."""

_NUMBER = re.compile(r"\d[\d.,]*+")
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*+|[1-9]\d{0,2}+(?:,\d{3})++)(?:\.\d++)?")
_DATE = re.compile(r"(?:\d{4}([-/])\d{1,2}\1\d{1,2}|\d{1,2}([-/])\d{1,2}\2\d{2,4}|24/7)")
_CERTAIN = re.compile(r"[+*^×÷]")
"""Operators that stand between two numbers only in a sum. `-`, `/` and `%` also stand in ranges, dates and shares."""

_ASKED_BEFORE = re.compile(
    r"(?:\bwhat(?:['’]?s| is)|\bhow much is|\bcalculate|\bcompute|\b(?:was|wie ?viel) ist|\b(?:be)?rechne"
    r"|\bcu[aá]nto es|\bcalcula|等于|计算|算)[\s:]*+\Z",
    re.IGNORECASE,
)
_CALCULATE = re.compile(
    r"\b(?:calculate|compute|add|multiply|divide|subtract|solve|evaluate|(?:be)?rechne|addiere|calcula)\b|等于|计算|算",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?;。？！](?=\s|\Z)|[。？！]|\n")
_GOES_ON_BEFORE, _GOES_ON_BEHIND = re.compile(r"[\w.,/:#)-]"), re.compile(r"[\w/:%-]")
"""Characters next to an expression that make it a part of a word, a number or an address."""

_NOTHING_BEHIND = re.compile(r"[\s=?？!.,)]*+(?:please|bitte|por favor|等于多少)?[\s?？!.]*+", re.IGNORECASE)
_SIGNS = str.maketrans({"×": "*", "÷": "/", ",": None})


def sum_in(message: str) -> str:
    """Return the first sum that a message asks for, in the calculator's syntax; '' if it asks for none."""
    head = message[:HEAD_CHARACTERS]
    found = (match for match in _EXPRESSION.finditer(head) if match["sum"])
    return next((sum_text for match in found if (sum_text := _asked(head, match.start("sum"), match.end("sum")))), "")


def _asked(head: str, start: int, stop: int) -> str:
    """Return the expression between the two offsets if it is a sum, '' if it is something else."""
    text = head[start:stop]
    start, stop = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    text, before, behind = text.strip(), head[:start], head[stop:]
    is_part = _GOES_ON_BEFORE.match(before[-1:]) or _GOES_ON_BEHIND.match(behind[:1])
    is_plain = all(_PLAIN_NUMBER.fullmatch(number) for number in _NUMBER.findall(text))
    if is_part or _DATE.fullmatch(text) or not is_plain:
        return ""
    is_whole = bool(_NOTHING_BEHIND.fullmatch(behind)) and _is_asking(before, text)
    is_certain = bool(_CERTAIN.search(text.lstrip("-+( "))) and _is_in_request(before, behind)
    return _balanced(text).translate(_SIGNS) if is_certain or is_whole else ""


def _is_in_request(before: str, behind: str) -> bool:
    """Return whether the sentence around a sum asks for something, or consists of the sum."""
    end = _SENTENCE_END.search(behind)
    start, rest = _SENTENCE_END.split(before)[-1], behind[: end.end() if end else None]
    is_alone = is_filler(start) and bool(_NOTHING_BEHIND.fullmatch(rest))
    asks = is_question(rest) or begins_asking(start) or bool(_CALCULATE.search(start))
    return is_alone or asks


def _is_asking(before: str, text: str) -> bool:
    """Return whether the words before it ask for it, or the message is only a sum: `3 - 2`, but not `10-12`."""
    return bool(_ASKED_BEFORE.search(before)) or (not before.strip() and (" " in text or "(" in text))


def _balanced(text: str) -> str:
    """Return the text without unbalanced brackets around it, which belong to its sentence."""
    surplus = text.count("(") - text.count(")")
    return text[surplus:] if surplus > 0 and text.startswith("(" * surplus) else text[: len(text) + min(surplus, 0)]


ABOUT = f"{INTRODUCTION}: I need no key, run inside the service, and can only quote what I see and call tools."
ADVICE = "Set DEFAULT_LLM and a key for a model that can reason."
MAX_RESULT = 2000
QUESTION_CHARACTERS = 2000
"""Number of characters of a question that are searched for a request for the time; a longer one is a paste."""

_CALL = re.compile(r"^\s*/call\s+([\w.:-]+)\s*(.*)$", re.DOTALL)
_TIME = re.compile(
    r"\b(?:what|which)(?:['’]?s| is)? (?:the )?(?:current )?(?:time|date|day)\b"
    r"(?: (?:is it|is today|today|now|right now|it is)\b|(?=[\s?!.]*+\Z))",
    re.IGNORECASE,
)
_SPEAKERS = {Role.USER: "you said", Role.ASSISTANT: "I said", Role.TOOL: "a tool said"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The offline model's answer: a text, or tool calls."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def reply_to(prompt: Prompt, tools: Sequence[ToolSpec]) -> Reply:
    """Return the reply to the last message of the prompt; the same prompt always gets the same reply.

    If the prompt does not contain the answer and `search_history` is offered, the reply is one call of that tool.
    """
    asked = max((at for at, message in enumerate(prompt.messages) if message.role is Role.USER), default=0)
    message = text_of(prompt.messages[asked].content) if prompt.messages else ""
    results = [result for result in prompt.messages[asked + 1 :] if result.role is Role.TOOL]
    has_searched = any(result.name == SEARCH for result in results) and not _CALL.match(message)
    if results and not has_searched:
        return Reply("\n".join(f"{one.name or 'The tool'} says: {_shortened(text_of(one.content))}" for one in results))
    offered = {tool.name for tool in tools}
    name, arguments = ("", "") if has_searched else _wanted_call(message, offered)
    if name and name not in offered:
        return Reply(f"No tool named {name} is offered to me. Offered: {', '.join(sorted(offered)) or 'none'}.")
    said = "" if name else _answer(prompt, asked, may_search=SEARCH in offered and not has_searched)
    if not name and not said:
        name, arguments = SEARCH, json.dumps({"query": _query(message)}, ensure_ascii=False)
    if name:  # the number of messages makes the id unique while the prompt grows
        return Reply(calls=(ToolCall(f"call_offline_{len(prompt.messages)}", name, arguments),))
    return Reply(said)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}… ({len(text)} characters in all)"


def _wanted_call(question: str, offered: set[str]) -> tuple[str, str]:
    """Return the tool that the question asks for and its arguments; two empty strings if it asks for none."""
    explicit = _CALL.match(question)
    if explicit:
        return explicit[1], explicit[2].strip() or "{}"
    if "current_time" in offered and _TIME.search(question[:QUESTION_CHARACTERS]):
        return "current_time", "{}"
    expression = sum_in(question) if "calculator" in offered else ""
    if expression:
        return "calculator", json.dumps({"expression": expression})
    return "", ""


def _answer(prompt: Prompt, asked: int, *, may_search: bool) -> str:
    """Return the answer to the message at `asked`; '' if the history has to be searched for it first."""
    message = text_of(prompt.messages[asked].content) if prompt.messages else ""
    question = question_in(message[:QUESTION_CHARACTERS])
    is_about = bool(words_of(question))
    quote = best_quote(question, _shown(prompt, asked)) if is_about else None
    if quote and quote.answers:
        return f"What fits your message best:\n- {quote.who}: {quote.sentence}\n\n{_seen(prompt, asked)}"
    if is_about and may_search:
        return ""
    if not is_about and (question or not asked):
        return f"{'' if question else _greeting(message)}{ABOUT} {ADVICE}"
    if not is_about:
        return f"Noted. {_seen(prompt, asked)}"
    has_searched = len(prompt.messages) > asked + 1
    where = f"what I see{', and nothing was found in the history that gives one' if has_searched else ''}"
    closest = f" What comes closest:\n- {quote.who}: {quote.sentence}\n\n" if quote else " "
    return f"I find no answer in {where}.{closest}{_seen(prompt, asked)} {ADVICE}"


def _greeting(message: str) -> str:
    """Return the beginning of the answer to a first message that asks for nothing: a greeting, or a note."""
    return "Noted. " if words_of(message[:QUESTION_CHARACTERS]) else "Hello! "


def _query(message: str) -> str:
    return " ".join(words_of(question_in(message[:QUESTION_CHARACTERS])).values())


def _seen(prompt: Prompt, asked: int) -> str:
    summary = " and a summary of what came before" if _summary(prompt) else ""
    return f"{INTRODUCTION}. I see {asked} earlier message{'' if asked == 1 else 's'}{summary}."


def _shown(prompt: Prompt, asked: int) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of all that the prompt shows, without the message at `asked` and the model's answers."""
    yield "the summary", _summary(prompt)
    for at, message in enumerate(prompt.messages):
        text = text_of(message.content)
        if message.role is Role.TOOL and message.name == SEARCH:
            lines = undelimited(TAG, text).splitlines()
            yield from (("the history", line) for line in lines if INTRODUCTION not in line)
        elif at != asked and INTRODUCTION not in text:
            yield _SPEAKERS[message.role], text


def _summary(prompt: Prompt) -> str:
    """Return the summary from the system message, '' without one."""
    inside = prompt.system.partition(f"{SUMMARY_TITLE}\n")[2].partition(f"<{SUMMARY_TAG}>\n")[2]
    return inside.rpartition(f"</{SUMMARY_TAG}>")[0]
