"""Summaries: text standing for messages 1..p, and the versions a session can go back to."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from throughline.domain.ids import MessageId, RunId, SegmentId, SessionId, SummaryId
from throughline.domain.kept_facts import KeptFact


class SummaryState(StrEnum):
    """What a summary version is to its session now."""

    PREPARED = "prepared"
    ADOPTED = "adopted"
    SUPERSEDED = "superseded"


CHOICE_LEVEL = -1
"""The level of what is no segment but a choice of the facts kept of 1..through: its text is the model's answer."""


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A segment before it is written: the positions it will stand for, and the hashes by which it is found again.

    `read_hash` is that of NewSegment and holds within a session. `request_hash` is the same for the same owner, model
    and request in any session; None where no model is asked. `redaction_count` is the session's as it was read.
    """

    from_position: int
    through_position: int
    through_id: MessageId
    read_hash: str
    request_hash: str | None = None
    redaction_count: int = 0


@dataclass(frozen=True, slots=True)
class NewSegment:
    """What a summariser call produced for one segment, before it is stored.

    `read_hash` identifies what was read (messages, or the segments that were merged, and what stood before them), so
    that the same segment is never paid for twice. Positions are inclusive. `level` is 0 for one made from messages,
    one more than its parts' for one made from segments; a rolling summary stands for 1..through at level 0.
    `kept_facts` are those that the model named in the messages it read. `request_hash` is that of WantedSegment.
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
    level: int = 0
    redaction_count: int = 0
    kept_facts: tuple[KeptFact, ...] = ()
    request_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A stored segment: a run of messages with its own summary."""

    id: SegmentId
    from_position: int
    through_position: int
    through_id: MessageId
    level: int
    text: str
    token_count: int
    model: str
    read_hash: str
    kept_facts: tuple[KeptFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Adoption:
    """A further summary of a session: this text stands for messages 1..`through_position`.

    `segment_ids` are stored segments that cover 1..`through_position` without a gap, oldest first; `text` is what
    they and the `kept_facts` look like in a prompt. `expected_version` is the session's `summary_version` it builds on.
    It must reach further than the one in use; `is_rewritten`, made of the same messages again: as far.
    `session_instructions` are those of the session as they were read for it.
    """

    session_id: SessionId
    expected_version: int
    segment_ids: tuple[SegmentId, ...]
    text: str
    token_count: int
    kept_facts: tuple[KeptFact, ...]
    through_id: MessageId
    through_position: int
    model: str
    run_id: RunId | None = None
    is_rewritten: bool = False
    session_instructions: str = ""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much a summary reads of each message, and at most of all.

    Of a tool's output `tool_characters` are read, of any message at most `largest_message` tokens.
    """

    tokens: int
    messages: int
    largest_message: int
    tool_characters: int


@dataclass(frozen=True, slots=True)
class MeasuredMessages:
    """Messages that follow each other: where the first stands, how many they are, and about the tokens read of them."""

    first_position: int
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A summary that is written and not yet used, as a plan needs to know it."""

    id: SummaryId
    base_version: int
    text: str
    token_count: int
    through_position: int
    created_at: datetime
    model: str


@dataclass(frozen=True, slots=True)
class AdoptedSummary:
    """The summary in use, as a report shows it: all of its version but the text and what that is made of."""

    version: int
    token_count: int
    through_id: MessageId | None
    through_position: int
    model: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SummaryVersion:
    """A summary version of a session, as stored. A prepared one has no `version` yet: it gets it when adopted."""

    id: SummaryId
    session_id: SessionId
    version: int | None
    state: SummaryState
    text: str
    token_count: int
    through_id: MessageId | None
    through_position: int
    model: str
    created_at: datetime
    segment_ids: tuple[SegmentId, ...] = ()
    kept_facts: tuple[KeptFact, ...] = ()

    @property
    def segments(self) -> int:
        """The number of segments the text is made of."""
        return len(self.segment_ids)


@dataclass(frozen=True, slots=True)
class SummaryWithSegments:
    """A version with its segments, oldest first: what a further summary builds on."""

    version: SummaryVersion
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class SummaryLease:
    """The right to summarize a session on demand, for a while."""

    id: UUID
    session_id: SessionId
