"""Text that arrives in pieces, cleaned on arrival; a surrogate pair split over two pieces stays one character."""

from dataclasses import dataclass, field

from throughline.domain.text import clean_text


@dataclass(slots=True)
class StreamText:
    """Joins the pieces of a streamed text and replaces characters that cannot be stored.

    The first half of a surrogate pair at a piece's end is kept for the next piece.
    """

    _held: str = ""
    _pieces: list[str] = field(default_factory=list)

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that is complete now."""
        text = self._held + piece
        self._held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return self._keep(text[: len(text) - len(self._held)])

    def flush(self) -> str:
        """Return the text held back so far; call it after the last piece."""
        held, self._held = self._held, ""
        return self._keep(held)

    @property
    def whole(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def _keep(self, text: str) -> str:
        cleaned = clean_text(text)
        if cleaned:
            self._pieces.append(cleaned)
        return cleaned
