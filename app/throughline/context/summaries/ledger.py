"""The deterministic half of a summary: the user's standing instructions and exact facts, word for word, with positions.

A compaction extracts a ledger from the messages it summarises, merges it with the session's, and renders it below the
narrative in the room a summary has for it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from throughline.context.summaries.facts import Fact, find_facts, one_line
from throughline.context.summaries.pasted import without_pasted_blocks
from throughline.context.summaries.sentences import sentences_of
from throughline.context.summaries.standing_instructions import is_standing_instruction
from throughline.domain.ledger import FACT_KINDS, LedgerEntry, LedgerKind
from throughline.domain.message import Message, Role, text_of

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

_OUTPUT_ORDER = (
    LedgerKind.ERROR,
    LedgerKind.PATH,
    LedgerKind.IDENTIFIER,
    LedgerKind.URL,
    LedgerKind.DATE,
    LedgerKind.NUMBER,
    LedgerKind.COMMAND,
)
_MOVED_BY_ECHOES = frozenset(FACT_KINDS) - {LedgerKind.NUMBER, LedgerKind.DATE}
"""Facts in use as long as anybody names them; a number or date in an echo may be one the user has withdrawn."""

_WEIGHTS = {Role.ASSISTANT: 0, Role.TOOL: 1, Role.USER: 2}
_OUTPUT_TURN = 4
"""From a tool output come first the first 4 of each kind, in that order, then the next 4."""

_QUOTED = re.compile(
    r"(?<!\d)\"(?:[^\"\n]|\n(?!\n)){1,600}\"|[“„](?:[^“”\n]|\n(?!\n)){1,600}[”“]|«[^«»]{1,600}»|「[^「」]{1,600}」|『[^『』]{1,600}』"
    r"|(?<!`)`[^`\n]{1,200}`(?!`)|(?<![\w'])'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
)
_CUT_WORD_AT_END = re.compile(r"(?<=\s)\S{1,200}\Z")
_CUT_WORD_AT_START = re.compile(r"\A\S{1,200}(?=\s)")
_COMMAND_KEYS = frozenset(("command", "cmd", "shell", "bash", "commandline"))
_PATH_START = re.compile(r"(?:~?/|[A-Za-z]:[\\/])[^\n\"']{1,300}\Z")
_MAX_LEAVES = 2000


def extract_ledger(messages: Sequence[Message]) -> tuple[LedgerEntry, ...]:
    """Return what must survive word for word of `messages`, in position order: instructions, then facts of each.

    Instructions come from user messages only: what stands in a tool's output orders nobody. Of a huge text only
    `SCANNED_HEAD` and `SCANNED_TAIL` are read. Linear in the text that is read.
    """
    ordered = sorted(messages, key=lambda message: message.position)
    return tuple(entry for message in ordered for entry in _entries(message))


def merge_ledgers(old: Sequence[LedgerEntry], new: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return one ledger, oldest first, where an entry that came again stands once.

    That is where it came last. Of numbers and dates it is where the one whose word counts most said it last: a tool's
    output does not repeat what the user said, nor the assistant anybody, for an echo must not make a value new that was
    taken back. Bounded by `MAX_INSTRUCTIONS`, those beyond are counted, and apart from them by `MAX_FACTS`:
    half of that is shared equally by the kinds of fact there can be, the rest goes to the newest of all kinds, so that
    no flood of one kind ends another.
    """
    ordered = _each_once((*old, *new))
    facts = [entry for entry in reversed(ordered) if entry.kind in FACT_KINDS]
    instructions = [entry for entry in ordered if entry.kind is LedgerKind.INSTRUCTION]
    counts = [entry for entry in dict.fromkeys((*old, *new)) if entry.kind is LedgerKind.LEFT_OUT]
    quota = MAX_FACTS // (2 * len(FACT_KINDS))
    kept = (
        *_left_out(counts, instructions[:-MAX_INSTRUCTIONS]),
        *instructions[-MAX_INSTRUCTIONS:],
        *islice(_by_turns(facts, quota), MAX_FACTS),
    )
    order = {entry: at for at, entry in enumerate(ordered)}
    return tuple(sorted(kept, key=lambda entry: (entry.position, order.get(entry, -1))))


def _each_once(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Return the entries in their order, each once, as the word of the one whose word counts most."""
    kept: dict[tuple[LedgerKind, str], LedgerEntry] = {}
    for entry in sorted(entries, key=lambda entry: entry.position):
        before = kept.get((entry.kind, entry.text), entry)
        kept[entry.kind, entry.text] = _once(before, entry)
    return sorted(kept.values(), key=lambda entry: entry.position)


def _once(before: LedgerEntry, entry: LedgerEntry) -> LedgerEntry:
    """Return the one entry for two of the same text, of which `entry` is not the older."""
    if _WEIGHTS[entry.said_by] >= _WEIGHTS[before.said_by]:
        return entry
    return replace(before, position=entry.position) if entry.kind in _MOVED_BY_ECHOES else before


def _left_out(counts: Sequence[LedgerEntry], dropped: Sequence[LedgerEntry]) -> Iterator[LedgerEntry]:
    """Yield the one entry that says how many instructions have no place any more."""
    number = sum(int(entry.text) for entry in counts) + len(dropped)
    if number:
        newest = max(entry.position for entry in (*counts, *dropped))
        yield LedgerEntry(LedgerKind.LEFT_OUT, str(number), newest)


def _entries(message: Message) -> Iterator[LedgerEntry]:
    text = text_of(message.content)
    if message.role is Role.USER:
        for sentence in dict.fromkeys(_instructions(_scanned(text))):
            yield LedgerEntry(LedgerKind.INSTRUCTION, sentence, message.position)
    facts = list(_facts_of(message, text))
    for call in message.tool_calls:
        facts.extend(_selected(find_facts(_scanned(_readable(call.arguments)), with_names=False)))
    for kind, fact in dict.fromkeys((fact.kind, fact.text) for fact in facts):
        yield LedgerEntry(kind, fact, message.position, message.role)


def _facts_of(message: Message, text: str) -> Sequence[Fact]:
    if message.role is Role.TOOL:
        return _selected(find_facts(_scanned(_readable(text)), with_names=False))
    found = find_facts(_scanned(text), with_names=message.role is Role.USER)
    return found[:MAX_FACTS_PER_MESSAGE]


def _instructions(text: str) -> Iterator[str]:
    """Yield the standing instructions among the user's own sentences; what stands in quotes orders nothing."""
    visible = without_pasted_blocks(text)
    masked = _QUOTED.sub(lambda quote: "x" * len(quote[0]), visible)
    for start, stop in sentences_of(masked):
        if is_standing_instruction(masked[start:stop]):
            yield one_line(visible[start:stop], INSTRUCTION_CHARACTERS)


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
            yield f"$ {item}" if key.lower() in _COMMAND_KEYS else f"{key}: {_as_path(item)}"


def _as_path(item: str) -> str:
    """Put a path with spaces between quotes, so that it is found whole."""
    return f'"{item}"' if " " in item and _PATH_START.match(item) else item


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
