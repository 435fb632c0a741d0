"""The ledger as prompts show it: what of it fits the room, in two parts, and what is said of the rest."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from throughline.context.measure import Count
from throughline.domain.ledger import FACT_KINDS, LedgerEntry, LedgerKind
from throughline.domain.message import Role

INSTRUCTIONS_HEADING = "Standing instructions of the user (verbatim; where two disagree, the later one holds):"
FACTS_HEADING = "Exact facts, newest first:"

LEFT_OUT_NAMED = 8
"""So many positions of left-out instructions are named, the newest."""

MISFITS = 12
"""After so many facts that no longer fit, the rest is not tried."""

TRIES = 6
"""Rounds of rendering with ever less room, for counters that find more in a text than in its lines."""

_NAMES = {
    LedgerKind.PATH: "paths",
    LedgerKind.URL: "urls",
    LedgerKind.IDENTIFIER: "identifiers",
    LedgerKind.NUMBER: "numbers",
    LedgerKind.DATE: "dates",
    LedgerKind.COMMAND: "commands",
    LedgerKind.ERROR: "errors",
}
_FREE_TEXT = frozenset((LedgerKind.ERROR, LedgerKind.COMMAND))
_BACKTICKS = re.compile("`+")
_TAG = re.compile(r"[\[［]\s{0,3}[#＃]")


def render_ledger(entries: Sequence[LedgerEntry], *, max_tokens: int, instruction_tokens: int, count: Count) -> str:
    """Return the ledger as text of at most `max_tokens`, '' where nothing fits.

    Instructions take at most `instruction_tokens`: the newest are kept, shown oldest first, the others named by
    position. Facts take what is left, one line a kind: each kind present may fill an equal part of half the room with
    its newest, then the newest of all kinds fill the rest. What is left out is said.
    """
    counted = _Counted(count, {})
    ordered = sorted(dict.fromkeys(entries), key=lambda entry: entry.position)
    facts = [entry for entry in reversed(ordered) if entry.kind in FACT_KINDS]
    instructions = [entry for entry in ordered if entry.kind is LedgerKind.INSTRUCTION]
    gone = [entry for entry in ordered if entry.kind is LedgerKind.LEFT_OUT]
    first = _fitting(
        min(instruction_tokens, max_tokens), count, lambda room: _instruction_text(instructions, gone, room, counted)
    )
    used = counted(f"{first}\n\n") if first else 0
    second = _fitting(max_tokens - used, count, lambda room: _fact_text(facts, room, counted))
    whole = "\n\n".join(part for part in (first, second) if part)
    return whole if count(whole) <= max_tokens else first


@dataclass(frozen=True, slots=True)
class _Counted:
    """A count that asks once for each line."""

    count: Count
    known: dict[str, int]

    def __call__(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = self.count(text)
        return self.known[text]


def _fitting(room: int, count: Count, make: Callable[[int], str]) -> str:
    """Return what `make` makes of the room, made again with less where the whole counts more than its lines."""
    target = room
    for number in range(TRIES):
        text = make(target) if target > 0 else ""
        tokens = count(text) if text else 0
        if tokens <= room or not text:
            return text
        target = min(target - ((tokens - room) << number), target * room // tokens)
    return ""


def _instruction_text(
    instructions: Sequence[LedgerEntry], gone: Sequence[LedgerEntry], room: int, count: _Counted
) -> str:
    """Return the lines that fit; at the least how many do not. `gone` counts those the ledger no longer has."""
    if not instructions and not gone:
        return ""
    number = len(instructions) + sum(int(entry.text) for entry in gone)
    kept = _kept_instructions(instructions, gone, room, count)
    left_out = [*gone, *(entry for entry in instructions if entry not in kept)]
    closing = [_left_out(left_out, number - len(kept))] if left_out else []
    if kept:
        return "\n".join((INSTRUCTIONS_HEADING, *(_line(entry) for entry in instructions if entry in kept), *closing))
    short = f"({number} standing {_noun(number)} left out)"
    return next((text for text in (f"{INSTRUCTIONS_HEADING}\n{closing[0]}", short) if count(text) <= room), "")


def _kept_instructions(
    instructions: Sequence[LedgerEntry], gone: Sequence[LedgerEntry], room: int, count: _Counted
) -> frozenset[LedgerEntry]:
    """Choose all, or as many as fit beside the line that names the others."""
    kept = _newest_lines(instructions, room, count)
    if len(kept) == len(instructions) and not gone:
        return kept
    most = len(instructions) + sum(int(entry.text) for entry in gone)
    reserve = count(f"{_left_out((*gone, *instructions)[-LEFT_OUT_NAMED - 1 :], most)}\n")
    return _newest_lines(instructions, room - reserve, count)


def _newest_lines(instructions: Sequence[LedgerEntry], room: int, count: _Counted) -> frozenset[LedgerEntry]:
    """Choose the newest that fit together; one that could never fit stands in nobody's way."""
    room -= count(f"{INSTRUCTIONS_HEADING}\n")
    kept: list[LedgerEntry] = []
    left = room
    for entry in reversed(instructions):
        tokens = count(f"{_line(entry)}\n")
        if left < tokens <= room:
            break
        if tokens <= left:
            kept.append(entry)
            left -= tokens
    return frozenset(kept)


def _line(entry: LedgerEntry) -> str:
    return f"- {_without_tags(entry.text)} [#{entry.position}]"


def _left_out(entries: Sequence[LedgerEntry], number: int) -> str:
    places = list(dict.fromkeys(f"[#{entry.position}]" for entry in entries))
    more = "…, " if len(places) > LEFT_OUT_NAMED or number > len(entries) else ""
    return f"({number} older {_noun(number)} left out; see {more}{', '.join(places[-LEFT_OUT_NAMED:])})"


def _noun(number: int) -> str:
    return "instruction" if number == 1 else "instructions"


def _fact_text(facts: Sequence[LedgerEntry], room: int, count: _Counted) -> str:
    room -= count(f"{FACTS_HEADING}\n")
    kept = _chosen(facts, room, count)
    if len(kept) < len(facts):
        kept = _chosen(facts, room - count(f"{_older_facts(len(facts))}\n"), count)
    if not kept:
        return ""
    lines = [FACTS_HEADING, *_lines_of_kinds([fact for fact in facts if fact in kept])]
    if len(kept) < len(facts):
        lines.append(_older_facts(len(facts) - len(kept)))
    return "\n".join(lines)


def _lines_of_kinds(facts: Sequence[LedgerEntry]) -> Iterator[str]:
    for kind, name in _NAMES.items():
        items = [_item(fact) for fact in facts if fact.kind is kind]
        if items:
            yield f"{name}: {'; '.join(items)}"


def _chosen(facts: Sequence[LedgerEntry], room: int, count: _Counted) -> frozenset[LedgerEntry]:
    """Choose by the rule of `render_ledger`; the name of a kind's line is paid by its first fact."""
    kinds = list(dict.fromkeys(fact.kind for fact in facts))
    kept: dict[LedgerEntry, None] = {}
    left = room
    for kind in kinds:
        of_kind = [fact for fact in facts if fact.kind is kind]
        left -= _fill(kept, of_kind, min(room // (2 * len(kinds)), left), count)
    _fill(kept, facts, left, count)
    return frozenset(kept)


def _fill(kept: dict[LedgerEntry, None], facts: Iterable[LedgerEntry], room: int, count: _Counted) -> int:
    """Add to `kept` what fits into the room, newest first; return the tokens used."""
    used = misfits = 0
    named = {fact.kind for fact in kept}
    for fact in facts:
        if fact in kept:
            continue
        tokens = count(f"{_item(fact)}; ") + (0 if fact.kind in named else count(f"{_NAMES[fact.kind]}: \n"))
        if used + tokens <= room:
            kept[fact] = None
            named.add(fact.kind)
            used += tokens
        else:
            misfits += 1
        if misfits == MISFITS:
            break
    return used


def _item(fact: LedgerEntry) -> str:
    """Return the fact with its place. A tool's is marked; in quotes stands what could be read as more than a fact."""
    is_tools = fact.said_by is Role.TOOL
    text = _without_tags(fact.text)
    if ";" in text or text != fact.text or (is_tools and fact.kind in _FREE_TEXT):
        text = _quoted(text)
    return f"{text} [#{fact.position}{' tool' if is_tools else ''}]"


def _quoted(text: str) -> str:
    """Return the text, which is copied from here and so never escaped, between marks that do not occur in it."""
    if '"' not in text:
        return f'"{text}"'
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    marks = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{space}{text}{space}{marks}"


def _without_tags(text: str) -> str:
    """Return the text without what looks like the place of an entry."""
    return _TAG.sub("(#", text)


def _older_facts(number: int) -> str:
    return f"(+{number} older {'fact' if number == 1 else 'facts'} left out)"
