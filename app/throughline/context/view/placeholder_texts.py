"""Short texts that a prompt shows in place of hidden content: stubs of tool outputs, notes about hidden messages.

Each depends only on positions and sizes, so that it stays the same from prompt to prompt.
"""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from throughline.domain.message import Content, ImageBlock, Message, text_of

INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters, for a regular expression's character class, that readers and most models do not see."""

MARKS = r"\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
"""Characters, for a regular expression's character class, that decorate the letter before them."""

BLANK = r" \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""Characters, for a regular expression's character class, that are as empty as a space and end no line."""

LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
LEFT_ANGLES = r"<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276e\u2770\u02c2\u1438\u227a\u00ab\u300a\u226a"
LEFT_BRACKETS = r"\[\uff3b\u3010\u3014\u3016\u3018\u301a\u27e6\u2045\u2772\ufe5d\u298b\uff62\u300c"
HASHES = r"#\uff03\ufe5f\u266f"
SLASHES = r"/\uff0f\u2044\u2215\u2571\u29f8"

_NO_LABEL = re.compile(r"[\x00-\x1f\x85\u2028\u2029\[\]\uff3b\uff3d]")
"""Characters that end a line, or the bracketed tag that contains a name."""

_ALIKE = {
    "_": "＿﹍﹎﹏‗-‐‑‒–— \t\n\r\u00a0",
    "a": "аɑα", "b": "ЬƄ", "c": "сϲ", "d": "ԁ", "e": "еҽё", "f": "ƒ", "g": "ɡց", "h": "һհ", "i": "іιıﺍ", "j": "јϳ",
    "k": "кκ", "l": "ӏІ|1", "m": "м", "n": "ոпη", "o": "оοօ0", "p": "рρ", "q": "ԛ", "r": "гᴦ", "s": "ѕ", "t": "тτ",
    "u": "υս", "v": "νѵ", "w": "ԝω", "x": "хχ", "y": "уүγ", "z": "ᴢ",
}  # fmt: skip
_ACCENTED = (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))
_RAISED = (*range(0x2B0, 0x2B9), *range(0x1D2C, 0x1D6B), *range(0x1D9B, 0x1DC0), *range(0x2070, 0x20A0), 0x2C7C)
_MATHEMATICAL = (*range(0xFF21, 0xFF5B), *range(0x1D400, 0x1D7CC), *range(0x24B6, 0x24EA), *range(0x2100, 0x2180))


def as_label(name: str) -> str:
    """Return a name without characters that would end its line or the square brackets around it."""
    return _NO_LABEL.sub("_", name)


def word_alike(word: str) -> str:
    """Return a regular expression, for `re.IGNORECASE`, that finds `word` also in similar letters of other scripts.

    It finds the word with accents and other decorations, too, and with blanks or nothing for each underscore.
    """
    return rf"[{INVISIBLE}{MARKS}]*+".join(_letter(letter) for letter in word.casefold())


def _letter(letter: str) -> str:
    alike = f"[{re.escape(letter + _ALIKE.get(letter, '') + _styled().get(letter, ''))}]"
    return f"{alike}*+" if letter == "_" else alike


@cache
def _styled() -> dict[str, str]:
    """Return the bold, italic, wide, circled, raised and accented forms of each letter."""
    found: dict[str, str] = {}
    for code in (*_ACCENTED, *_RAISED, *_MATHEMATICAL):
        letters = unicodedata.normalize("NFKD", chr(code)).casefold()
        if all(map(unicodedata.combining, letters[1:])):
            found[letters[0]] = found.get(letters[0], "") + chr(code)
    return found


def delimited(tag: str, text: str) -> str:
    """Return `text` between `<tag>` and `</tag>`, with every such tag inside it escaped."""
    return f"<{tag}>\n{escaped(tag, text)}\n</{tag}>"


def undelimited(tag: str, text: str) -> str:
    """Return the text between `<tag>` and the last `</tag>` of `text`; '' without such tags."""
    _, _, inside = text.partition(f"<{tag}>\n")
    return inside.rpartition(f"\n</{tag}>")[0]


def escaped(tag: str, text: str) -> str:
    """Return `text` with the angle bracket of every opening or closing `tag` in it written as `&lt;`.

    Imitations are escaped, too: tags with invisible or decorating characters, other brackets, or similar letters of
    other scripts.
    """
    return _tag_pattern(tag).sub(r"&lt;\1", text)


@cache
def _tag_pattern(tag: str) -> re.Pattern[str]:
    gap = rf"[\s{INVISIBLE}{MARKS}]*+"
    return re.compile(rf"[{LEFT_ANGLES}]({gap}(?:[{SLASHES}]{gap})?+{word_alike(tag)})", re.IGNORECASE)


SEARCH, READ, OUTPUT = "search_history", "read_history", "read_output"
RECALL_TOOLS = (SEARCH, READ, OUTPUT)
TAG = "quoted_history"
"""The tag around messages in a recall tool's result; the same tag inside a message is escaped."""


@dataclass(frozen=True, slots=True)
class RecallHints:
    """Sentences on how to look up hidden messages; each is '' if the agent has no tool for it.

    `output` goes into the stub of one tool output, `span` into a note on several messages, `summary` below a summary.
    """

    output: str = ""
    span: str = ""
    summary: str = ""

    def for_output(self, position: int) -> str:
        """Return the sentence on how to see the output at `position`, with a leading space; '' without such a tool."""
        return self.output.format(position=position)

    def for_span(self, first: int, last: int) -> str:
        """Return the sentence on how to see messages `first` to `last`, with a leading space; '' without a tool."""
        return self.span.format(first=first, last=last)


NO_HINTS = RecallHints()


def hints_for(tools: Collection[str]) -> RecallHints:
    """Return the hints for an agent with these tools. The same tools give the same bytes."""
    return RecallHints(output=_output_hint(tools), span=_span_hint(tools), summary=_summary_hint(tools))


def _output_hint(tools: Collection[str]) -> str:
    if OUTPUT in tools:
        return " read_output({position}) shows it."
    if READ in tools:
        return " read_history({position}, {position}) shows it."
    return " search_history finds words in it." if SEARCH in tools else ""


def _span_hint(tools: Collection[str]) -> str:
    shown = " read_history({first}, {last}) shows them." if READ in tools else ""
    return f"{shown} search_history finds words in them." if SEARCH in tools else shown


def _summary_hint(tools: Collection[str]) -> str:
    ways = {
        SEARCH: 'search_history("words") finds the messages that hold them',
        READ: "read_history(12, 40) shows the original messages of [#12-#40]",
        OUTPUT: "read_output(12) shows the tool output at #12 part by part",
    }
    known = [way for tool, way in ways.items() if tool in tools]
    if not known:
        return ""
    return f"All original messages are kept: {'; '.join(known)}. Look there before you say that something is not known."


NAME_CHARACTERS = 48
STUB_WORTH_TOKENS = 80
"""A tool output with fewer tokens is never replaced by a stub: the stub would take about half as many."""

_WIDEST = 9_999_999


def stub(row: Message, recall: RecallHints) -> str:
    """Return the text shown for an old tool output: tool, size, position, and how to see the output again."""
    return _stub_text(row.name or "tool", row.position, _size(row.content), recall)


def widest_stub(name: str, recall: RecallHints) -> str:
    """Return a stub of the tool that is at least as long as any other, to be counted once for all of them."""
    return _stub_text(name, _WIDEST, _WIDEST, recall)


def trim_note(first: int, last: int, recall: RecallHints) -> str:
    """Return the note for the messages `first` to `last`, of which all or some are hidden."""
    return f"[Earlier messages {span(first, last)} are not shown here.{recall.for_span(first, last)}]"


def left_out_note(first: int, last: int, number: int, recall: RecallHints) -> str:
    """Return the note for `number` hidden messages somewhere between `first` and `last`."""
    hint = recall.for_span(first, last)
    return f"[{number} less important messages between {span(first, last)} are not shown here.{hint}]"


def fold_note(first: int, last: int, recall: RecallHints) -> str:
    """Return the note that stands for the messages `first` to `last`: tool calls and their results."""
    return (
        f"[Steps {span(first, last)} of this turn are folded: {last - first + 1} messages, tool calls and their "
        f"results.{recall.for_span(first, last)}]"
    )


def span(first: int, last: int) -> str:
    """Return a range of positions in the form of a citation, such as `#3-#7`."""
    return f"#{first}" if first == last else f"#{first}-#{last}"


def _stub_text(name: str, position: int, size: int, recall: RecallHints) -> str:
    hint = recall.for_output(position)
    return f"[Output of {name[:NAME_CHARACTERS]} at #{position}, {size:,} characters, not shown.{hint}]"


def _size(content: Content) -> int:
    """Return the characters of the text; an image counts by the length of its URL, all that is stored of it."""
    if isinstance(content, str):
        return len(content)
    return len(text_of(content)) + sum(len(block.url) for block in content if isinstance(block, ImageBlock))
