"""How well standing instructions are recognised, on labelled sentences.

They were written before the rules, by another hand, and are not to be looked at when the rules are worked on.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.planted_conversation import DATA, FactKind, Planted, stored_message
from benchmarks.planted_memory import Memory
from benchmarks.planted_table import Rules
from throughline.context.policy import SummaryKind
from throughline.context.summaries.ledger import extract_ledger
from throughline.context.summaries.ledger_text import render_ledger
from throughline.context.summaries.tiers import summary_room
from throughline.domain.ledger import LedgerKind
from throughline.domain.message import Message, Role

EVERYTHING = 1_000_000


@dataclass(frozen=True, slots=True)
class Labelled:
    """A sentence and whether it is a standing instruction, decided when it was written."""

    text: str
    is_standing: bool
    language: str


class RuleWatch:
    """Follows the planted standing instructions of one conversation through its compactions."""

    def __init__(self, planted: Planted, memory: Memory) -> None:
        """Recognise the planted ones, each in the message it stands in."""
        at = {row.position: row for row in planted.messages}
        self._rules = [fact for fact in planted.facts if fact.kind is FactKind.INSTRUCTION]
        self._taken = {fact.position: instructions_in(at[fact.position]) for fact in self._rules}
        self._memory = memory
        self._cursor = self._looked_for = self._kept = self._fitting = 0

    def look(self, cursor: int) -> None:
        """Look at the summary as it is now, if all instructions of the ledger fit their part."""
        self._cursor = cursor
        memory = self._memory
        known = [entry for entry in memory.ledger if entry.kind is LedgerKind.INSTRUCTION]
        alone = render_ledger(known, max_tokens=EVERYTHING, instruction_tokens=EVERYTHING, count=memory.count)
        if memory.count(alone) > summary_room(memory.limit_tokens, SummaryKind.HYBRID).instruction_tokens:
            return
        self._fitting += 1
        self._looked_for += self._recognised()
        self._kept += self._shown()

    def result(self) -> Rules:
        """Return the figures, once the last compaction has been looked at."""
        known = sum(entry.kind is LedgerKind.INSTRUCTION for entry in self._memory.ledger)
        taken = sum(len(texts) for position, texts in self._taken.items() if position <= self._cursor)
        return Rules(
            planted=sum(fact.position <= self._cursor for fact in self._rules),
            recognised=self._recognised(),
            others=known - taken,
            kept=self._shown(),
            looked_for=self._looked_for,
            kept_while_fitting=self._kept,
            fitting=self._fitting,
        )

    def _recognised(self) -> int:
        return sum(bool(texts) and position <= self._cursor for position, texts in self._taken.items())

    def _shown(self) -> int:
        ledger = self._memory.ledger_text()
        before = [texts for position, texts in self._taken.items() if texts and position <= self._cursor]
        return sum(all(text in ledger for text in texts) for texts in before)


def instructions_in(message: Message) -> tuple[str, ...]:
    """Return the standing instructions the ledger takes from the message."""
    return tuple(entry.text for entry in extract_ledger((message,)) if entry.kind is LedgerKind.INSTRUCTION)


def read_labelled() -> tuple[Labelled, ...]:
    """Return the labelled sentences; they were written before the rules and without looking at them."""
    lines = (DATA / "standing_instructions.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Labelled(**json.loads(line)) for line in lines)


def recognition_lines(sentences: Sequence[Labelled]) -> list[str]:
    """Return the recognition rate and the precision, over all, in English, and in the other languages."""
    recognised = [sentence for sentence in sentences if _is_recognised(sentence)]
    lines = [f"standing instructions on {len(sentences)} labelled sentences:"]
    for title, languages in _parts(sentences):
        standing = [sentence for sentence in sentences if sentence.is_standing and sentence.language in languages]
        said = [sentence for sentence in recognised if sentence.language in languages]
        right = sum(sentence.is_standing for sentence in said)
        lines.append(
            f"  {title}: {right} of {len(standing)} recognised ({right / len(standing):.0%}), "
            f"precision {right} of {len(said)} ({right / max(len(said), 1):.0%})"
        )
    return lines


def _parts(sentences: Iterable[Labelled]) -> list[tuple[str, frozenset[str]]]:
    languages = frozenset(sentence.language for sentence in sentences)
    each = [(language, frozenset({language})) for language in sorted(languages - {"en"})]
    return [("all", languages), ("en", frozenset({"en"})), ("other", languages - {"en"}), *each]


def _is_recognised(sentence: Labelled) -> bool:
    return bool(instructions_in(stored_message(1, Role.USER, sentence.text, len)))
