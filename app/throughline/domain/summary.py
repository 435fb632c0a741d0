"""Summaries: texts that replace messages 1..p in prompts, their segments, and the versions a session can return to."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from throughline.domain.basic_types import MessageId, RunId, SegmentId, SessionId, SummaryId
from throughline.domain.message import Message, Role
from throughline.domain.session import Session


class FactKind(StrEnum):
    """The kinds of kept facts, in the order in which a prompt shows them; instructions get a section of their own."""

    INSTRUCTION = "instruction"
    LIMIT = "limit"
    GOAL = "goal"
    DECISION = "decision"
    DEADLINE = "deadline"
    PERSON = "person"
    PREFERENCE = "preference"
    OPEN_QUESTION = "open question"
    VALUE = "value"
    IDENTIFIER = "identifier"
    ERROR = "error"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class KeptFact:
    """A fact quoted word for word on one line, with its message's position, the speaker's role and the author's name.

    `subject` says what the fact is about, '' if unknown. Of two facts with one subject the later one is current;
    without a subject it is unknown whether a fact still holds. `replaced_by` is the position of the statement that
    replaced this fact, 0 while it is current.

    `chosen` and `passed_over` count how often a model did and did not select the fact when it could. With `is_unjudged`
    no model has been asked about the fact yet. `may_be_outdated`: later messages were summarised without their facts.
    """

    kind: FactKind
    text: str
    position: int
    said_by: Role = Role.USER
    subject: str = ""
    author: str = ""
    replaced_by: int = 0
    chosen: int = 0
    passed_over: int = 0
    is_unjudged: bool = True
    may_be_outdated: bool = False

    @property
    def is_only_stated(self) -> bool:
        """Whether the fact is known by its words alone: it has no form that makes it certain, and no model named it."""
        return not (self.is_unjudged or self.chosen or self.passed_over)

    @property
    def score(self) -> float:
        """The probability that a model would choose the fact again: rule of succession, 0.5 before any choice."""
        return (self.chosen + 1) / (self.chosen + self.passed_over + 2)


class CompactionOutcome(StrEnum):
    """Outcomes of a compaction, as they appear in events, metrics and logs.

    `ADOPTED`: a summary came into use. `PREPARED`: a summary was written for later use. `PRUNED` and `FITTED`: the
    prompt was made smaller without a summary. `SKIPPED`: no summary was due or worth it, or another writer was first.
    `CANCELLED`: the agent's hook cancelled it.
    """

    ADOPTED = "adopted"
    PREPARED = "prepared"
    PRUNED = "pruned"
    FITTED = "fitted"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of calls of summary models: number of calls, tokens read and written, and total seconds."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The outcome of a compaction, and the session to continue with.

    `detail` says why no more was achieved, '' if there is nothing to explain. The token numbers are the prompt's size
    before and after, as the model counts. With `is_stale` the stored session has changed meanwhile and must be loaded
    again. Another attempt is useless before `delay_seconds` have passed.
    """

    outcome: CompactionOutcome
    session: Session
    detail: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    is_stale: bool = False
    delay_seconds: float = 0.0
    spent: Spent = field(default_factory=Spent)

    @property
    def is_not_worth_it(self) -> bool:
        """Whether no summary was due, or none would be smaller than the messages it replaces.

        An attempt that another writer overtook (`is_stale`) does not count. The caller retries after more growth.
        """
        return self.outcome is CompactionOutcome.SKIPPED and not self.is_stale


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
class NewSegment:
    """A segment that is not stored yet: the positions it covers, the hashes that find an existing one, then its text.

    `read_hash` identifies what is read (messages or merged segments, and the text before them) within the session, so
    that no segment is paid for twice. `request_hash` is equal for the same owner, model and request in any session;
    None if no model is called. Positions are inclusive. `level` is 0 for a segment made from messages. A merged segment
    is one level above its parts. A rolling summary covers 1..through at level 0. `redaction_count` is the session's
    value when it was read. `kept_facts` are the facts that the model named.
    """

    from_position: int
    through_position: int
    through_id: MessageId
    read_hash: str
    request_hash: str | None = None
    level: int = 0
    redaction_count: int = 0
    text: str = ""
    token_count: int = 0
    model: str = ""
    prompt_version: str = ""
    duration_seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    kept_facts: tuple[KeptFact, ...] = ()


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
class SegmentCost:
    """What is stored of a segment besides its text: range, level, model, and what the call for it has cost.

    A segment that no call has made (a copy, an extract) has read and written 0 tokens.
    """

    id: SegmentId
    from_position: int
    through_position: int
    level: int
    token_count: int
    model: str
    created_at: datetime
    input_tokens: int
    output_tokens: int
    duration_seconds: float


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
class SummaryLease:
    """The right to write a summary of a session on demand, for a limited time."""

    id: UUID
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Conversation:
    """The part of a session that one query loads, and the messages that the current run adds to it.

    `history` are the newest messages of other runs after the cursor, oldest first; older ones are left out if there are
    too many. `own` are all messages of the current run, whatever their size. `pinned` are pinned messages of other runs
    that are not in `history`, oldest first. `prepared` is the newest prepared summary that builds on the session's
    current summary version. `adopted` is the adopted version at loading. Both are None if there is no such summary.

    `resumed_calls` are tool calls without a result that a crashed process left; whether they ran is unknown. Each is
    named by its step in the run (`OpenCall.step`).
    """

    session: Session
    history: tuple[Message, ...] = ()
    own: tuple[Message, ...] = ()
    pinned: tuple[Message, ...] = ()
    prepared: Prepared | None = None
    adopted: AdoptedSummary | None = None
    resumed_calls: frozenset[str] = frozenset()

    def with_own(self, *messages: Message) -> "Conversation":
        """Return the conversation with further messages of the current run."""
        return replace(self, own=(*self.own, *messages))
