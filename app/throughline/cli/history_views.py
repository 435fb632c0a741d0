"""Drawing of messages of the history and of search results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from throughline.cli.printable import CONTROL, one_line, printable
from throughline.domain.recall import CitationStatus
from throughline.wire.messages import CitationOut, CitedMessageOut, HitOut, MessageOut

UNCONFIRMED = " ?"
"""Mark behind a citation that is not valid."""

MOST_REMARKS = 3
VALID_STYLE, INVALID_STYLE = "underline", "yellow"
REASONS: Mapping[str, str] = {
    CitationStatus.NO_SUCH_MESSAGE: "there is no such message",
    CitationStatus.QUOTATION_NOT_FOUND: "the message does not contain the quotation",
}
"""What is wrong with a citation, by its status. A status that is not known here marks nothing."""


def draw_cited(text: str, citations: Sequence[CitationOut]) -> Text:
    """Return the text with valid citations underlined and the others marked, as in `[#12 ?]`."""
    return Text("").join(Text(printable(piece), style=style) for piece, style in _pieces(text, citations))


def marked(text: str, citations: Sequence[CitationOut]) -> str:
    """Return the text with citations that are not valid marked, as in `[#12 ?]`."""
    return "".join(piece for piece, _ in _pieces(text, citations))


def problems(citations: Iterable[CitationOut]) -> tuple[str, ...]:
    """Return what is wrong with the first citations that are not valid, one line for each."""
    wrong = [f"[{_positions(one)}{UNCONFIRMED}] {REASONS[one.status]}" for one in citations if one.status in REASONS]
    named = list(dict.fromkeys(wrong))
    rest = len(named) - MOST_REMARKS
    return (*named[:MOST_REMARKS], *([f"and {rest} more citations are not valid"] if rest > 0 else []))


def reading_hint(citations: Iterable[CitationOut], session_id: str) -> str:
    """Return the command that shows the first cited messages of the session, '' without a valid citation of it."""
    readable = (one for one in citations if one.status == CitationStatus.VALID and one.session_id == session_id)
    first = next(readable, None)
    return "" if first is None else f"/read {_positions(first).replace('#', '')} shows [{_positions(first)}]"


def _positions(citation: CitationOut) -> str:
    is_one = citation.from_position == citation.to_position
    return f"#{citation.from_position}" if is_one else f"#{citation.from_position}-#{citation.to_position}"


def _pieces(text: str, citations: Sequence[CitationOut]) -> Iterator[tuple[str, str]]:
    """Yield the pieces of the text with their styles. A range that is not that of a citation is ignored."""
    at = 0
    for citation in citations:
        if not at <= citation.start < citation.end <= len(text) or text[citation.start] != "#":
            continue
        yield text[at : citation.start], ""
        at = citation.end
        if citation.status in REASONS:
            yield f"{text[citation.start : at]}{UNCONFIRMED}", INVALID_STYLE
        else:
            yield text[citation.start : at], VALID_STYLE if citation.status == CitationStatus.VALID else ""
    yield text[at:], ""


SHOWN_TOOL_TEXT = 160
HEAD_LINES, HEAD_CHARACTERS = 12, 1_500
"""What is shown of a long message where it is shortened."""

SPARED = 1.5
"""A message is shortened if it is longer than its head by this factor: the remark would take the place of little."""

PIN = "📌"


def text_of(message: MessageOut) -> str:
    """Return the text of a message, with `[image]` in place of an image."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(block.get("text", f"[{block.get('type', 'block')}]")) for block in message.content)


def draw_message(message: CitedMessageOut, *, shortened: bool = False) -> Text:
    """Return a message with its position and its citations marked; a tool's result is cut to one line.

    If `shortened`, a long text is cut to its head, with a remark on what is left out and how to see it.
    """
    pinned = f"{PIN} " if message.pinned else ""
    style = "bold" if message.role == "user" else "cyan"
    head = Text(f"#{message.position} {pinned}{printable(_speaker(message))} ", style=style)
    if message.role == "tool":
        return head + Text(one_line(text_of(message), limit=SHOWN_TOOL_TEXT), style="dim")
    calls = [
        Text(f"\n  calls {one_line(f'{call.name} {call.arguments}', limit=SHOWN_TOOL_TEXT)}", style="dim")
        for call in message.tool_calls
    ]
    text = text_of(message)
    shown = _draw_head(text, message.citations, message.position) if shortened else draw_cited(text, message.citations)
    return Text("").join([head, shown, *calls])


def draw_hit(hit: HitOut, *, names_session: bool = False) -> Text:
    """Return a search result: the position, the author, and the snippet with its matches in bold."""
    where = f"{hit.session_id} " if names_session else ""
    head = f"{printable(where)}#{hit.message.position} {printable(_speaker(hit.message))} "
    return Text("").join([Text(head, style="cyan"), _snippet(hit)])


def _draw_head(text: str, citations: Sequence[CitationOut], position: int) -> Text:
    """Return the first lines of a long text and a remark, or all of a text that is not long."""
    lines = text.splitlines(keepends=True)
    if len(text) <= HEAD_CHARACTERS * SPARED and len(lines) <= HEAD_LINES * SPARED:
        return draw_cited(text, citations)
    whole_lines = "".join(lines[:HEAD_LINES])
    head = whole_lines[:HEAD_CHARACTERS]
    left_out = f"{len(lines) - HEAD_LINES:,} lines" if head == whole_lines else f"{len(text) - len(head):,} characters"
    remark = f"\n… {left_out} left out; /read {position}-{position} shows it whole"
    return draw_cited(head.rstrip(), citations) + Text(remark, style="dim")


def _speaker(message: MessageOut) -> str:
    return f"{message.role} {message.name}" if message.name else message.role


def _snippet(hit: HitOut) -> Text:
    """Return the snippet with its matches in bold.

    Control characters are replaced one for one, so that the offsets of the matches stay valid.
    """
    shown = Text(CONTROL.sub("\N{REPLACEMENT CHARACTER}", hit.snippet.replace("\n", " ")))
    for start, end in hit.highlights:
        shown.stylize("bold", start, end)
    return shown
