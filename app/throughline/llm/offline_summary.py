"""The offline model's summaries: of every part of what it reads the weightiest sentences, with their positions.

No model is asked. A sentence that is kept stands as `- sentence [#12]`, so that it can be read again in a later summary
without gathering marks of its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from throughline.llm.offline_extract import split_sentences, words_of

NOTHING = "Nothing of substance yet."
"""What a summary of nothing says; in the text of a further one it is nothing again."""
SHORT_REPLIES = "Only short replies."
FEW_WORDS = 2
"""A sentence with fewer words that carry meaning, and no number, says next to nothing by itself."""

MAX_SENTENCES = 4000
"""The newest sentences that are looked at."""
MAX_PARTS, PART_TOKENS = 10, 40
"""What is read is divided into so many parts at most, and into one for so many tokens of the summary."""
MERGED_SHARE = 0.9
"""A summary of summaries alone has to be smaller than they are."""
SMALL_SUMMARY_TOKENS = 160
"""A summary of so many tokens is small, whatever it stands for. Above that a third of a long record may be kept, three
quarters of a short one."""

_HEAD = re.compile(r"\[#(\d+) (user|assistant|tool)([^\[\]\n]*+)\] ?")
_AUTHOR = re.compile(r"\(([^()]{1,80})\)")
_PART_HEAD = re.compile(r"\[#(\d+)-#(\d+)\]\s*+")
_CITED = re.compile(r"(\[#(\d+)(?:-#\d+)?\])\Z")
_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")
_MARKS = re.compile(r"^(?:[-*•>#+]{1,6}\s++)+")
_CALL = re.compile(r"\[#\d+ calls\] ")
_WEIGHTY = re.compile(
    r"\b(?:remember|always|never|must|decided|agreed|prefer|name is|call me|deadline|because|plan|todo|error|failed)\b"
    r"|\d[\d.,:/-]*+|https?://|\b\w+[/\\]\w+|\bI (?:am|want|need|like|live|work)\b|\bmy\b",
    re.IGNORECASE,
)
BY_ASSISTANT = "assistant: "
_WISHED, _ASKED, _SPEAKERS_WEIGHT = 3.0, -1.5, {"user": 1.0, "assistant": 0.0, "tool": -2.0}


@dataclass(frozen=True, slots=True)
class Kept:
    """A sentence that a summary may keep: where it stands, how that is cited, who said it (a role, and as shown)."""

    position: int
    cited: str
    role: str
    text: str
    speaker: str = ""

    @property
    def line(self) -> str:
        """The sentence as a summary shows it."""
        said = f"- {self.speaker}{self.text}"
        return f"{said} {self.cited}" if self.cited else said


@dataclass(slots=True)
class _Told:
    """One message of a record, gathered line by line."""

    position: int
    role: str
    label: str
    lines: list[str] = field(default_factory=list)


def summarise(existing: str, record: str, *, wishes: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return a summary of `existing`, earlier summaries, and `record`, a transcript, in at most `max_tokens`.

    Every part of it that says something has a line, as far as there is room; then the weightiest sentences have it, of
    equal ones the newest. What shares words with `wishes` weighs more.
    """
    old, new = list(_of_summaries(existing)), list(_of_record(record))
    lines = _worth_keeping((*old, *new))
    if not lines:
        return f"- {SHORT_REPLIES} {_range_of((*old, *new))}".rstrip() if old or new else f"- {NOTHING}"
    wished, most = words_of(wishes), max_tokens
    if new:
        heard = _chosen(_worth_keeping(new), wished, _room_for(record, existing, count), count)
        lines = [kept for kept in lines if kept in heard or kept not in new]
    else:
        most = min(max_tokens, int(MERGED_SHARE * count(existing)))
    chosen = _chosen(lines, wished, most, count)
    return "\n".join(kept.line for kept in lines if kept in chosen)


def _worth_keeping(found: Sequence[Kept]) -> list[Kept]:
    """Return the newest sentences that say something, each where it was said first, in order."""
    unique: dict[str, Kept] = {}
    for kept in found:
        if not _is_slight(kept.text):
            unique.setdefault(kept.text.casefold(), kept)
    return sorted(unique.values(), key=lambda kept: kept.position)[-MAX_SENTENCES:]


def _room_for(record: str, existing: str, count: Callable[[str], int]) -> int:
    """Return the tokens that a record's sentences may have, so that all together becomes smaller, or is small."""
    size = count(record)
    return max(size // 3, min(size * 3 // 4, SMALL_SUMMARY_TOKENS), SMALL_SUMMARY_TOKENS - count(existing))


def _chosen(lines: Sequence[Kept], wished: frozenset[str], budget: int, count: Callable[[str], int]) -> set[Kept]:
    """Choose the best line of each part, from the newest part back, then the best ones of all."""
    if not lines:
        return set()
    weights = _weights(lines, wished)
    ranked = sorted(lines, key=lambda kept: (-weights[kept], -kept.position))
    chosen: set[Kept] = set()
    for kept in (*_best_of_parts(ranked, budget), *ranked):
        tokens = count(kept.line) + 1
        if kept not in chosen and tokens <= budget:
            chosen.add(kept)
            budget -= tokens
    return chosen


def _best_of_parts(ranked: Sequence[Kept], budget: int) -> list[Kept]:
    """Return the first of `ranked` in each part of the positions, the newest part first."""
    first = min(kept.position for kept in ranked)
    span = max(kept.position for kept in ranked) - first + 1
    parts = min(max(budget // PART_TOKENS, 1), MAX_PARTS)
    best: dict[int, Kept] = {}
    for kept in ranked:
        best.setdefault((kept.position - first) * parts // span, kept)
    return [best[part] for part in sorted(best, reverse=True)]


def _weights(lines: Sequence[Kept], wished: frozenset[str]) -> dict[Kept, float]:
    words = {kept: words_of(kept.text) for kept in lines}
    frequency = Counter(word for found in words.values() for word in found)
    return {kept: _weight(kept, words[kept], frequency, wished) for kept in lines}


def _weight(kept: Kept, words: frozenset[str], frequency: Counter[str], wished: frozenset[str]) -> float:
    common = sum(1 for word in words if frequency[word] > 1)
    weight = 2.0 * min(len(_WEIGHTY.findall(kept.text)), 4) + common / (1 + len(words))
    weight += _SPEAKERS_WEIGHT[kept.role] + _WISHED * min(len(words & wished), 3)
    return weight + (_ASKED if kept.text.endswith(("?", "？")) else 0.0)


def _is_slight(text: str) -> bool:
    """Whether a sentence says next to nothing by itself: `ok`, `yes, please`."""
    if not text.isascii():
        return len(text) < len("好的，谢谢")
    return len(words_of(text)) < FEW_WORDS and not any(character.isdigit() for character in text)


def _range_of(said: Sequence[Kept]) -> str:
    first, last = min(kept.position for kept in said), max(kept.position for kept in said)
    return "" if not last else f"[#{first}]" if first == last else f"[#{first}-#{last}]"


def _of_summaries(existing: str) -> Iterator[Kept]:
    """Yield the lines of earlier summaries; one that cites nothing is taken to stand where its part begins."""
    start, part = 0, ""
    for line in existing.split("\n"):
        head = _PART_HEAD.fullmatch(line)
        if head:
            start, part = int(head[1]), f"[#{head[1]}-#{head[2]}]"
        elif not line.startswith("#"):
            yield from _of_summary_line(line, start, part)


def _of_summary_line(line: str, start: int, part: str) -> Iterator[Kept]:
    text = _MARKS.sub("", line.strip())
    told, cited = _HEAD.match(text), _CITED.search(text)
    position, citation = (int(cited[2]), cited[1]) if cited else (start, part)
    role = "assistant" if text.startswith(BY_ASSISTANT) else "user"
    if told:
        position, citation, role = int(told[1]), f"[#{told[1]}]", told[2]
    said = _plain(_CITED.sub("", text))
    if any(character.isalnum() for character in said) and said != NOTHING:
        yield Kept(position, citation, role, said)


def _of_record(record: str) -> Iterator[Kept]:
    messages = list(_messages(record.split("\n")))
    authors = {message.label for message in messages if message.role == "user" and message.position}
    for message in messages:
        text = "\n".join(line for line in message.lines if not line.lstrip().startswith("```"))
        cited = f"[#{message.position}]" if message.position else ""
        speaker = _speaker(message, is_shared=len(authors) > 1)
        for sentence in split_sentences(text):
            said = _plain(_MARKS.sub("", sentence))
            if said:
                yield Kept(message.position, cited, message.role, said, speaker)


def _messages(lines: Iterable[str]) -> Iterator[_Told]:
    """Yield the messages of a transcript without their calls; a text without tags is one message of nowhere."""
    told = _Told(0, "user", "")
    for line in lines:
        head = _HEAD.match(line)
        if head:
            yield told
            told = _Told(int(head[1]), head[2], head[3].strip(), [line[head.end() :]])
        elif not _CALL.match(line):
            told.lines.append(line)
    yield told


def _speaker(message: _Told, *, is_shared: bool) -> str:
    """Return what stands before a sentence: nothing for the user, where there is one."""
    author = _AUTHOR.search(message.label)
    match message.role:
        case "user":
            return f"{author[1]}: " if author and is_shared else ""
        case "assistant":
            return BY_ASSISTANT
        case _:
            return f"{_AUTHOR.sub('', message.label).strip() or 'a tool'}: "


def _plain(sentence: str) -> str:
    """Return the sentence without anything that looks like a position's tag: only the last one is ours."""
    return " ".join(_TAG.sub("", sentence).split())
