"""Summaries: texts that replace messages 1..p in prompts, their segments, and the versions a session can return to."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from throughline.domain.ids import MessageId, RunId, SegmentId, SessionId, SummaryId
from throughline.domain.kept_facts import KeptFact


class SummaryState(StrEnum):
    """The state of a summary version within its session."""

    PREPARED = "prepared"
    ADOPTED = "adopted"
    SUPERSEDED = "superseded"


CHOICE_LEVEL = -1
"""Value of `level` in a stored segment row that holds no summary text.

Such a row stores a model's choice among the kept facts of messages 1..through; its text is the model's answer.
"""


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A segment that is not written yet: the positions it will cover, and the hashes that find an existing one.

    `read_hash` is as in NewSegment and valid within a session. `request_hash` is equal for the same owner, model and
    request in any session; None if no model is called. `redaction_count` is the session's value when it was read.
    """

    from_position: int
    through_position: int
    through_id: MessageId
    read_hash: str
    request_hash: str | None = None
    redaction_count: int = 0


@dataclass(frozen=True, slots=True)
class NewSegment:
    """The result of a summary model's call for one segment, not stored yet.

    `read_hash` identifies the input (messages or merged segments, and the text before them), so that no segment is paid
    for twice. Positions are inclusive. `level` is 0 for a segment made from messages. A merged segment is one level
    above its parts. A rolling summary covers 1..through at level 0. `kept_facts` are the facts that the model named.
    `request_hash` is as in WantedSegment.
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
    """A stored segment: consecutive messages with their own summary."""

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
    """A new summary version to store: its text replaces messages 1..`through_position`.

    `segment_ids` are stored segments that cover 1..`through_position` without a gap, oldest first. `text` is the prompt
    text made from them and the `kept_facts`. `expected_version` is the session's `summary_version` that it builds on.
    It must cover more messages than the adopted version, or as many with `is_rewritten`. `session_instructions` are the
    session's instructions when they were read.
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
    """Limits on what a summary model reads: tokens and messages in all, and the share of each message.

    At most `largest_message` tokens of any message and `tool_characters` characters of any tool output are read.
    """

    tokens: int
    messages: int
    largest_message: int
    tool_characters: int


@dataclass(frozen=True, slots=True)
class MeasuredMessages:
    """Consecutive messages: the first position, the number of messages, and the approximate tokens to read."""

    first_position: int
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared summary that is not in use yet, with the fields that planning needs."""

    id: SummaryId
    base_version: int
    text: str
    token_count: int
    through_position: int
    created_at: datetime
    model: str


@dataclass(frozen=True, slots=True)
class AdoptedSummary:
    """The adopted summary version as reports show it, without its text, segments and facts."""

    version: int
    token_count: int
    through_id: MessageId | None
    through_position: int
    model: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SummaryVersion:
    """A stored summary version of a session. A prepared one gets its `version` number when it is adopted."""

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
        """The number of segments that the version consists of."""
        return len(self.segment_ids)


@dataclass(frozen=True, slots=True)
class SummaryWithSegments:
    """A version with its segments, oldest first: the base of the next summary."""

    version: SummaryVersion
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class SummaryLease:
    """The right to write a summary of a session on demand, for a limited time."""

    id: UUID
    session_id: SessionId
