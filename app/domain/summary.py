"""Summaries: text standing for messages 1..p, and the versions a session can go back to."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.domain.ids import MessageId, RunId, SessionId, SummaryId


class SummaryState(StrEnum):
    """What a summary version is to its session now."""

    PREPARED = "prepared"
    ADOPTED = "adopted"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class NewStretch:
    """What a summariser call produced for one stretch, before it is stored.

    `read_hash` identifies what was read (the messages and the summary before them), so that the same stretch is
    never paid for twice. Positions are inclusive.
    """

    from_position: int
    through_position: int
    through_id: MessageId
    text: str
    token_count: int
    model: str
    prompt_version: str
    read_hash: str
    duration_seconds: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Adoption:
    """The change of a session's summary: this text now stands for messages 1..`through_position`."""

    session_id: SessionId
    expected_version: int
    stretch: NewStretch
    text: str
    token_count: int
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class SummaryVersion:
    """A summary version of a session, as stored."""

    id: SummaryId
    session_id: SessionId
    version: int
    state: SummaryState
    text: str
    token_count: int
    through_id: MessageId | None
    through_position: int
    model: str
    created_at: datetime
