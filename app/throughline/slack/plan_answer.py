"""Plan of the next step for a growing answer, in pure functions. `answer_message.py` carries it out.

An answer consists of one or more messages. At most one of them is open: it is streamed, or edited as it grows.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from throughline.slack.markdown.cut_text import cut_before

PART_CHARS = 10_000
"""Most characters of one message. Slack accepts 12,000; fences that are closed and reopened need some of them."""

ROLL_SECONDS = 240.0
"""Age in seconds at which a stream is replaced by a new one. Slack ends a stream after about five minutes."""

EDIT_SECONDS = 3.0


Step: TypeAlias = Literal["open", "append", "stop", "edit", "nothing"]


@dataclass(frozen=True, slots=True)
class Written:
    """State of an answer in Slack: its open message if `ts` is set, else the message to open next.

    The message shows the text from `starts` and was sent up to `sent`. `exact` is the end of the shown text, -1 if it
    is not known.
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
        """Return whether the open message is a stream that Slack may end soon."""
        return self.streams and now - self.since > ROLL_SECONDS

    def lacks(self, text: str, now: float) -> bool:
        """Return whether showing `text` would change anything in Slack: it differs, or the stream must be replaced."""
        return self.is_old(now) or visible(text).rstrip() != self.shown.rstrip()

    def opened(self, ts: str, now: float, *, streams: bool = False) -> "Written":
        """Return the state with the open message `ts`; what that message shows is not known yet."""
        return replace(self, ts=ts, streams=streams, since=now, sent=self.starts, exact=-1, edited=now)

    def grown(self, text: str, end: int) -> "Written":
        """Return the state after the stream's next piece, up to `end`, was sent."""
        return replace(self, shown=text[:end], sent=end)

    def rewritten(self, text: str, end: int, now: float) -> "Written":
        """Return the state with an open message that shows exactly its part of `text`, up to `end`."""
        return replace(self, shown=text[:end], sent=end, exact=end, edited=now)

    def closed(self, end: int) -> "Written":
        """Return the state with the message closed at `end`.

        If no message is open, the text up to `end` has no visible content and the message number stays the same.
        """
        return Written(self.part_chars, self.shown, self.number + bool(self.ts), starts=end, sent=end)

    def cut_smaller(self) -> "Written":
        """Return the state with messages of half the length. The open message is then edited to that length."""
        return replace(self, part_chars=self.part_chars // 2, sent=self.starts)


@dataclass(frozen=True, slots=True)
class Piece:
    """Position up to which the current message is written. The message is closed there if `is_last`."""

    end: int
    is_last: bool


def visible(text: str) -> str:
    """Return `text` without blank lines at its beginning, because Slack would refuse them as a message."""
    blank = text[: len(text) - len(text.lstrip())]
    return text[blank.rfind("\n") + 1 :]


def next_piece(written: Written, text: str, *, is_final: bool, now: float) -> Piece:
    """Return how far to write next. The text is complete once a piece ends at the end of `text`."""
    end = max(cut_before(text, written.starts, written.part_chars), min(written.sent, len(text)))
    if end < len(text):
        return Piece(end, is_last=True)
    if not is_final and written.is_old(now):
        return Piece(max(written.sent, text.rfind("\n") + 1), is_last=True)
    return Piece(end, is_last=is_final)


def next_step(written: Written, text: str, piece: Piece, now: float) -> Step:
    """Return the step for `piece`. A piece that does not close its message may wait for more text."""
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
