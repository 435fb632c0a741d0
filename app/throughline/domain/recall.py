"""Recall: queries of the stored message history, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from throughline.domain.basic_types import JsonObject, MemoryId, RunId, SessionId, UserId
from throughline.domain.message import Message, Role
from throughline.domain.prompt import Usage


class CitationStatus(StrEnum):
    """The result of comparing a citation with the stored messages."""

    VALID = "valid"
    NO_SUCH_MESSAGE = "no_such_message"
    QUOTATION_NOT_FOUND = "quotation_not_found"


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation in a text, not checked yet.

    `start` (inclusive) and `end` (exclusive) are the character range of its positions in the text, without the
    brackets. Both positions are inclusive; they are equal if the text names one message.
    `session_id` is None if the text names no session. `quotation` is the text in quotation marks beside it, or ''.
    """

    start: int
    end: int
    from_position: int
    to_position: int
    session_id: SessionId | None = None
    quotation: str = ""


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation with the session it refers to and the result of its check."""

    start: int
    end: int
    from_position: int
    to_position: int
    session_id: SessionId
    status: CitationStatus


Vector: TypeAlias = tuple[float, ...]

MAX_DIMENSIONS = 16_000
"""The most dimensions that pgvector can store."""


@dataclass(frozen=True, slots=True)
class VectorKind:
    """Model and dimensions, which must be equal for vectors to be comparable."""

    model: str
    dimensions: int


class Embedder(Protocol):
    """An embedding model. Only vectors of the same `model` and the same length can be compared."""

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`; vectors are stored under it."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return one vector for each text, in the order of the texts, all of one length.

        Of one text beyond the model's input limit the beginning is embedded. Raises the errors of models, see
        domain/errors.py, and ContextOverflow if one of several texts is too long.
        """

    async def usage_of(self, texts: Sequence[str]) -> Usage:
        """Return the tokens of the texts by the service's own count, which is no provider's report, and their cost."""


FoundBy: TypeAlias = Literal["vector", "text"]
"""How a search ranked: `vector` by meaning and words combined, `text` by words alone."""


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Conditions on the messages that a search may find; None accepts all.

    `after` and `before` are exclusive positions. Times from `since` (inclusive) to `until` (exclusive) are accepted.
    `author` and `tool` are compared case-insensitively. All `phrases` must occur in the text exactly as written.
    `before_run` excludes that run's messages and all later messages of its session.
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
        """Whether the filter accepts every message."""
        return self == HistoryFilter()


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A search query: the words, the most messages to return, the filter, and the day it is asked on.

    `today` is what "yesterday" or a month without a year refers to; None: such words are searched as text. A search
    that `is_before_turn` writes no index for a session, and misses most messages where many are not indexed yet. A
    query that `is_plain` has neither filters nor phrases: its text was not written for a search. A hit's snippet is the
    whole text of a message with at most `whole_characters`; from the hit with the number `whole_hit_count` on (from 0),
    of one that is no longer than a snippet.
    """

    text: str
    limit: int = 10
    only: HistoryFilter = field(default_factory=HistoryFilter)
    today: date | None = None
    is_before_turn: bool = False
    is_plain: bool = False
    whole_characters: int = 0
    whole_hit_count: int = 100


@dataclass(frozen=True, slots=True)
class Hit:
    """A found message. `highlights` are the ranges (from, to) of `snippet` that match the query's words."""

    message: Message
    score: float
    snippet: str
    highlights: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of a search, best first, and the sessions that could not be searched completely in time.

    `full_score` is the score of a message that has every word of the query once, whether or not there is one. It is 0
    if the hits are ranked by meaning too, except before a turn.
    """

    hits: tuple[Hit, ...]
    incomplete_sessions: tuple[SessionId, ...] = ()
    full_score: float = 0.0
    by: FoundBy = "text"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands: its session and its position there."""

    session_id: SessionId
    position: int


MAX_MEMORY_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored memory; `score` is its match in a search, comparable only within one search result.

    `text_version` counts changes of the text, so that data derived from an earlier text can be recognised as outdated.
    """

    id: MemoryId
    user_id: UserId
    text: str
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime
    score: float | None = None
    text_version: int = 0


@dataclass(frozen=True, slots=True)
class FoundMemories:
    """The result of a memory search, best match first, and how it was searched."""

    memories: tuple[Memory, ...]
    by: FoundBy
