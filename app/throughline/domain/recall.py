"""Recall: what can be asked of the stored history, and what is found in it."""

from dataclasses import dataclass, field
from datetime import datetime

from throughline.domain.ids import RunId, SessionId
from throughline.domain.message import Message, Role


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which messages may be found; None lets all pass. Positions are included in neither bound.

    `author` and `tool` are compared whatever the case; `phrases` must all stand in the text as they are written;
    `before_run` leaves out that run's messages and all later ones of its session.
    """

    role: Role | None = None
    tool: str | None = None
    author: str | None = None
    after: int | None = None
    before: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    phrases: tuple[str, ...] = ()
    before_run: RunId | None = None

    @property
    def is_open(self) -> bool:
        """Whether every message passes."""
        return self == HistoryFilter()


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """What to look for: words as a person would write them, how many messages at most, and which may be found."""

    text: str
    limit: int = 10
    only: HistoryFilter = field(default_factory=HistoryFilter)


@dataclass(frozen=True, slots=True)
class Hit:
    """A found message. `highlights` are the places in `snippet` (from, to) that the query's words match."""

    message: Message
    score: float
    snippet: str
    highlights: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The best hits, best first, and the sessions of which not all messages could be looked at in time."""

    hits: tuple[Hit, ...]
    incomplete_sessions: tuple[SessionId, ...] = ()
