"""Finding facts in text, verbatim: paths, URLs, identifiers, numbers with units, dates, commands, errors.

The ledger calls this for every text of a message. What the facts look like is in `fact_finders.py`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughline.context.summaries.fact_checks import is_command
from throughline.context.summaries.fact_finders import COMMAND_LINE, FINDERS, Finder
from throughline.domain.ledger import LedgerKind

FACT_CHARACTERS = 160
"""A longer fact is cut and ends in `…`: one line of a terminal, twice."""

BLOB_CHARACTERS = 60
"""A run of letters and digits of this length in mixed case is base64 (wrapped at 64 or 76), not a name."""


PATH_SEGMENT = 12
"""A run with fewer slashes than one in so many characters is no path: base64 has one in 64."""


WITHDRAWING_CHARACTERS = 24
"""So far before a fact the words may stand that take it back."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact as it stands in a text; `start` is where."""

    kind: LedgerKind
    text: str
    start: int


def find_facts(text: str, *, with_names: bool) -> tuple[Fact, ...]:
    """Return the facts of `text` in the order they stand there, each once and none inside another.

    `with_names` also takes code symbols (`snake_case`, `dotted.name`, `call()`, backticked words) and counted things
    (`42 customers`): what a user names matters, in a program's output it is noise. What the text takes back (`not 38
    euros`) is none.
    """
    text = _without_blobs(text)
    taken = bytearray(len(text))
    found = {
        (fact.kind, fact.text): fact
        for fact in _all_matches(text, taken, with_names=with_names)
        if not _WITHDRAWING.search(text, max(0, fact.start - WITHDRAWING_CHARACTERS), fact.start)
    }
    return tuple(sorted(found.values(), key=lambda fact: fact.start))


def one_line(text: str, most: int) -> str:
    """Return `text` with its white space single, cut visibly to `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _all_matches(text: str, taken: bytearray, *, with_names: bool) -> Iterator[Fact]:
    """Look at shadows of the text: our tags end a line there, and letters of scripts without spaces end a fact."""
    tagless = _TAG.sub(lambda tag: "\n" * len(tag[0]), text)
    shadow = _HAN.sub("、", tagless)
    for block in _SHELL_BLOCK.finditer(tagless):
        yield from _matches(_SHELL_LINE, text, _SHELL_LINE.pattern.finditer(tagless, *block.span("lines")), taken)
    for finder in FINDERS:
        if with_names or not finder.names:
            seen = tagless if finder.as_written else shadow
            yield from _matches(finder, text, finder.pattern.finditer(seen), taken)


def _matches(finder: Finder, text: str, matches: Iterable[re.Match[str]], taken: bytearray) -> Iterator[Fact]:
    for match in matches:
        start, stop = _span(finder, match, text)
        if taken.find(1, start, stop) >= 0 or not finder.keep(text[start:stop]):
            continue
        shown = min(stop - start, FACT_CHARACTERS)
        taken[start : start + shown] = b"\x01" * shown
        yield Fact(finder.kind, one_line(text[start:stop], FACT_CHARACTERS), start)


def _span(finder: Finder, match: re.Match[str], text: str) -> tuple[int, int]:
    start, stop = match.span("fact") if "fact" in finder.pattern.groupindex else match.span()
    if finder.whole_line:
        before = match.string.rfind("\n", max(0, start - FACT_CHARACTERS // 2), start)
        start = before + 1 if before >= 0 else start
    return _trimmed(text, start, stop)


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Leave out what punctuation follows, but for the bracket that closes one inside, and white space before."""
    while stop > start and text[stop - 1] in _TRAILING:
        stop -= 1
    if text[stop : stop + 1] == ")" and text.count("(", start, stop) > text.count(")", start, stop):
        stop += 1
    while start < stop and text[start].isspace():
        start += 1
    return start, stop


def _without_blobs(text: str) -> str:
    return _RUN.sub(lambda run: "\n" * len(run[0]) if _is_blob(run[0]) else run[0], text)


def _is_blob(run: str) -> bool:
    """Tell base64 from long paths and long hex: three kinds of characters, no path's slashes."""
    is_mixed = not run.islower() and not run.isupper() and any(letter.isdigit() for letter in run)
    return len(run) > 4 * FACT_CHARACTERS or (is_mixed and run.count("/") * PATH_SEGMENT < len(run))


_TRAILING = " \t\r\n.,;:!?)]}>'\"*_`、。，；：！？）」"
_HAN = re.compile(r"[ぁ-ヿ一-鿿](?<![元円人个個天年月日秒件条字行小时分钟時間万亿])")
_TAG = re.compile(r"\[#\d{1,9}(?:-#\d{1,9}|[ ][^\]\n]{1,80})?\]")
_SHELL_BLOCK = re.compile(r"```(?:bash|sh|shell|zsh|console)[ \t]*\n(?P<lines>[^`]{1,4000}+)```")
_SHELL_LINE = Finder(
    LedgerKind.COMMAND, re.compile(rf"^[ \t]{{0,8}}(?:\$[ ])?(?P<fact>{COMMAND_LINE})", re.MULTILINE), is_command
)
_WITHDRAWING = re.compile(
    r"(?<!\w)(?:not|no longer|instead of|rather than|nicht|nicht mehr|statt|anstatt|keine|pas|au lieu de|en vez de"
    r"|invece di|em vez de|не|вместо)[ ]\Z",
    re.IGNORECASE,
)
_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{BLOB_CHARACTERS},}}")
