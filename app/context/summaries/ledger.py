"""The deterministic half of a summary: the user's standing instructions and exact facts, word for word, with positions.

A compaction extracts a ledger from the messages it summarises, merges it with the session's, and renders it below the
narrative in the room a summary has for it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from app.context.measure import Count
from app.context.summaries.facts import Fact, find_facts, one_line
from app.context.summaries.pasted import without_pasted_blocks
from app.context.summaries.standing_instructions import is_standing_instruction
from app.domain.ledger import LedgerEntry, LedgerKind
from app.domain.message import Message, Role, text_of

MAX_FACTS = 400
"""Facts a ledger keeps, about 20 kB as stored; more than any summary has room to show."""

MAX_INSTRUCTIONS = 200
"""Standing instructions a ledger keeps, on top of the facts."""

MAX_FACTS_PER_MESSAGE = 60
"""Facts taken from one text a user or the assistant wrote."""

MAX_FACTS_PER_OUTPUT = 12
"""Facts taken from one tool output or one call's arguments: there are many of both, and they can be fetched again."""

SCANNED_HEAD, SCANNED_TAIL = 12_000, 4_000
"""Characters of a text that are looked at, from its start and its end: a longer one is a paste or a dump."""

INSTRUCTION_CHARACTERS = 400
"""A longer instruction is cut and ends in `…`."""

WRAPPED_LINE = 60
"""A line of at least this length without a sentence's end goes on in the next, if that begins in lower case."""

INSTRUCTIONS_HEADING = "Standing instructions of the user (verbatim):"
FACTS_HEADING = "Exact facts, newest first:"

LEFT_OUT_NAMED = 8
"""So many positions of left-out instructions are named, the newest."""

MISFITS = 12
"""After so many facts that no longer fit, the rest is not tried."""

TRIES = 4
"""Rounds of rendering with less room, for counters that find more in a text than in its lines."""

_NAMES = {
    LedgerKind.PATH: "paths",
    LedgerKind.URL: "urls",
    LedgerKind.IDENTIFIER: "identifiers",
    LedgerKind.NUMBER: "numbers",
    LedgerKind.DATE: "dates",
    LedgerKind.COMMAND: "commands",
    LedgerKind.ERROR: "errors",
}
_OUTPUT_ORDER = (
    LedgerKind.ERROR,
    LedgerKind.PATH,
    LedgerKind.IDENTIFIER,
    LedgerKind.URL,
    LedgerKind.DATE,
    LedgerKind.NUMBER,
    LedgerKind.COMMAND,
)
_OUTPUT_TURN = 4
"""From a tool output come first the first 4 of each kind, in that order, then the next 4."""

_END = re.compile(r"[.!?…]{1,9}(?=[\"'”’)\]*_x]{0,3}(?:\s|$))|[。！？；]|\n")
_ABBREVIATION = re.compile(
    r"(?i)(?:^|[^\w'])(?:e\.g|i\.e|z\.\s?b|d\.\s?h|etc|dr|mrs?|ms|prof|vs|approx|no|nr|bzw|ca|usw|[b-hj-z])$|^\s*\d+$"
)
_LIST_MARKER = re.compile(r"\s*+(?:(?:[-*•+–]|\d{1,2}[.)]|\(?[a-z\d]\)|#{1,6}|\[[ x]\])\s++){0,2}+[\s*_]*+")
_QUOTED = re.compile(
    r"\"(?:[^\"\n]|\n(?!\n)){1,600}\"|[“„](?:[^“”\n]|\n(?!\n)){1,600}[”“]|«[^«»]{1,600}»|「[^「」]{1,600}」|『[^『』]{1,600}』"
    r"|(?<!`)`[^`\n]{1,200}`(?!`)|(?<![\w'])'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
)
_CUT_WORD_AT_END = re.compile(r"(?<=\s)\S{1,200}\Z")
_CUT_WORD_AT_START = re.compile(r"\A\S{1,200}(?=\s)")
_COMMAND_KEYS = frozenset(("command", "cmd", "shell", "bash", "commandline"))
_MAX_LEAVES = 2000


def extract_ledger(messages: Sequence[Message]) -> tuple[LedgerEntry, ...]:
    """Return what must survive word for word of `messages`, in position order: instructions, then facts of each.

    Instructions come from user messages only: what stands in a tool's output orders nobody. Of a huge text only
    `SCANNED_HEAD` and `SCANNED_TAIL` are read. Linear in the text that is read.
    """
    ordered = sorted(messages, key=lambda message: message.position)
    return tuple(entry for message in ordered for entry in _entries(message))


def merge_ledgers(old: Sequence[LedgerEntry], new: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return one ledger, oldest first, where an entry that came again stands at its newest position only.

    Bounded by `MAX_INSTRUCTIONS`, and apart from them by `MAX_FACTS`: half of that is shared equally by the kinds of
    fact there can be, the rest goes to the newest of all kinds, so that no flood of one kind ends another.
    """
    ordered = sorted(_newest_of_each((*old, *new)), key=lambda entry: entry.position)
    instructions, facts = _divided(ordered)
    quota = MAX_FACTS // (2 * len(_NAMES))
    kept = {*instructions[-MAX_INSTRUCTIONS:], *islice(_by_turns(facts, quota), MAX_FACTS)}
    return tuple(entry for entry in ordered if entry in kept)


def render_ledger(entries: Sequence[LedgerEntry], *, max_tokens: int, instruction_tokens: int, count: Count) -> str:
    """Return the ledger as text of at most `max_tokens`, '' where nothing fits.

    Instructions take at most `instruction_tokens`: the newest are kept, shown oldest first, the others named by
    position. Facts take what is left, one line a kind: each kind present may fill an equal part of half the room with
    its newest, then the newest of all kinds fill the rest. What is left out is said.
    """
    counted = _Counted(count, {})
    ordered = sorted(dict.fromkeys(entries), key=lambda entry: entry.position)
    instructions, facts = _divided(ordered)
    first = _fitting(
        min(instruction_tokens, max_tokens), count, lambda room: _instruction_text(instructions, room, counted)
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


def _entries(message: Message) -> Iterator[LedgerEntry]:
    text = text_of(message.content)
    if message.role is Role.USER:
        for sentence in dict.fromkeys(_instructions(_scanned(text))):
            yield LedgerEntry(LedgerKind.INSTRUCTION, sentence, message.position)
    facts = list(_facts_of(message, text))
    for call in message.tool_calls:
        facts.extend(_selected(find_facts(_scanned(_readable(call.arguments)), with_names=False)))
    for kind, fact in dict.fromkeys((fact.kind, fact.text) for fact in facts):
        yield LedgerEntry(kind, fact, message.position)


def _facts_of(message: Message, text: str) -> Sequence[Fact]:
    if message.role is Role.TOOL:
        return _selected(find_facts(_scanned(_readable(text)), with_names=False))
    found = find_facts(_scanned(text), with_names=message.role is Role.USER)
    return found[:MAX_FACTS_PER_MESSAGE]


def _instructions(text: str) -> Iterator[str]:
    """Yield the standing instructions among the user's own sentences; what stands in quotes orders nothing."""
    visible = without_pasted_blocks(text)
    masked = _QUOTED.sub(lambda quote: "x" * len(quote[0]), visible)
    for start, stop in _sentences(masked):
        if is_standing_instruction(masked[start:stop]):
            yield one_line(visible[start:stop], INSTRUCTION_CHARACTERS)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences start and stop, list markers and white space left out."""
    start = 0
    for end in (*_END.finditer(text), None):
        if end and _goes_on(text, start, end):
            continue
        stop = end.end() if end else len(text)
        marker = _LIST_MARKER.match(text, start, stop)
        first = marker.end() if marker else start
        last = first + len(text[first:stop].rstrip())
        if last - first > 1:
            yield first, last
        start = stop


def _goes_on(text: str, start: int, end: re.Match[str]) -> bool:
    """Whether a full stop only ends an abbreviation or a number, or a line break only wraps a line."""
    if end[0] == "\n":
        line = end.start() - max(start, text.rfind("\n", start, end.start()) + 1)
        return line >= WRAPPED_LINE and text[end.end() : end.end() + 1].islower()
    return end[0] == "." and bool(_ABBREVIATION.search(text[max(start, end.start() - 8) : end.start()]))


def _selected(facts: Sequence[Fact]) -> list[Fact]:
    """Return at most `MAX_FACTS_PER_OUTPUT`, kinds in turns, in the order they stand in the text."""
    seen: Counter[LedgerKind] = Counter()
    ranked: list[tuple[int, int, int]] = []
    for index, fact in enumerate(facts):
        ranked.append((seen[fact.kind] // _OUTPUT_TURN, _OUTPUT_ORDER.index(fact.kind), index))
        seen[fact.kind] += 1
    best = sorted(ranked)[:MAX_FACTS_PER_OUTPUT]
    return [facts[index] for _, _, index in sorted(best, key=lambda rank: rank[2])]


def _scanned(text: str) -> str:
    """Return the head and the tail of a huge text, cut between words where there are any."""
    if len(text) <= SCANNED_HEAD + SCANNED_TAIL:
        return text
    head = _CUT_WORD_AT_END.sub("", text[:SCANNED_HEAD])
    tail = _CUT_WORD_AT_START.sub("", text[-SCANNED_TAIL:])
    return f"{head}\n\n{tail}"


def _readable(text: str) -> str:
    """Return JSON as lines `key: value`, so that escapes do not hide its texts; anything else as it is."""
    if text.lstrip()[:1] not in {"{", "["} or len(text) > SCANNED_HEAD + SCANNED_TAIL:
        return text
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    return "\n".join(islice(_leaves(value), _MAX_LEAVES))


def _leaves(value: object) -> Iterator[str]:
    """Yield the leaves in order, a command as a line behind `$`; a stack, for depth is the writer's choice."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((str(name), inner) for name, inner in reversed(item.items()))
        elif isinstance(item, list):
            waiting.extend((key, inner) for inner in reversed(item))
        elif isinstance(item, str) and item:
            yield f"$ {item}" if key.lower() in _COMMAND_KEYS else f"{key}: {item}"


def _newest_of_each(entries: Iterable[LedgerEntry]) -> Iterable[LedgerEntry]:
    """Of entries that say the same, return the one that came last."""
    newest: dict[tuple[LedgerKind, str], LedgerEntry] = {}
    for entry in entries:
        before = newest.get((entry.kind, entry.text))
        if before is None or before.position < entry.position:
            newest[entry.kind, entry.text] = entry
    return newest.values()


def _divided(ordered: Sequence[LedgerEntry]) -> tuple[list[LedgerEntry], list[LedgerEntry]]:
    """Return the instructions in their order, and the facts in the opposite one: newest first."""
    instructions = [entry for entry in ordered if entry.kind is LedgerKind.INSTRUCTION]
    return instructions, [entry for entry in reversed(ordered) if entry.kind is not LedgerKind.INSTRUCTION]


def _by_turns(facts: Sequence[LedgerEntry], quota: int) -> Iterator[LedgerEntry]:
    """Yield facts, newest first: at first only `quota` of each kind, then the others."""
    seen: Counter[LedgerKind] = Counter()
    later: list[LedgerEntry] = []
    for fact in facts:
        seen[fact.kind] += 1
        if seen[fact.kind] <= quota:
            yield fact
        else:
            later.append(fact)
    yield from later


def _fitting(room: int, count: Count, make: Callable[[int], str]) -> str:
    """Return what `make` makes of the room, made again with less where the whole counts more than its lines."""
    target = room
    for _ in range(TRIES):
        text = make(target) if target > 0 else ""
        tokens = count(text) if text else 0
        if tokens <= room or not text:
            return text
        target = min(target - (tokens - room), target * room // tokens)
    return ""


def _instruction_text(instructions: Sequence[LedgerEntry], room: int, count: _Counted) -> str:
    if not instructions:
        return ""
    kept = _kept_instructions(instructions, room, count)
    left_out = [entry for entry in instructions if entry not in kept]
    closing = [_left_out(left_out, len(left_out))] if left_out else []
    text = "\n".join((INSTRUCTIONS_HEADING, *(_line(entry) for entry in instructions if entry in kept), *closing))
    return text if kept or count(text) <= room else ""


def _kept_instructions(instructions: Sequence[LedgerEntry], room: int, count: _Counted) -> frozenset[LedgerEntry]:
    """Choose all, or as many as fit beside the line that names the others."""
    kept = _newest_lines(instructions, room, count)
    if len(kept) == len(instructions):
        return kept
    reserve = count(f"{_left_out(instructions[-LEFT_OUT_NAMED - 1 :], len(instructions))}\n")
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
    return f"- {entry.text} [#{entry.position}]"


def _left_out(entries: Sequence[LedgerEntry], number: int) -> str:
    places = list(dict.fromkeys(f"[#{entry.position}]" for entry in entries))
    more = "…, " if len(places) > LEFT_OUT_NAMED else ""
    noun = "instruction" if number == 1 else "instructions"
    return f"({number} older {noun} left out; see {more}{', '.join(places[-LEFT_OUT_NAMED:])})"


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
    return f"{fact.text} [#{fact.position}]"


def _older_facts(number: int) -> str:
    return f"(+{number} older {'fact' if number == 1 else 'facts'} left out)"
