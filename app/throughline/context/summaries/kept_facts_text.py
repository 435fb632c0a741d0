"""Text of kept facts in a prompt: standing instructions and other facts, as many as fit, with a note on the rest."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from throughline.context.measure import Count
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.later_changes import later_changes, without_outdated_repetitions
from throughline.context.summaries.statements import worth
from throughline.context.view.placeholder_texts import as_label
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact

INSTRUCTIONS_HEADING = "Standing instructions of the user (verbatim; where two disagree, the later one holds):"
FACTS_HEADING = "Kept facts, word for word (where the text above says otherwise, these hold):"

WEIGHTS = {
    FactKind.LIMIT: 4,
    FactKind.GOAL: 4,
    FactKind.DECISION: 4,
    FactKind.DEADLINE: 4,
    FactKind.PERSON: 4,
    FactKind.PREFERENCE: 4,
    FactKind.OPEN_QUESTION: 3,
    FactKind.VALUE: 3,
    FactKind.IDENTIFIER: 3,
    FactKind.ERROR: 2,
    FactKind.COMMAND: 2,
}
"""Weights by which the kinds share the room if it is too small for all facts, most important first."""

MESSAGE_SHARE = 4
"""Divisor of a kind's share: one message fills at most a quarter of it, so that a paste does not displace the rest."""

RANKS, EVEN = 4, 0.5
"""Ranks of facts (see `_rank`), and the score of a fact that no model has judged."""

SHORT_RULE = 100
"""Length up to which a sentence is more likely a rule than a story."""

LEFT_OUT_NAMED = 8
"""Number of positions of omitted instructions that are named, the newest."""

TRIES = 6
"""Number of tries with ever less room, for counters that count more for a text than for its lines."""

_NAMES = {FactKind.PERSON: "People", FactKind.OPEN_QUESTION: "Open questions"}
_TAG = re.compile(r"[\[［]\s{0,3}[#＃]")
_BACKTICKS = re.compile("`+")


def render_instructions(facts: Sequence[KeptFact], *, max_tokens: int, count: Count) -> str:
    """Return the standing instructions that fit, oldest first, chosen by score; omitted ones are named by position."""
    instructions = [fact for fact in facts if fact.kind is FactKind.INSTRUCTION]
    cost = _cost(count)
    return _fitting(max_tokens, count, lambda room: _instruction_text(instructions, room, cost))


def render_facts(
    facts: Sequence[KeptFact], *, max_tokens: int, count: Count, all_facts: Sequence[KeptFact] | None = None
) -> str:
    """Return the facts that fit, without instructions, grouped by kind, with a line that counts the omitted ones.

    '' if none fits. They come by rank (see `_rank`). Replaced ones are left out, and what the assistant repeats of
    them. Within each rank every kind has its share by `WEIGHTS`, filled by `worth`, best first. Unused shares are open
    to all kinds. The line of a fact gives the position of the last of `all_facts` that may have changed or ended it.
    None stands for `facts`.
    """
    others = (fact for fact in facts if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by)
    known = facts if all_facts is None else all_facts
    shown = one_a_line(without_outdated_repetitions(others, known))
    later, cost = later_changes(shown, known), _cost(count)
    return _fitting(max_tokens, count, lambda room: _fact_text(shown, later, room, cost))


def fact_line(fact: KeptFact, later: int = 0) -> str:
    """Return the line for a fact: its text, position and speaker, and its subject unless the text names it.

    The speaker of a user's fact is the author's name, if known. `later` is the position of a later statement that may
    have changed or ended the fact, 0 for none.
    """
    see = f"; later: #{later}" if later else ""
    ended = " may be outdated" if fact.may_be_outdated else ""
    return f"- {_statement(fact)} [#{fact.position}{_by(fact)}{see}]{ended}"


def one_a_line(facts: Iterable[KeptFact]) -> list[KeptFact]:
    """Return the facts without duplicates of a line: one sentence may be kept for two subjects."""
    lines: dict[str, KeptFact] = {}
    for fact in facts:
        line = fact_line(fact)
        lines[line] = max(lines.get(line, fact), fact, key=worth)
    return list(lines.values())


def _statement(fact: KeptFact) -> str:
    text = _TAG.sub("(#", fact.text)
    if text != fact.text or fact.said_by is Role.TOOL:
        text = _quoted(text)
    subject = words_of(fact.subject)
    is_about = fact.kind is FactKind.INSTRUCTION or 2 * len(subject & words_of(fact.text)) >= len(subject)
    return text if is_about else f"{_TAG.sub('(#', fact.subject)}: {text}"


def _by(fact: KeptFact) -> str:
    if fact.said_by is not Role.USER:
        return f" {fact.said_by}"
    return f" {as_label(fact.author)}" if fact.author else ""


def _cost(count: Count) -> Count:
    """Return a function that counts a line with its line break and caches the count."""
    return cache(lambda line: count(f"{line}\n"))


def _fitting(room: int, count: Count, make: Callable[[int], str]) -> str:
    """Return the text that `make` makes for the room.

    It is made again with less room if the whole text counts more tokens than its lines do.
    """
    target = room
    for number in range(TRIES):
        text = make(target) if target > 0 else ""
        tokens = count(text) if text else 0
        if tokens <= room or not text:
            return text
        target = min(target - ((tokens - room) << number), target * room // tokens)
    return ""


def _instruction_text(instructions: Sequence[KeptFact], room: int, cost: Count) -> str:
    """Return the instructions that fit, or at least the number of those that do not."""
    if not instructions:
        return ""
    left = room - cost(INSTRUCTIONS_HEADING)
    kept, closing = _chosen_and_closing(instructions, left, _best, _left_out_instructions, cost)
    whole = "\n".join((INSTRUCTIONS_HEADING, *(fact_line(fact) for fact in instructions if fact in kept), *closing))
    noun = "instruction" if len(instructions) == 1 else "instructions"
    short = f"({len(instructions)} standing {noun} left out)"
    return next((text for text in (whole, short) if cost(text) <= room + 1), "")


def _chosen_and_closing(
    facts: Sequence[KeptFact],
    room: int,
    choose: Callable[[Sequence[KeptFact], int, Count], frozenset[KeptFact]],
    name_left_out: Callable[[Sequence[KeptFact]], str],
    cost: Count,
) -> tuple[frozenset[KeptFact], list[str]]:
    """Return the facts that fit and, if these are not all, the line about the omitted ones."""
    kept = choose(facts, room, cost)
    if len(kept) == len(facts):
        return kept, []
    kept = choose(facts, room - cost(name_left_out(facts)), cost)
    return kept, [name_left_out([fact for fact in facts if fact not in kept])]


def _best(instructions: Sequence[KeptFact], room: int, cost: Count) -> frozenset[KeptFact]:
    """Choose the instructions that fit together, by score and then the newest first."""
    kept: list[KeptFact] = []
    left = room
    for fact in sorted(instructions, key=_rule_worth, reverse=True):
        tokens = cost(fact_line(fact))
        if tokens <= left:
            kept.append(fact)
            left -= tokens
    return frozenset(kept)


def _left_out_instructions(left_out: Sequence[KeptFact]) -> str:
    places = list(dict.fromkeys(f"[#{fact.position}]" for fact in left_out))
    more = "…, " if len(places) > LEFT_OUT_NAMED else ""
    noun = "instruction" if len(left_out) == 1 else "instructions"
    return f"({len(left_out)} older {noun} left out; see {more}{', '.join(places[-LEFT_OUT_NAMED:])})"


def _fact_text(facts: Sequence[KeptFact], later: Mapping[KeptFact, int], room: int, cost: Count) -> str:
    if not facts:
        return ""
    kept, closing = _chosen_and_closing(facts, room - cost(FACTS_HEADING), _chosen, _left_out, cost)
    if not kept:
        return ""
    # In the order of `facts`: a set has another order in each process, and a changed prompt is paid for again.
    return "\n".join((FACTS_HEADING, *_grouped((fact for fact in facts if fact in kept), later), *closing))


def _left_out(left_out: Sequence[KeptFact]) -> str:
    verb, object_ = ("has", "it") if len(left_out) == 1 else ("have", "them")
    return f"({len(left_out)} more {verb} no room here; a search of the history finds {object_})"


def _grouped(kept: Iterable[KeptFact], later: Mapping[KeptFact, int]) -> Iterator[str]:
    ordered = sorted(kept, key=lambda fact: fact.position)
    for kind in WEIGHTS:
        of_kind = [fact for fact in ordered if fact.kind is kind]
        lines = [fact_line(fact, later[fact]) for fact in of_kind]
        if lines:
            yield _name(kind)
            yield from lines


def _name(kind: FactKind) -> str:
    return f"{_NAMES.get(kind, f'{kind.value.capitalize()}s')}:"


def _chosen(facts: Sequence[KeptFact], room: int, cost: Count) -> frozenset[KeptFact]:
    """Choose by the rule of `render_facts`; the first fact of a kind also pays for the kind's heading."""
    chosen = _Chosen(cost, room)
    best = sorted(facts, key=worth, reverse=True)
    for rank in range(RANKS):
        group = [fact for fact in best if _rank(fact) == rank]
        by_kind = {kind: [fact for fact in group if fact.kind is kind] for kind in WEIGHTS}
        weights, left = sum(WEIGHTS[kind] for kind in by_kind if by_kind[kind]), chosen.left
        for kind, of_kind in by_kind.items():
            share = left * WEIGHTS[kind] // max(weights, 1)
            chosen.fill(of_kind, share, share // MESSAGE_SHARE)
        chosen.fill(group, chosen.left, left // (2 * MESSAGE_SHARE))
        chosen.fill(group, chosen.left, chosen.left)
    return frozenset(chosen.kept)


def _rank(fact: KeptFact) -> int:
    """Return the rank of a fact, the best first.

    0: certain, or chosen at least as often as passed over; 1: chosen, but passed over more often; 2: only stated;
    3: passed over and never chosen.
    """
    if fact.is_only_stated:
        return 2
    return 0 if fact.score >= EVEN else 1 if fact.chosen else 3


def _rule_worth(fact: KeptFact) -> tuple[float, bool, int]:
    """Return the sort key of an instruction: score, then short before long, then position.

    Rules tend to be short; a long sentence is more likely a story that was mistaken for a rule.
    """
    return fact.score, len(fact.text) <= SHORT_RULE, fact.position


@dataclass(slots=True)
class _Chosen:
    """The facts chosen so far, and the remaining tokens."""

    cost: Count
    left: int
    kept: dict[KeptFact, None] = field(default_factory=dict)
    kinds: set[FactKind] = field(default_factory=set)

    def fill(self, facts: Sequence[KeptFact], room: int, of_message: int) -> None:
        """Add the facts that fit `room`, of each message at most `of_message` tokens but always one."""
        used: Counter[int] = Counter()
        spent = 0
        for fact in facts:
            if fact in self.kept:
                continue
            tokens = self.cost(fact_line(fact)) + (0 if fact.kind in self.kinds else self.cost(_name(fact.kind)))
            is_much = used[fact.position] and used[fact.position] + tokens > of_message
            if spent + tokens <= room and not is_much:
                self.kept[fact] = None
                self.kinds.add(fact.kind)
                used[fact.position] += tokens
                spent += tokens
        self.left -= spent


def _quoted(text: str) -> str:
    """Return the text between quotation marks or backticks that do not occur in it.

    The text is not escaped, because models copy it from here.
    """
    if '"' not in text:
        return f'"{text}"'
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    marks = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{space}{text}{space}{marks}"
