"""Text that arrives in pieces, cleaned as it comes: a character whose two halves are split over pieces is kept."""

from dataclasses import dataclass, field

from throughline.domain.text import clean_text


@dataclass(slots=True)
class StreamText:
    """Joins pieces. A piece that ends in the first half of a surrogate pair keeps that half back until the next."""

    _held: str = ""
    _pieces: list[str] = field(default_factory=list)

    def feed(self, piece: str) -> str:
        """Return what can be shown now."""
        text = self._held + piece
        self._held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return self._keep(text[: len(text) - len(self._held)])

    def flush(self) -> str:
        """Return what was held back when nothing more comes."""
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
