"""The parts of a message that are searched for facts: its own sentences, pasted text, logs, JSON as plain lines."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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


QUOTE_CHARACTERS = 300
"""Longest quote that counts as a fact."""

SCANNED_CHARACTERS = 4_000
"""Characters of a message that are searched for statements; longer ones are pastes."""

SCANNED_HEAD, SCANNED_TAIL = 12_000, 4_000
"""Characters read from the start and from the end of a text; a longer text is a paste or a dump."""

BLOB_CHARACTERS = 60
"""A run of this many letters and digits in mixed case is base64 (wrapped at 64 or 76), not a name."""

PATH_SEGMENT = 12
"""Characters per slash: a run with fewer slashes than this is no path, as base64 has one in 64."""

MAX_LEAVES = 2000


def scanned(text: str) -> str:
    """Return head and tail of a huge text, cut between lines, and the first and last line of an error between them.

    Tags and base64 in it are replaced by line breaks.
    """
    if len(text) > SCANNED_HEAD + SCANNED_TAIL:
        head, tail = _CUT_AT_END.sub("", text[:SCANNED_HEAD]), _CUT_AT_START.sub("", text[-SCANNED_TAIL:])
        errors = [line[0] for line in _ERROR_LINE.finditer(text, SCANNED_HEAD, len(text) - SCANNED_TAIL)]
        text = "\n\n".join((head, *dict.fromkeys((*errors[:1], *errors[-1:])), tail))
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
_CUT_AT_END = re.compile(r"(?<=\n)[^\n]{1,400}\Z|(?<=\s)\S{1,200}\Z")
_CUT_AT_START = re.compile(r"\A[^\n]{1,400}(?=\n)|\A\S{1,200}(?=\s)")
_PATH_WITH_SPACES = re.compile(r"(?:~?/|[A-Za-z]:[\\/])[^\n\"']{1,300}")
_TAG = re.compile(r"\[#\d{1,9}(?:-#\d{1,9}|[ ][^\]\n]{1,80})?\]")
_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{BLOB_CHARACTERS},}}")

LOG_LINES = 8
"""Number of lines with the same kind of beginning (a time or a level) that count as a log."""

LOOK_CHARACTERS, LOOK_NUMBERS = 24, 3
"""Characters of a line that are compared, and how many numbers of a date, time or address they must contain."""

PROGRAM_LINES = 5
"""Divisor: a paragraph of two or more lines is a program's if so large a part of them has its signs."""

_PROGRAM = re.compile(
    r"[{}=<>|$\\]|[;)\]]\s*$|\w\([^)]{0,200}\)|\w@[\w.-]+:\S"
    r"|^\s*(?:at \S+\.\w|File \"|@@|[+-]\w|[a-z_][\w.-]*:(?: \S+)?$)"
)
"""Signs of code, a prompt, a stack's place, a diff or a setting in a line."""

LEVEL_WITHIN = 200
"""Characters of a log's line within which its level stands."""

_DIGITS, _LETTERS = re.compile(r"\d+"), re.compile(r"[^\W\d_]+")
_LOG_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|FATAL"
_LEVEL = re.compile(rf"[\[<(]?(?:{_LOG_LEVELS})")
_ERROR_LEVEL = re.compile(r"(?<![\w\"'.=])(?:ERROR|FATAL|CRITICAL|PANIC)\b|\[(?:error|crit|alert|emerg|fatal)\]")
_ANY_LEVEL = re.compile(_ERROR_LEVEL.pattern + r"|\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING)\b")
_ERROR_LINE = re.compile(rf"^(?=.{{0,{LEVEL_WITHIN}}}?(?:{_ERROR_LEVEL.pattern})).{{1,1000}}$", re.MULTILINE)
_TIMED = re.compile(rf".{{0,60}}\d\d?:\d\d|{_LEVEL.pattern}")
_DIFF_HEADER = re.compile(
    r"^(?:index [0-9a-f]{7,40}\.\.[0-9a-f]{7,40}.{0,20}|diff --git .{1,400}|--- (?:a/.{1,300}|/dev/null))$"
    r"|(?<=^\+\+\+ )b/",
    re.MULTILINE,
)
_PERSON = r"[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2}"
_STAMP = re.compile(
    r"^\W{0,3}(?=.{0,24}\d\d?:\d\d)[\d./,:\[\]() -]{4,24}(?:[AP]M)?[\])]?[ –-]{0,3}"
    rf"(?=(?!{_LOG_LEVELS}){_PERSON}: |<{_PERSON}> )"
)
"""The time before a line of a chat, behind which a name stands."""


_ITEM = r"(?:[*+•-]|\d{1,2}[.)])"
_FENCED = re.compile(r"^[ \t]*+(```|~~~).*?(?:^[ \t]*+\1[^\n]*+|\Z)", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*+[>|].*", re.MULTILINE)
_INDENTED = re.compile(rf"(?:\A|(?<=\n\n))(?:(?: {{4}}|\t)[ \t]*+(?!{_ITEM})[^\n]*+(?:\n|\Z))++")
_ANNOUNCED = re.compile(rf"(?<=[:：])[ \t]*+\n\n?+(?!\n|[ \t]*{_ITEM})(?:.*\n){{2}}\s*+\S[\s\S]*")
"""The rest of a message after a line that ends in a colon.

It counts if three lines or more follow, which are no list and are not blanked out already.
"""

_MAIL_FIELD = r"(?:From|Sent|To|Date|Subject|Cc|Von|Gesendet|An|Datum|Betreff|De|Envoyé|À|Objet|Enviado|Para|Asunto)"
_FORWARDED = re.compile(
    r"^(?:-{3,} ?(?:Forwarded|Original) [Mm]essage|Begin forwarded message:|(?:On|El|Le|Am) [^\n]{5,120}\n?[^\n]{0,80}"
    r"(?:wrote|escribió|a écrit ?|schrieb [^\n]{1,80}):[ \t]*$"
    rf"|{_MAIL_FIELD}: [^\n]*\n{_MAIL_FIELD}: "
    r"|[A-Z][\w.'’-]{1,30}(?: [A-Z][\w.'’-]{1,30})? {1,3}\d{1,2}:\d\d(?: ?[AP]M)?$"
    r"|(?:[Pp]lease )?(?:[Tt]ranslate|[Pp]roofread|[Ss]ummari[sz]e|[Rr]ewrite|[Cc]orrect|[Ii]mprove|[Rr]ate|[Rr]eview)"
    r" (?:this|that|the following|it)\b[^\n:.]{0,60}[:.])"
    r"[\s\S]*",
    re.MULTILINE,
)
"""The rest of a message from a forwarded or answered mail or a copied chat on, and what is to be worked on."""

_OPENING_TAG = re.compile(r"<([A-Za-z][\w-]{0,60})(?: [^<>]{0,300})?>")

_QUOTATION = re.compile(
    r"(?<!\d)\"(?:[^\"\n]|\n(?!\n)){1,600}\"|[“„](?:[^“”\n]|\n(?!\n)){1,600}[”“]|«[^«»]{1,600}»|「[^「」]{1,600}」|『[^『』]{1,600}』"
    r"|(?<!`)`[^`\n]{1,200}`(?!`)|(?<![\w'])'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
)


def without_pasted_blocks(text: str) -> str:
    """Return the text with pasted parts blanked out; all other characters keep their offsets.

    Pasted are code (fenced or indented), quoted lines, blocks between tags, logs, forwarded mails, and what a colon
    announces.
    """
    lines = _ANNOUNCED.sub(_blank, _FORWARDED.sub(_blank, _without_code(text))).split("\n")
    return "\n".join("\n" * len(line) if is_log else line for line, is_log in zip(lines, log_lines(lines), strict=True))


def _without_code(text: str) -> str:
    return _INDENTED.sub(_blank, _without_tagged_blocks(_QUOTED.sub(_blank, _FENCED.sub(_blank, text))))


def own_sentences(text: str) -> list[str]:
    """Return the sentences of a user's text without pasted text, each on one line."""
    return _sentences(without_pasted_blocks(text))


def told_sentences(text: str) -> list[str]:
    """Return the sentences that a user's text tells: its own, and those of pasted prose and of a chat's lines.

    The times before the lines of a chat are left out, and paragraphs with lines of a program.
    """
    lines = _without_code(text).split("\n")
    told = "\n".join(_of_chat(line) if is_log else line for line, is_log in zip(lines, log_lines(lines), strict=True))
    return _sentences("\n\n".join(part for part in told.split("\n\n") if not _is_of_program(part)))


def _is_of_program(paragraph: str) -> bool:
    """Return whether one of PROGRAM_LINES lines, or more, is code, a command, a setting or a place in a program."""
    lines = [line for line in paragraph.split("\n") if line.strip()]
    return len(lines) > 1 and PROGRAM_LINES * sum(1 for line in lines if _PROGRAM.search(line)) >= len(lines)


def _of_chat(line: str) -> str:
    """Return a line of a chat without its time; '' for a line of a log."""
    stamp = _STAMP.match(line)
    return line[stamp.end() :] if stamp else ""


def _sentences(text: str) -> list[str]:
    return [one_line(text[start:stop]) for start, stop in sentences_of(text)]


def log_lines(lines: Sequence[str]) -> list[bool]:
    """Return of each line whether it is one of a log.

    It has a time and a level, or is one of LOG_LINES or more with the same kind of beginning.
    """
    looks = [_look(line) for line in lines]
    counts = Counter(looks)
    return [
        bool(look)
        and (counts[look] >= LOG_LINES or (look != "level" and bool(_ANY_LEVEL.search(line, 0, LEVEL_WITHIN))))
        for line, look in zip(lines, looks, strict=True)
    ]


def without_log_lines(text: str) -> str:
    """Blank out a log but the first and last line of each error level, and the headers of a diff.

    All other characters keep their offsets. A log has a time or a level in each line.
    """
    lines = _DIFF_HEADER.sub(_blank, text).split("\n")
    logged = [is_log and bool(_TIMED.match(line)) for line, is_log in zip(lines, log_lines(lines), strict=True)]
    errors: dict[str, list[int]] = defaultdict(list)
    for at, (line, is_log) in enumerate(zip(lines, logged, strict=True)):
        if is_log and (level := _ERROR_LEVEL.search(line, 0, LEVEL_WITHIN)):
            errors[level[0].strip("[]").casefold()].append(at)
    kept = {at for found in errors.values() for at in (found[0], found[-1])}
    return "\n".join(
        "\n" * len(line) if is_log and at not in kept else line
        for at, (line, is_log) in enumerate(zip(lines, logged, strict=True))
    )


def _look(line: str) -> str:
    """Return the pattern of a log line's beginning, such as `0-0-0 0:0`, or 'level'; '' for other lines."""
    if _LEVEL.match(line):
        return "level"
    look = _LETTERS.sub("a", _DIGITS.sub("0", line[:LOOK_CHARACTERS]))[:8]
    return look if look.count("0") >= LOOK_NUMBERS else ""


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
