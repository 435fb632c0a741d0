"""Drawing of texts with their citations, and the remarks on how to read the cited messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from throughline.cli.printable import printable
from throughline.domain.citation import CitationStatus
from throughline.wire.messages import CitationOut

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
