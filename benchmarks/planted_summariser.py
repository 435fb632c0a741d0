"""A summary model that loses facts, keeps small talk instead, misquotes, and forgets the form it was asked for.

It knows the planted facts by their positions, so that it can tell what a request holds; it is told nothing else.
"""

import random
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.planted_conversation import CORRECTION, WITHDRAWAL, Fact, Planted, lines_of, stands
from throughline.context.measure import Count
from throughline.domain.message import text_of
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelParameters, ModelRequest, Usage
from throughline.ports.models import FormatSupport

WINDOW_TOKENS = 16_384
TOKENS_PER_WORD = 2
LEAST_LINE, MOST_LINE = 8, 220
"""Characters of a line of small talk that is worth keeping."""

NAMED_KINDS = (
    *("decision", "deadline", "person", "preference", "value", "identifier", "command", "error"),
    "open question",
)
_MESSAGE = re.compile(r"^\[#(\d+) (?:user|assistant)[^\]\n]*\] (.*(?:\n(?!\[#|</).*)*)", re.MULTILINE)
_HEADS = re.compile(r"^\[#(\d+)(?:-#(\d+))?", re.MULTILINE)
_KEEP = re.compile(r"^KEEP:", re.MULTILINE)
_CHOICE = re.compile(r"^Which of these matter", re.MULTILINE)
_CHOICES = re.compile(r"^\s*(\d+)\. (.*)$", re.MULTILINE)
_MOST_WORDS = re.compile(r"at most ([\d,]+) words")
_MOST_NUMBERS = re.compile(r"at most ([\d,]+) numbers")
_TOLD = re.compile(r"^(- .*\[#(\d+)\])$", re.MULTILINE)
_POSITION = re.compile(r"\[#(\d+)")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")

Row = tuple[int, str, str, str]
"""What may be kept: position, kind, subject, sentence."""


@dataclass(slots=True)
class LossySummariser:
    """Writes summaries, `KEEP:` lines and choices; every field with a probability may be set.

    `kept`: that a fact which it reads stands in its text; `named`: that one of the record is named behind `KEEP:`.
    `invented`: that a quote has a word that was not said. `formless`: that an answer misses the form asked for.
    `reworded`: that a correction has another subject than what it corrects. `weight`: how many times as likely a true
    fact is chosen. For each true fact it takes a sentence of small talk too.
    """

    planted: Planted
    rng: random.Random
    count: Count
    kept: float = 0.8
    named: float = 0.8
    invented: float = 0.1
    formless: float = 0.05
    reworded: float = 1 / 3
    weight: float = 4
    calls: int = 0
    tokens: int = 0
    name: str = "double"
    calibration_key: str = "double"
    address: str = ""
    context_limit: int = WINDOW_TOKENS
    has_known_tokenizer: bool = True
    is_priced: bool = False
    format_support: FormatSupport = FormatSupport.INSTRUCTION

    @property
    def window(self) -> ModelWindow:
        """Return the window of the benchmark."""
        return ModelWindow(self.context_limit, WindowOrigin.TABLE)

    async def ask_window(self) -> None:
        """Ask nobody."""

    def check_parameters(self, parameters: ModelParameters) -> None:
        """Take all."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer as a whole."""
        asked = "\n".join(text_of(message.content) for message in request.prompt.messages)
        text = self.answer(request.prompt.system, asked, request.max_output_tokens or WINDOW_TOKENS)
        self.calls += 1
        self.tokens += self.count(request.prompt.system) + self.count(asked) + self.count(text)
        yield AnswerComplete(text=text, tool_calls=(), usage=Usage(), finish_reason="stop")

    def answer(self, system: str, asked: str, most_tokens: int) -> str:
        """Return what it writes, in at most so many tokens."""
        orders = f"{system}\n{asked}"
        if _CHOICE.search(orders):
            return self._choice(asked, orders, most_tokens)
        record = {int(said[1]): said[2] for said in _MESSAGE.finditer(asked)}
        room = min(_number(_MOST_WORDS, asked) * TOKENS_PER_WORD, most_tokens)
        text = self._narrative(record, asked, room)
        if _KEEP.search(orders):
            text += self._keep_lines(record, most_tokens - self.count(text))
        return text

    def _narrative(self, record: dict[int, str], asked: str, room: int) -> str:
        """Return a line for each fact it happens to keep and one of small talk; no room drops any of them."""
        found = _MESSAGE.search(asked)
        existing = asked[: found.start()] if found else asked
        known = self._holding(self._read(record, lines_of(existing)))
        facts = [(fact.position, _line(fact.position, fact.told)) for fact in known if self._happens(self.kept)]
        told = ((int(line[2]), line[1]) for line in _TOLD.finditer(existing))
        talk = [(at, _line(at, said)) for at, said in self._small_talk(_sentences(record), len(facts))]
        lines = [*facts, *(talk if record else self._small_talk(told, len(facts)))]
        self.rng.shuffle(lines)
        heads = [int(number) for head in _HEADS.findall(asked) for number in head if number] or [1]
        head = f"## State\n- Small talk [#{min(heads)}-#{max(heads)}]."
        return "\n".join((head, *(text for _, text in sorted(self._fitting(lines, room - self.count(head))))))

    def _keep_lines(self, record: dict[int, str], room: int) -> str:
        """Return what stands behind the text: of the record, the facts that hold, and small talk."""
        held = self._holding(self._read(record, ()))
        rows: list[Row] = [
            (fact.position, fact.kind, self._subject(fact), fact.sentence) for fact in held if self._happens(self.named)
        ]
        talk = self._small_talk(_sentences(record), len(rows))
        rows.extend((at, self.rng.choice(NAMED_KINDS), _first_words(said), said) for at, said in talk)
        self.rng.shuffle(rows)
        heading = "\nKEEP:"
        if self._happens(self.formless):
            bullets = [(at, f"* {quote}") for at, _, _, quote in rows] if self._happens(0.5) else []
            heading, lines = heading if bullets else "", bullets
        else:
            lines = [(at, f"{kind} | {subject} | {self._quote(quote)} | #{at}") for at, kind, subject, quote in rows]
        return "\n".join((heading, *(line for _, line in self._fitting(lines, room - self.count(heading)))))

    def _choice(self, asked: str, orders: str, most_tokens: int) -> str:
        """Return numbers of lines, the most important first: true facts are likelier, nothing is certain."""
        if self._happens(self.formless):
            return "I would keep the dates and the names."
        newest = max((int(number) for number in _POSITION.findall(asked)), default=0)
        holding = self._holding([fact for fact in self.planted.facts if fact.position <= newest])

        def chance(line: str) -> float:
            shown = lines_of(line)
            is_true = any(stands(fact.needles, shown) for fact in holding)
            return float(self.rng.random() ** (1 / (self.weight if is_true else 1)))

        ranked = sorted(((chance(line), number) for number, line in _CHOICES.findall(asked)), reverse=True)
        numbers = [(0, number) for _, number in ranked[: _number(_MOST_NUMBERS, orders)]]
        return ", ".join(number for _, number in self._fitting(numbers, most_tokens))

    def _read(self, record: dict[int, str], existing: Sequence[str]) -> list[Fact]:
        """Return the facts that stand in the record where they were said, or in a line of what is summarised."""
        facts = self.planted.facts
        said = {fact.position for fact in facts if fact.sentence in record.get(fact.position, "")}
        return [fact for fact in facts if fact.position in said or stands(fact.needles, existing)]

    def _holding(self, facts: Sequence[Fact]) -> list[Fact]:
        """Leave out what another of these facts takes back."""
        gone = {fact.withdraws for fact in facts}
        return [fact for fact in facts if fact.position not in gone]

    def _small_talk(self, lines: Iterable[tuple[int, str]], number: int) -> list[tuple[int, str]]:
        """Return so many of the lines, of messages in which nothing was planted."""
        planted = {fact.position for fact in self.planted.facts}
        talk = [(at, line) for at, line in lines if at not in planted and LEAST_LINE <= len(line) <= MOST_LINE]
        return self.rng.sample(talk, min(number, len(talk)))

    def _subject(self, fact: Fact) -> str:
        if fact.heading not in {CORRECTION, WITHDRAWAL} or not self._happens(self.reworded):
            return fact.subject
        turned, otherwise = " ".join(reversed(fact.subject.split())), self.planted.script.language["rewordings"]
        return str(self.rng.choice([turned, *otherwise])).replace("{s}", fact.subject)

    def _quote(self, sentence: str) -> str:
        """Return the sentence, or one in which a word was not said."""
        if not self._happens(self.invented):
            return sentence
        word = self.rng.choice(sentence.split())
        return sentence.replace(word, f"{word[1:]}{word[:1]}x", 1)

    def _fitting(self, lines: Iterable[tuple[int, str]], room: int) -> Iterator[tuple[int, str]]:
        for at, line in lines:
            room -= self.count(f"\n{line}") + 1
            if room < 0:
                return
            yield at, line

    def _happens(self, probability: float) -> bool:
        return self.rng.random() < probability


def _number(pattern: re.Pattern[str], orders: str) -> int:
    """Return the number that is allowed; all there are where none is said."""
    found = pattern.search(orders)
    return int(found[1].replace(",", "")) if found else WINDOW_TOKENS


def _sentences(record: dict[int, str]) -> Iterator[tuple[int, str]]:
    return ((at, part.strip()) for at, text in record.items() for part in _END.split(text))


def _first_words(sentence: str) -> str:
    return " ".join(re.findall(r"\w{5,}", sentence)[:2]) or sentence[:12]


def _line(position: int, text: str) -> str:
    return f"- {text} [#{position}]"
