"""Plan of what to send next of one growing answer: values in, values out. `answer_message.py` sends it.

An answer is written as one message or several. At most one of them is open: it is streamed, or edited as it grows.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from throughline.slack.markdown.cut_text import cut_before

PART_CHARS = 10_000
"""Slack takes 12,000 characters of Markdown at a time; fences that are closed and opened again need some."""

ROLL_SECONDS = 240.0
"""Slack ends a stream after about five minutes; a fresh one is begun before."""

EDIT_SECONDS = 3.0


Step: TypeAlias = Literal["open", "append", "stop", "edit", "nothing"]


@dataclass(frozen=True, slots=True)
class Written:
    """What Slack has of an answer: the open message, if it has a `ts`, else the message to be opened next.

    The message shows the text from `starts`, which is sent up to `sent`; `exact` is where it ends if that is known.
    """

    part_chars: int = PART_CHARS
    shown: str = ""
    number: int = 1
    starts: int = 0
    ts: str = ""
    streams: bool = False
    since: float = 0.0
    sent: int = 0
    exact: int = -1
    edited: float = 0.0

    def is_old(self, now: float) -> bool:
        """Whether the open message is a stream that Slack may end soon."""
        return self.streams and now - self.since > ROLL_SECONDS

    def lacks(self, text: str, now: float) -> bool:
        """Whether showing `text` would change anything."""
        return self.is_old(now) or visible(text).rstrip() != self.shown.rstrip()

    def opened(self, ts: str, now: float, *, streams: bool = False) -> "Written":
        """Return this with an open message; what it shows is not known yet."""
        return replace(self, ts=ts, streams=streams, since=now, sent=self.starts, exact=-1, edited=now)

    def grown(self, text: str, end: int) -> "Written":
        """Return this with the stream's next piece sent, up to `end`."""
        return replace(self, shown=text[:end], sent=end)

    def rewritten(self, text: str, end: int, now: float) -> "Written":
        """Return this with an open message that shows exactly its part of `text`, up to `end`."""
        return replace(self, shown=text[:end], sent=end, exact=end, edited=now)

    def closed(self, end: int) -> "Written":
        """Return this with the message ended at `end`; where none is open, the text up to there shows nothing."""
        return Written(self.part_chars, self.shown, self.number + bool(self.ts), starts=end, sent=end)

    def cut_smaller(self) -> "Written":
        """Return this with messages half as long; the open one is edited to show no more than that."""
        return replace(self, part_chars=self.part_chars // 2, sent=self.starts)


@dataclass(frozen=True, slots=True)
class Piece:
    """Where the message to be written ends for now; it is closed there if `is_last`."""

    end: int
    is_last: bool


def visible(text: str) -> str:
    """Return `text` without blank lines at its beginning, which Slack would refuse alone."""
    blank = text[: len(text) - len(text.lstrip())]
    return text[blank.rfind("\n") + 1 :]


def next_piece(written: Written, text: str, *, is_final: bool, now: float) -> Piece:
    """Return how far to write next; all of `text` is there once a piece ends where it does."""
    end = max(cut_before(text, written.starts, written.part_chars), min(written.sent, len(text)))
    if end < len(text):
        return Piece(end, is_last=True)
    if not is_final and written.is_old(now):
        return Piece(max(written.sent, text.rfind("\n") + 1), is_last=True)
    return Piece(end, is_last=is_final)


def next_step(written: Written, text: str, piece: Piece, now: float) -> Step:
    """Return what to do for `piece`; what is not the last of its message may wait for more."""
    if not written.ts:
        return "open" if text[written.starts : piece.end].strip() else "nothing"
    if written.streams:
        return _next_of_stream(text[written.sent : piece.end], is_last=piece.is_last)
    is_due = piece.is_last or (piece.end > written.starts and now - written.edited >= EDIT_SECONDS)
    return "edit" if is_due and written.exact != piece.end else "nothing"


def _next_of_stream(added: str, *, is_last: bool) -> Step:
    if is_last:
        return "stop"
    return "append" if added.strip() else "nothing"
