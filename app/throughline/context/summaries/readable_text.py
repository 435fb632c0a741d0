"""The part of a message that is searched for facts: head and tail, JSON as plain lines, without tags and base64."""

import json
import re
from collections.abc import Iterator
from itertools import islice

from throughline.domain.message import clean_text

_SEPARATOR = re.compile(r",\s+")


def entries_of(words: str) -> list[str]:
    """Return the entries of a list, which are separated by commas and white space."""
    return _SEPARATOR.split(words.strip())


def words_in(words: str) -> frozenset[str]:
    """Return the words of `words`, which are separated by white space."""
    return frozenset(words.split())


def one_of(words: str) -> re.Pattern[str]:
    """Return the regular expression of a lower-case list.

    In an entry `…` stands for up to 40 characters, `*` for a part of a word.
    """
    return re.compile("|".join(map(_expression, entries_of(words))))


def _expression(entry: str) -> str:
    """Return the regular expression of an entry, with word boundaries except in scripts without spaces (U+2E80 on)."""
    start, end = ("", "") if entry[-1] >= "\u2e80" else (r"(?<!\w)", r"(?![\w-])" if entry[-1] not in ':."{,' else "")
    return start + re.escape(entry).replace("…", ".{0,40}").replace(r"\*", r"\w*") + end


WRAPPED_LINE = 60
"""A line of at least this length without a sentence's end continues in the next line, if that begins in lower case."""

_END = re.compile(r"[.!?…]{1,9}(?=[\"'”’)\]*_x]{0,3}(?:\s|$))|[。！？；]|\n")
_ABBREVIATION = re.compile(
    r"(?i)(?:^|[^\w'])(?:e\.g|i\.e|z\.\s?b|d\.\s?h|etc|dr|mrs?|ms|prof|vs|approx|no|nr|bzw|ca|usw|[b-hj-z])$|^\s*\d+$"
)
_MONTHS = (
    r"jan(?:uary|uar|vier|eiro)?|feb(?:ruary|ruar|rero|braio)?|fév(?:rier)?|fevereiro|mar(?:ch|s|zo|ço)?"
    r"|märz|apr(?:il|ile)?"
    r"|avril|abril|may|mai|mayo|maggio|maio|june?|juni|juin|junio|giugno|junho|july?|juli|juillet|julio"
    r"|luglio|julho|aug(?:ust)?"
    r"|août|agosto|sep(?:t|tember|tembre|tiembre)?|settembre|setembro|oct(?:ober|obre|ubre)?|okt(?:ober)?"
    r"|ottobre|outubro"
    r"|nov(?:ember|embre|iembre|embro)?|dec(?:ember)?|dez(?:ember|embro)?|déc(?:embre)?|diciembre|dicembre"
    r"|enero|gennaio"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
"""Month names: after a number and a full stop they continue a date, as in "14. Mai"."""

_MONTH = re.compile(rf" (?:{_MONTHS})\b", re.IGNORECASE)
_LIST_MARKER = re.compile(r"\s*+(?:(?:[-*•+–]|\d{1,2}[.)]|\(?[a-z\d]\)|#{1,6}|\[[ x]\])\s++){0,2}+[\s*_]*+")


def sentences_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of each sentence, without list markers and surrounding white space."""
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


def one_line(text: str, most: int | None = None) -> str:
    """Return `text` with single spaces for all white space; if longer than `most` characters, cut and ended by `…`."""
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _goes_on(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether a full stop only ends an abbreviation or a number, or a line break only wraps a line."""
    if end[0] == "\n":
        line = end.start() - max(start, text.rfind("\n", start, end.start()) + 1)
        return line >= WRAPPED_LINE and text[end.end() : end.end() + 1].islower()
    if end[0] == "." and text[max(start, end.start() - 1) : end.start()].isdigit() and _MONTH.match(text, end.end()):
        return True
    return end[0] == "." and bool(_ABBREVIATION.search(text[max(start, end.start() - 8) : end.start()]))


SCANNED_HEAD, SCANNED_TAIL = 12_000, 4_000
"""Characters read from the start and from the end of a text; a longer text is a paste or a dump."""

BLOB_CHARACTERS = 60
"""A run of this many letters and digits in mixed case is base64 (wrapped at 64 or 76), not a name."""

PATH_SEGMENT = 12
"""Characters per slash: a run with fewer slashes than this is no path, as base64 has one in 64."""

MAX_LEAVES = 2000


def scanned(text: str) -> str:
    """Return head and tail of a huge text, cut between words; tags and base64 in it are replaced by line breaks."""
    if len(text) > SCANNED_HEAD + SCANNED_TAIL:
        head = _CUT_WORD_AT_END.sub("", text[:SCANNED_HEAD])
        text = f"{head}\n\n{_CUT_WORD_AT_START.sub('', text[-SCANNED_TAIL:])}"
    text = _TAG.sub(lambda tag: "\n" * len(tag[0]), text)
    return _RUN.sub(lambda run: "\n" * len(run[0]) if _is_blob(run[0]) else run[0], text)


def readable(text: str) -> str:
    """Return the leaves of JSON as lines, so that escapes do not hide their texts; any other text unchanged.

    A leaf's key stands on the line before it, a command after `$`. Escapes can hide NUL and lone surrogates, which
    cannot be stored; they are replaced. JSON longer than the part of a text that is read stays unchanged, because a
    part of it is no JSON.
    """
    if text.lstrip()[:1] not in {"{", "["} or len(text) > SCANNED_HEAD + SCANNED_TAIL:
        return text
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    return clean_text("\n".join(islice(_leaves(value), MAX_LEAVES)))


def _leaves(value: object) -> Iterator[str]:
    """Yield the leaves in order. A stack replaces recursion, because the writer of the JSON chooses its depth."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((str(name), inner) for name, inner in reversed(item.items()))
        elif isinstance(item, list):
            waiting.extend((key, inner) for inner in reversed(item))
        elif isinstance(item, str) and item:
            yield f"$ {item}" if key.lower() in _COMMAND_KEYS else f"{key}:\n{_as_path(item)}"


def _as_path(item: str) -> str:
    """Put quotes around a path with spaces, so that it is found as a whole."""
    return f'"{item}"' if " " in item and _PATH_WITH_SPACES.fullmatch(item) else item


def _is_blob(run: str) -> bool:
    """Return whether a run is base64 and not a long path or long hex: three kinds of characters, few slashes."""
    is_mixed = not run.islower() and not run.isupper() and any(letter.isdigit() for letter in run)
    return len(run) > 10 * BLOB_CHARACTERS or (is_mixed and run.count("/") * PATH_SEGMENT < len(run))


_COMMAND_KEYS = frozenset(("command", "cmd", "shell", "bash", "commandline"))
_CUT_WORD_AT_END = re.compile(r"(?<=\s)\S{1,200}\Z")
_CUT_WORD_AT_START = re.compile(r"\A\S{1,200}(?=\s)")
_PATH_WITH_SPACES = re.compile(r"(?:~?/|[A-Za-z]:[\\/])[^\n\"']{1,300}")
_TAG = re.compile(r"\[#\d{1,9}(?:-#\d{1,9}|[ ][^\]\n]{1,80})?\]")
_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{BLOB_CHARACTERS},}}")


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
