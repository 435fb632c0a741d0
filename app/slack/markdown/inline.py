"""The words of one line: links and images as Slack may show them, and nothing that rings for people or misleads."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"
_TICKS = re.compile(r"(?<!\\)(\\*+)(`++)")
_CONTROL_IN_CODE = re.compile(r"<(?=!(?:channel|here|everyone|group|subteam|date)|@[A-Z0-9]+|#[A-Z0-9]+)")
_CONTROL = re.compile(
    r"(?i:<(?P<address>(?:https?://|mailto:)[^\s<>|]++)>"
    r"|(?P<sign><|&(?:lt|#0*+60|#x0*+3c);)(?=[\\!@#&]|[a-z][a-z0-9+.\-]*+:))"
)
"""Addresses in angle brackets stay. All else that Slack could take for a command of its own does not begin with `<`."""

_BROADCAST = re.compile(r"(?i:(?<![\w.@/-])@(?=(?:channel|here|everyone|group)\b))")
_TARGET = r"\]\((?:\s*+<?([^)\s>]++)>?[^)\n]*+\)|[^)\n]*+(?![^\n]))"
"""A target, or what is left of a line without a closing bracket: no link can begin in it, so none is looked for."""
_IMAGE = re.compile(rf"!\[([^\[\]\n]*+){_TARGET}")
_LINK = re.compile(rf"(?<!!)\[([^\[\]\n]*+){_TARGET}")
_ODD_TARGET = re.compile(r"(?i:\](?=[(:]\s*+<?(?!https?://|mailto:)[a-z][a-z0-9+.\-]*+:)|!(?=\[))")
"""What is left of a link or an image that was no plain one, or is defined elsewhere: it is kept from being one."""
_LINKABLE = ("http://", "https://", "mailto:")
_SCHEME = re.compile(r"(?i:https?://|www\.)")


def inline(line: str) -> str:
    """Return a line, or a cell, for Slack."""
    return "".join(harmless_code(piece) if is_code else _shown(piece) for piece, is_code in _pieces(line))


def harmless_code(text: str) -> str:
    """Return code as it is, but for what would ring or link to a user or a channel even there."""
    return _CONTROL_IN_CODE.sub(f"<{ZERO_WIDTH_SPACE}", text)


def plain(cell: str) -> str:
    """Return the words of a cell for where no Markdown is read: without marks, a link with its address."""
    marked = _LINK.sub(_written_out, _IMAGE.sub(_written_out, cell))
    return harmless_code(marked.replace("`", "").replace("**", "").replace("__", ""))


def _written_out(found: re.Match[str]) -> str:
    return f"{found[1]} ({found[2]})" if found[2] else found[0]


def _pieces(line: str) -> Iterator[tuple[str, bool]]:
    """Yield what lies between code spans and the spans themselves: a span ends at as many backticks as began it."""
    runs = list(_TICKS.finditer(line))
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for run in runs:
        by_length[len(run[2])].append(run.start(2))
    at = 0
    for run in runs:
        begins, end = run.start(2) + len(run[1]) % 2, run.end()  # a backslash takes the first for itself, or another
        closers = by_length[end - begins]
        found = bisect_right(closers, begins)
        if begins < at or begins == end or found == len(closers):
            continue
        closes = closers[found] + end - begins
        yield line[at:begins], False
        yield line[begins:closes], True
        at = closes
    yield line[at:], False


def _shown(text: str) -> str:
    linked = _LINK.sub(_link, _IMAGE.sub(_image, text))
    return _BROADCAST.sub(f"@{ZERO_WIDTH_SPACE}", _CONTROL.sub(_without_control, _ODD_TARGET.sub(_broken, linked)))


def _image(found: re.Match[str]) -> str:
    return f"{found[1] or 'image'} (`{found[2]}`)" if found[2] else found[0]


def _link(found: re.Match[str]) -> str:
    """Return the link; one that leads nowhere, or elsewhere than it says, is written out."""
    label, target = found[1], found[2]
    if not target:
        return found[0]
    if not target.lower().startswith(_LINKABLE):
        return f"{label} (`{target}`)"
    is_misleading = _SCHEME.match(label.strip()) is not None and _bare(label) != _bare(target)
    return f"{label} ({target})" if is_misleading else found[0]


def _bare(address: str) -> str:
    return address.strip().lower().removeprefix("https://").removeprefix("http://").removesuffix("/")


def _broken(found: re.Match[str]) -> str:
    return found[0] + ZERO_WIDTH_SPACE


def _without_control(found: re.Match[str]) -> str:
    return found[0] if found["address"] else found["sign"] + ZERO_WIDTH_SPACE
