"""Facts that are certain by their form (paths, ids, errors, …), kept verbatim without a model call.

Every summary calls it for each of its messages. From what a person or the assistant says, the whole sentence is kept,
so that its meaning survives. From tool outputs and pasted text, only the token or the error's line is kept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_interface
from itertools import islice

from throughline.context.summaries.readable_text import (
    one_line,
    readable,
    scanned,
    sentences_of,
    without_log_lines,
    without_pasted_blocks,
)
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

# Patterns of facts that are certain by their form: errors, paths, identifiers, commands and settings.
#
# `find_forms` searches texts for them. Each pattern begins after a character that cannot belong to the same
# fact and repeats only bounded, disjoint parts, so that a search is linear in the text. Labels are those of programs,
# independent of any natural language.

TOKEN_CHARACTERS = 240
"""Longest path, address or code that is kept, because a part of it would be wrong; errors and commands are cut."""

ERROR_LEAD = 120
"""Characters before an error's label on its line that still belong to it, such as a time or a logger's name."""


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact in a text at `start:stop`; `subject` is its subject, `rank` its group (lower ones are preferred)."""

    kind: FactKind
    rank: int
    start: int
    stop: int
    subject: str


def find_forms(text: str, *, is_spoken: bool) -> Iterator[FoundFact]:
    """Yield the facts of `text` in order, without nesting: the one that begins first wins, then the longer one.

    `is_spoken` says that a person wrote the text, not a program. Then an exception's bare name and a setting inside a
    sentence count as facts, too, and an error is only its label. In a program's output an error is the whole line.
    """
    shadow = _WITHOUT_SPACES.sub("、", text)
    found = [*_commands_of_blocks(text), *_matches(shadow, text, is_spoken=is_spoken)]
    end = 0
    for item in sorted(found, key=lambda item: (item.start, -item.stop, item.rank)):
        if item.start >= end:
            end = item.stop
            yield item


def _matches(shadow: str, text: str, *, is_spoken: bool) -> Iterator[FoundFact]:
    for rank, (kind, patterns, spoken) in enumerate(_VARIANTS):
        for pattern in (*patterns, *(spoken if is_spoken else ())):
            for match in pattern.finditer(shadow):
                yield from _found(match, text, (kind, rank), is_spoken=is_spoken)


def _found(match: re.Match[str], text: str, group: tuple[FactKind, int], *, is_spoken: bool) -> Iterator[FoundFact]:
    kind, rank = group
    names = match.re.groupindex
    start, stop = match.span("fact") if "fact" in names else match.span()
    if kind is FactKind.ERROR and not is_spoken:
        yield _error_line(text, start)
        return
    if kind is FactKind.IDENTIFIER:
        stop = _before_punctuation(text, start, stop)
    is_whole = stop - start <= TOKEN_CHARACTERS or kind in {FactKind.ERROR, FactKind.COMMAND}
    if is_whole and ("address" not in names or _is_address(text[start:stop])):
        key = match.span("key") if "key" in names else (start, stop)
        yield FoundFact(kind, rank, start, stop, text[slice(*key)])


def _error_line(text: str, label: int) -> FoundFact:
    """Return the line of an error, or from its label on if the line is huge; its subject begins at the label."""
    before = text.rfind("\n", max(0, label - ERROR_LEAD), label)
    start = before + 1 if before >= 0 or label <= ERROR_LEAD else label
    end = text.find("\n", label, label + 4 * TOKEN_CHARACTERS)
    stop = end if end >= 0 else min(len(text), label + 4 * TOKEN_CHARACTERS)
    return FoundFact(FactKind.ERROR, 0, start, stop, text[label:stop])


def _commands_of_blocks(text: str) -> Iterator[FoundFact]:
    """Yield the commands in shell code blocks: lines after a prompt if there are any, else all lines.

    In a block with prompts the other lines are outputs.
    """
    for block in _BLOCK.finditer(text):
        span = block.span("lines")
        prompted = [*(_ROOT_PROMPT if block["shell"] == "console" else _PROMPT).finditer(text, *span)]
        for line in prompted or _LINE.finditer(text, *span):
            yield FoundFact(FactKind.COMMAND, _COMMANDS, *line.span("fact"), line["fact"])


def _before_punctuation(text: str, start: int, stop: int) -> int:
    """Return the end of a token without the punctuation after it, but with a bracket that closes one inside it."""
    token = text[start:stop].rstrip(_TRAILING)
    stop = start + len(token)
    return stop + 1 if text[stop : stop + 1] == ")" and token.count("(") > token.count(")") else stop


def _is_address(text: str) -> bool:
    """Return whether the text is an IP address: `2001:db8::1/64` is one, `10:30:15` and `::add` are not."""
    try:
        ip_interface(text)
    except ValueError:
        return False
    return any(letter.isdigit() for letter in text)


_WITHOUT_SPACES = re.compile(r"[぀-ヿ一-鿿]")
"""Letters of scripts without spaces between words; they end a token."""

_TRAILING = ".,;:!?)]}>'\"*_`、。，；：！？）」"
_REST = r"(?:[^\n\\]|\\[^\n]|\\\n){0,400}"
"""The rest of a line, including the lines that continue it after a backslash."""

_BLOCK = re.compile(
    r"^[ \t]{0,8}```(?P<shell>bash|sh|shell|zsh|console)[ \t]*\n(?P<lines>(?:(?![ \t]{0,8}```)[^\n]*+\n?){1,200}+)",
    re.MULTILINE,
)
_PROMPT = re.compile(rf"^[ \t]{{0,8}}[$>%] (?P<fact>\S{_REST})", re.MULTILINE)
_ROOT_PROMPT = re.compile(rf"^[ \t]{{0,8}}(?:[\w.-]{{1,60}}@[^\s$#]{{1,120}})?[$>%#] (?P<fact>\S{_REST})", re.MULTILINE)
_LINE = re.compile(rf"^[ \t]{{0,8}}(?P<fact>(?!(?:fi|done|esac|else|do|then|EOF)\b)[\w./~]{_REST})", re.MULTILINE)

_REASONS = (
    "Bad Request|Unauthorized|Forbidden|Not Found|Method Not Allowed|Request Timeout|Conflict|Gone|Payload Too Large"
    "|Unprocessable (?:Entity|Content)|Too Many Requests|Internal Server Error|Bad Gateway|Service Unavailable"
    "|Gateway Timeout"
)
_EXCEPTION = r"(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Failure)"
_LEVELS = "ERROR|FATAL|CRITICAL|PANIC|FAILED"
_ERRORS = (
    rf"^[ \t]{{0,8}}(?:E[ \t]+)?(?P<fact>{_EXCEPTION}(?::[ \t]|[ \t]*$))",
    rf"(?<![\w.]){_EXCEPTION}:[ \t]+[^\s\"']",
    r"^Traceback \(most recent call last\):\n(?:[ \t]+[^\n]{0,400}\n){1,60}+(?P<fact>\S[^\n]{0,400})",
    rf"(?<![\w\"'.])(?:{_LEVELS}|[Ee]rror|[Ff]atal(?: error)?|panic)(?:\[\w{{1,20}}\])?:[ \t]*[^\s,]",
    rf"(?<![\w\"'.])(?:{_LEVELS})(?:\]|[ \t])[ \t]*[^\s=:,]|(?<!\w)npm ERR![ \t]",
    r"(?<=[\d ])\[(?:error|crit|alert|emerg|fatal)\][ \t]+[^\s]",
    r"(?i:(?<!\w)(?:exit(?:ed)?[ _](?:with )?(?:code|status)|exited with|returncode))[ \t:=]{1,3}-?[1-9]\d{0,2}\b",
    r"^[Ee]rror(?:_message)?:\n(?P<fact>\S[^\n]{0,400})",
    rf"(?<![\w.])[45]\d\d[ \t](?:{_REASONS})\b",
    r"(?<!\w)(?:HTTP(?:/[\d.]{1,3})?|status(?:[ _]code)?)[ \t:=]{1,3}[45]\d\d\b",
    r"(?<!\S)[^\s:]{1,200}: (?:command not found|No such file|Permission denied|Connection refused|Address already)",
    r"(?<!\w)(?:[Ff]ailed with (?=[\"'`\d]|[A-Z]\w{0,30}[a-z][A-Z])|Segmentation fault|OOMKilled|CrashLoopBackOff)",
    r"(?<!\w)(?:ERR_[A-Z0-9_]{2,60}|ECONN[A-Z]{3,12}|E(?:NOENT|ACCES|PERM|ADDRINUSE|TIMEDOUT|PIPE|NOMEM|NOSPC))\b",
)
_EXTENSIONS = (
    "py|ipynb|[cm]?[jt]sx?|jsonl?|ya?ml|toml|ini|cfg|conf|env|lock|md|rst|txt|log|csv|tsv|parquet|sql|sqlite|db|html?|css"
    "|xml|svg|png|jpe?g|pdf|docx?|xlsx?|pptx?|zip|t?gz|sh|ps1|go|rs|rb|php|java|kt|c|cc|cpp|h|cs|tf|pem|key|crt|bak|diff"
    "|patch|service"
)
_PART = r"(?:[\w.@+%=-]|\\[ ()&']){1,120}"
_WORD = r"[^\s\\/<>\"'`|?*:;,]{1,100}"
_NO_FILES = r"(?:Node|Vue|Next|React|Three|D3|Express)\.js\b"
_FILE = rf"(?:(?!{_NO_FILES})[\w+-]{{1,80}}(?:\.[\w+-]{{1,40}}){{0,4}}\.(?:{_EXTENSIONS})|Makefile|Dockerfile|\.env)"
_LINE_NUMBER = r"(?::\d{1,6}){0,2}"
_PATHS = (
    r"(?<!\w)(?P<mark>[\"'`])(?P<fact>(?:(?:~|\.{1,2})?/|[A-Za-z]:[\\/])(?!/)[^\"'`\n]{1,240})(?P=mark)",
    rf"(?<![\w/.:<*@%+=\\-])(?=[^a-zA-Z\n]{{0,40}}[a-zA-Z])(?:(?:~|\.{{1,2}})/|/{_PART}/)(?:{_PART}/){{0,30}}(?:{_PART})?"
    + _LINE_NUMBER,
    rf"(?<!\w)(?:[A-Za-z]:[\\/](?!/)|\\\\(?=\w))(?:{_WORD}(?: {_WORD}){{0,4}}\\){{0,30}}[^\s<>\"'`|?*:;,]{{1,240}}",
    rf"(?<![\w/.@:%$\\-])(?:[\w.@+-]{{1,100}}/){{0,30}}{_FILE}{_LINE_NUMBER}(?![\w@/(-]|\.\w)",
    r"(?<![\w/.@:%$\\-])(?=[\d/]{0,40}[a-z_])(?:[a-z0-9_][a-z0-9_.-]{0,100}/){2,30}[a-z0-9_.-]{0,100}(?!\w)",
)
_BODY = r"[^\s<>\"'`|\\^{}\u3000-\u303f\uff01-\uff60]"
_HOST = r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}"
_ADDRESSES = (
    rf"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,15}}://(?:{_BODY}{{1,400}}|、[!-~、]{{1,400}})",
    rf"(?<![\w.@/-]){_HOST}(?::\d{{2,5}})?/(?=[^\s/]{{0,40}}[A-Za-z]){_BODY}{{1,400}}",
    rf"(?<![\w.+-])[\w.+-]{{1,64}}@{_HOST}(?::[\w.~-]{{0,80}}/[\w.~/-]{{1,200}})?(?![\w-])",
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}|:\d{1,5})?(?![\w.]\w)",
    r"(?<![\w:.])(?P<address>[0-9A-Fa-f:]{2,39}(?:/\d{1,3})?)(?![\w:])",
    rf"(?<![\w.-])(?:localhost|{_HOST}|[a-z]{{1,30}}(?:-[a-z0-9]{{1,30}}){{1,6}}):\d{{2,5}}(?!\w|[:.]\w)",
)
_FIELD = r"(?<!\w)\w{0,40}(?:_id|_ID|Id|ID|\bid|_key|sha|sku|PNR)[\"']?[ \t]?[:=]\s{0,2}[\"'\[]{0,2}"
_NO_CODES = "(?:UTF|SHA|MD|AES|RSA|GPT|ISO|COVID|TLS|TOP)-"
_BEFORE_CODE, _BEHIND_CODE = r"(?<![\w.@/&+=-])", r"(?![\w+/=-]|\.\d)"
_CODES = (
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|arn:aws:[\w:/.*+-]{1,230}",
    rf"(?!{_NO_CODES})(?:[A-Z]{{1,10}}\d?-\d{{3,12}}|[A-Z]{{2,10}}-\d{{1,2}})",
    r"[a-z]{1,30}(?:-[a-z0-9]{1,30}){1,5}-\d{1,9}|[A-Za-z]{1,30}(?:_[A-Za-z0-9]{1,30}){0,6}_\d{1,9}",
    r"(?=[A-Z]{0,23}\d)(?=\d{0,23}[A-Z])[A-Z0-9]{5,24}|(?=[a-f]{0,63}\d)(?=\d{0,63}[a-f])[a-f0-9]{7,64}",
    r"#[A-Z]{0,6}-?\d{2,14}|v\d{1,5}(?:\.\d{1,6}){1,3}(?:-[\w.]{1,20})?",
)
_IDENTIFIERS = (
    *_ADDRESSES,
    rf"{_FIELD}(?P<fact>(?=[a-z-]{{0,40}}[\dA-Z_])[\w.:@-]{{3,100}})",
    *(f"{_BEFORE_CODE}(?:{code}){_BEHIND_CODE}" for code in _CODES),
)
_NO_PROGRAMS = "(?:if|for|while|return|def|class|import|from|not|with|else|raise|await|type|const|let|var)"
_PROGRAM = rf"(?!{_NO_PROGRAMS}\b)(?:[A-Z_]{{1,40}}=\S{{1,60}} ){{0,3}}(?:\.{{0,2}}/|~/)?[a-z][\w.+/-]{{0,60}}"
_COMMAND_FORMS = (
    rf"^[ \t]{{0,8}}(?:[\w.-]{{1,60}}@[^\s$#]{{1,120}})?\$ (?P<fact>[A-Za-z./~_]{_REST})",
    rf"(?<!`)`(?:\$ )?(?P<fact>{_PROGRAM} (?![=<>!+*&|?:(]|is\b|in\b|and\b|or\b)[^`\n]{{1,400}})`(?!`)",
)
_KEY = r"-{0,2}[A-Za-z_][\w.-]{0,79}"
_LABEL = r"(?:[A-Z]{2,40}|[a-z][\w.-]{1,60})"
_SETTING = r"(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|[^\s\"'=(){}\[\],;]{1,200})"
_ITEM = r"^[ \t]{0,8}(?:[-*] |export )?"
_SETTINGS = (
    rf"{_ITEM}(?P<fact>(?P<key>{_KEY})(?: ?= ?|==){_SETTING})[ \t]*$",
    rf"{_ITEM}(?P<fact>(?P<key>[A-Z][A-Z0-9]{{0,40}}[-_.][A-Z0-9_.-]{{1,40}}):[ \t]+\S[^\n]{{0,200}})$",
    rf"{_ITEM}(?P<fact>(?P<key>{_LABEL}):[ \t]+(?=\D{{0,60}}\d){_SETTING})[ \t]*$",
)


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.MULTILINE) for pattern in patterns)


_VARIANTS = (
    (FactKind.ERROR, _compiled(*_ERRORS), _compiled(rf"(?<![\w.`]){_EXCEPTION}\b")),
    (FactKind.IDENTIFIER, _compiled(*_PATHS), ()),
    (FactKind.IDENTIFIER, _compiled(*_IDENTIFIERS), ()),
    (FactKind.COMMAND, _compiled(*_COMMAND_FORMS), ()),
    (FactKind.VALUE, _compiled(*_SETTINGS), _compiled(rf"(?<![\w./?&=-])(?P<fact>(?P<key>{_KEY})={{1,2}}{_SETTING})")),
)
"""Groups of patterns by rank: the kind, its patterns, and those that count only in a person's own words."""

_COMMANDS = [kind for kind, _, _ in _VARIANTS].index(FactKind.COMMAND)


FACT_CHARACTERS = 240
"""Longest fact: a longer sentence is cut to the words around its fact; a longer error or command ends in `…`."""

SUBJECT_CHARACTERS = 80
"""Longest subject of an error or a command; a longer one ends in `…`."""

MAX_SPOKEN_FACTS = 30
"""Most facts taken from the own words of one message of a person or the assistant."""

MAX_OUTPUT_FACTS = 12
"""Most facts taken from one tool output, one call's arguments, or all pasted text of one message."""


@dataclass(frozen=True, slots=True)
class _Quote:
    """A fact before it has a position in the session; `start` is its offset in the text."""

    start: int
    kind: FactKind
    text: str
    subject: str


def structured_facts(message: Message) -> tuple[KeptFact, ...]:
    """Return the facts of a message in order of appearance, each once; those of its tool calls come last.

    Each stands word for word in the message, with single spaces, or in a text inside its JSON. Of a huge text only head
    and tail are read. The time is linear in the text read.
    """
    text = text_of(message.content)
    quotes = _of_output(readable(text)) if message.role is Role.TOOL else _of_speech(text)
    for call in message.tool_calls:  # an error in a call is looked for and did not happen
        quotes += (one for one in _of_output(readable(call.arguments)) if one.kind is not FactKind.ERROR)
    once: dict[tuple[FactKind, str], KeptFact] = {}
    for quote in quotes:
        fact = KeptFact(quote.kind, quote.text, message.position, message.role, quote.subject)
        once.setdefault((quote.kind, quote.text), fact)
    return tuple(once.values())


def _of_output(text: str) -> list[_Quote]:
    return _tokens(scanned(text))


def _of_speech(text: str) -> list[_Quote]:
    text = scanned(text)
    own = without_pasted_blocks(text)
    pasted = "".join("\n" if letter == kept else letter for letter, kept in zip(text, own, strict=True))
    quotes = [*islice(_sentences(own), MAX_SPOKEN_FACTS), *_tokens(pasted)]
    return sorted(quotes, key=lambda quote: quote.start)


def _tokens(text: str) -> list[_Quote]:
    """Return the facts of tool output or pasted text, each subject once; if there are too many, errors come first."""
    text = without_log_lines(text)
    once: dict[tuple[FactKind, str], FoundFact] = {}
    for item in find_forms(text, is_spoken=False):
        once.setdefault((item.kind, item.subject), item)
    kept = sorted(once.values(), key=lambda item: item.rank)[:MAX_OUTPUT_FACTS]
    return [
        _quote(text, item, item.start, item.stop, item.subject) for item in sorted(kept, key=lambda item: item.start)
    ]


def _sentences(own: str) -> Iterator[_Quote]:
    """Yield the sentences that contain a fact; the first fact in a sentence determines its kind and subject."""
    sentences = sentences_of(own)
    first = last = end = 0
    for item in find_forms(own, is_spoken=True):
        while last <= item.start:
            first, last = next(sentences, (item.start, item.stop))
        if item.start < end:
            continue
        start, end = _around(own, item, min(first, item.start), max(last, item.stop))
        subject = own[item.start : last].rstrip(_ENDS) if item.kind is FactKind.ERROR else item.subject
        yield _quote(own, item, start, end, subject)


def _around(text: str, item: FoundFact, first: int, last: int) -> tuple[int, int]:
    """Return the offsets of the sentence, or of as many whole words around the fact as fit.

    A command not ended by a backtick stands alone after a prompt; only the command itself is returned.
    """
    if item.kind is FactKind.COMMAND and not text.startswith("`", item.stop):
        return item.start, item.stop
    if len(" ".join(text[first:last].split())) <= FACT_CHARACTERS:
        return first, last
    room = max(0, FACT_CHARACTERS - (item.stop - item.start))
    stop = min(last, max(first, item.start - room // 2) + FACT_CHARACTERS)
    start = max(first, stop - FACT_CHARACTERS)
    before = text[start : item.start] if start == first else text[start : item.start].partition(" ")[2]
    behind = text[item.stop : stop] if stop == last else text[item.stop : stop].rpartition(" ")[0]
    return item.start - len(before), item.stop + len(behind)


def _quote(text: str, item: FoundFact, start: int, stop: int, subject: str) -> _Quote:
    quote = one_line(text[start:stop], FACT_CHARACTERS)
    return _Quote(start, item.kind, quote, one_line(subject, SUBJECT_CHARACTERS))


_ENDS = " \t\n.!?…"
