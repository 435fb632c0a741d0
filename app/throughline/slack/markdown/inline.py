"""The text of one line in Slack's Markdown, with its links and images.

Nothing in it notifies people, and no link misleads about its target.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from urllib.parse import urlsplit

from throughline.context.markdown import Span, spans

ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"
MASK = "\0"
"""Placeholder for a code span while the text around it is processed. No text contains it, see domain/message.py."""

_CONTROL_IN_CODE = re.compile(
    r"<(?=!(?:channel|here|everyone|group)\b|!(?:subteam|date)\^|@[UW][A-Z0-9]{7,}+[>|]|#[CG][A-Z0-9]{7,}+[>|])"
)
_CONTROL = re.compile(
    r"(?i:<(?P<address>(?:https?://|mailto:)[^\s<>|]++)>"
    r"|(?P<sign><|&(?:lt|#0*+60|#x0*+3c);)(?=[\\!@#&]|[a-z][a-z0-9+.\-]*+:(?!:)))"
)
"""Text that Slack could take for a control sequence, which must not keep its `<`.

Addresses in angle brackets are matched as well, because they are kept.
"""

_BROADCAST = re.compile(r"(?i:(?<![a-z0-9.@/])@(?=(?:channel|here|everyone|group)(?![a-z0-9])))")
_TARGET = r"\]\((?:\s*+<?([^)\s>]++)>?[^)\n]*+\)|[^)\n]*+(?![^\n]))"
"""A link's target, or the rest of a line without a closing bracket: no link can begin in that rest."""

_LINK = re.compile(rf"(?<!\\)(!?+)\[([^\[\]\n]*+){_TARGET}|\](?=\()|!(?=\[)")
_DEFINITION = re.compile(r"^[ \t>]*+\[[^\[\]\n]++\](?=:)")
_LINKABLE = ("http://", "https://", "mailto:")
_HOST = re.compile(r"(?i:(?<![a-z0-9.\-])(?:[a-z0-9\-]++\.)++[a-z]{2,}+(?![a-z0-9.\-]))")
_FILE_ENDINGS = (
    *(".cfg", ".cpp", ".cs", ".css", ".csv", ".go", ".html", ".ini", ".java", ".js", ".json", ".log", ".md", ".pdf"),
    *(".php", ".py", ".rb", ".rs", ".sh", ".sql", ".toml", ".ts", ".txt", ".xml", ".yaml", ".yml"),
)
"""File endings. Names such as `README.md` or `Node.js` do not count as hosts, though hosts may end so, too."""
_BOLD = re.compile(r"\*\*(?=[^*\s])([^*]++)(?<!\s)\*\*")


def inline(line: str) -> str:
    """Return a line or a table cell in Slack's Markdown."""
    found, _ = spans(line)
    return _joined(line, found)


def inline_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of one paragraph in Slack's Markdown.

    A line may leave a code span open, which could end in any later line. Nothing after such a line is treated as code.
    """
    is_open = False
    for line in lines:
        is_open = is_open and bool(line.strip())
        found, leaves_open = spans(line)
        yield _joined(line, () if is_open else found)
        is_open = is_open or leaves_open


def harmless_code(text: str) -> str:
    """Return code unchanged, except for sequences that notify or link to a user or channel even in code."""
    return _CONTROL_IN_CODE.sub(f"<{ZERO_WIDTH_SPACE}", text)


def plain(cell: str) -> str:
    """Return the text of a cell without Markdown: no marks, and links with their addresses."""
    found, _ = spans(cell)
    words = _BOLD.sub(r"\1", _LINK.sub(_written_out, _masked(cell, found)))
    return harmless_code(_unmasked(words, [cell[span.start : span.end].strip("`") for span in found]))


def _joined(line: str, found: Sequence[Span]) -> str:
    codes = [line[span.start : span.end] for span in found]
    shown = _Links(codes).read(_masked(line, found))
    shown = _CONTROL.sub(_without_control, _DEFINITION.sub(_broken, shown))
    return _unmasked(_BROADCAST.sub(f"@{ZERO_WIDTH_SPACE}", shown), [harmless_code(code) for code in codes])


def _masked(line: str, found: Sequence[Span]) -> str:
    """Return the line with one placeholder for each code span."""
    pieces, at = list[str](), 0
    for span in found:
        pieces.append(line[at : span.start].replace(MASK, "\N{REPLACEMENT CHARACTER}"))
        at = span.end
    pieces.append(line[at:].replace(MASK, "\N{REPLACEMENT CHARACTER}"))
    return MASK.join(pieces)


def _unmasked(text: str, codes: Sequence[str]) -> str:
    words = text.split(MASK)
    return "".join(piece for pair in zip_longest(words, codes, fillvalue="") for piece in pair)


class _Links:
    """Conversion of the links in a masked line, from its beginning to its end."""

    def __init__(self, codes: Sequence[str]) -> None:
        """Convert links in a line whose masked code spans are `codes`."""
        self._codes = codes
        self._at = self._passed = 0

    def read(self, masked: str) -> str:
        """Return the line with its links as they may be shown."""
        return _LINK.sub(self._shown, masked)

    def _shown(self, found: re.Match[str]) -> str:
        """Return a link or image of the line as it may be shown.

        An image becomes its description and its address as text. A link whose label misleads about its target is
        written out. A link whose scheme is not http, https or mailto loses its effect.
        """
        label, target = found[2], found[3]
        if label is None:
            return _broken(found)
        if not target:
            return found[0]
        if found[1]:
            return f"{label or 'image'} (`{target.replace('`', '')}`)"
        if not target.lower().startswith(_LINKABLE):
            return found[0].replace("](", f"]{ZERO_WIDTH_SPACE}(", 1)
        return f"{label} ({target})" if _misleads(self._words_of(found), target) else found[0]

    def _words_of(self, found: re.Match[str]) -> str:
        """Return the label with its code spans. Code spans before the label are counted on from the previous call."""
        self._passed += found.string.count(MASK, self._at, found.start())
        self._at = found.start()
        return _unmasked(found[2], self._codes[self._passed : self._passed + found[2].count(MASK)])


def _misleads(label: str, target: str) -> bool:
    """Return whether the label names a host that is not the target's host."""
    host = _host_of(target)
    named = (name.lower() for name in _HOST.findall(label))
    return any(not f".{host}".endswith(f".{name}") and not name.endswith(_FILE_ENDINGS) for name in named)


def _host_of(target: str) -> str:
    try:
        parts = urlsplit(target)
    except ValueError:  # an incomplete IPv6 address
        return ""
    return (parts.hostname or parts.path.rpartition("@")[2]).lower()


def _written_out(found: re.Match[str]) -> str:
    return f"{found[2]} ({found[3]})" if found[3] else found[0]


def _broken(found: re.Match[str]) -> str:
    return found[0] + ZERO_WIDTH_SPACE


def _without_control(found: re.Match[str]) -> str:
    return found[0] if found["address"] else found["sign"] + ZERO_WIDTH_SPACE
