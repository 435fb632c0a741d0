"""Detection, by structure, of text pasted into a user's message: it contains no instructions of the user."""

import re

from throughline.context.summaries.sentences import one_line, sentences_of

_ITEM = r"(?:[*+•-]|\d{1,2}[.)])"
_FENCED = re.compile(r"^[ \t]*+(```|~~~).*?(?:^[ \t]*+\1[^\n]*+|\Z)", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*+[>|].*", re.MULTILINE)
_INDENTED = re.compile(rf"(?:\A|(?<=\n\n))(?:(?: {{4}}|\t)[ \t]*+(?!{_ITEM})[^\n]*+(?:\n|\Z))++")
_ANNOUNCED = re.compile(rf"(?<=[:：])[ \t]*+\n\n?+(?!\n|[ \t]*{_ITEM})(?:.*\n){{2}}\s*+\S[\s\S]*")
"""The rest of a message after a line that ends in a colon.

It counts if three lines or more follow, which are no list and are not blanked out already.
"""

_OPENING_TAG = re.compile(r"<([A-Za-z][\w-]{0,60})(?: [^<>]{0,300})?>")

_QUOTATION = re.compile(
    r"(?<!\d)\"(?:[^\"\n]|\n(?!\n)){1,600}\"|[“„](?:[^“”\n]|\n(?!\n)){1,600}[”“]|«[^«»]{1,600}»|「[^「」]{1,600}」|『[^『』]{1,600}』"
    r"|(?<!`)`[^`\n]{1,200}`(?!`)|(?<![\w'])'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
)


def without_pasted_blocks(text: str) -> str:
    """Return the text with pasted parts blanked out; all other characters keep their offsets.

    Pasted are code (fenced or indented), quoted lines, blocks between tags, and text announced by a colon.
    """
    text = _without_tagged_blocks(_QUOTED.sub(_blank, _FENCED.sub(_blank, text)))
    return _ANNOUNCED.sub(_blank, _INDENTED.sub(_blank, text))


def own_sentences(text: str) -> list[str]:
    """Return the sentences of a user's text without pasted text, each on one line."""
    own = without_pasted_blocks(text)
    return [one_line(own[start:stop]) for start, stop in sentences_of(own)]


def without_quotations(text: str) -> str:
    """Return the text with an `x` for each letter inside quotation marks or backticks, and for the marks."""
    return _QUOTATION.sub(lambda quote: "x" * len(quote[0]), text)


def _blank(block: re.Match[str]) -> str:
    return "\n" * len(block[0])


def _without_tagged_blocks(text: str) -> str:
    """Blank out the lines from a tag that stands alone on its line to the last line that closes it."""
    lines = text.splitlines(keepends=True)
    closing = {line.strip(): at for at, line in enumerate(lines) if line.lstrip().startswith("</")}
    stop = -1
    for at, line in enumerate(lines):
        tag = _OPENING_TAG.fullmatch(line.strip())
        stop = max(stop, closing.get(f"</{tag[1]}>", -1)) if tag else stop
        lines[at] = "\n" * len(line) if at <= stop else line
    return "".join(lines)
