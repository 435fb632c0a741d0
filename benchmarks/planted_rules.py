"""How well standing instructions are recognised, on labelled sentences.

They were written before the rules, by another hand, and are not to be looked at when the rules are worked on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.planted_conversation import stored_message
from benchmarks.replay_data import SAMPLE
from throughline.context.summaries.ledger import extract_ledger
from throughline.domain.ledger import LedgerKind
from throughline.domain.message import Role


@dataclass(frozen=True, slots=True)
class Labelled:
    """A sentence and whether it is a standing instruction, decided when it was written."""

    text: str
    is_standing: bool
    language: str


def read_labelled() -> tuple[Labelled, ...]:
    """Return the labelled sentences; they were written before the rules and without looking at them."""
    lines = (SAMPLE / "standing_instructions.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Labelled(**json.loads(line)) for line in lines)


def recognition_lines(sentences: Sequence[Labelled]) -> list[str]:
    """Return the recognition rate and the precision, over all, in English, and in the other languages."""
    lines = [f"standing instructions on {len(sentences)} labelled sentences:"]
    languages = frozenset(sentence.language for sentence in sentences)
    for title, part in (("all", languages), ("en", frozenset({"en"})), ("other", languages - {"en"})):
        standing = sum(sentence.is_standing for sentence in sentences if sentence.language in part)
        said = [one.is_standing for one in sentences if one.language in part and _is_recognised(one)]
        lines.append(
            f"  {title}: {sum(said)} of {standing} recognised ({sum(said) / standing:.0%}), "
            f"precision {sum(said)} of {len(said)} ({sum(said) / max(len(said), 1):.0%})"
        )
    return lines


def _is_recognised(sentence: Labelled) -> bool:
    entries = extract_ledger((stored_message(1, Role.USER, sentence.text, len),))
    return any(entry.kind is LedgerKind.INSTRUCTION for entry in entries)
