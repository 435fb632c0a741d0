"""The values of the report on a session's context.

The report says how full the context is, what the next turn will do about it, and which messages the summary covers.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from throughline.domain.events import HistoryQuoted
from throughline.domain.ids import MessageId
from throughline.domain.summary import AdoptedSummary


class NextAction(StrEnum):
    """What the next turn will do with the context, assuming an empty message and an empty answer.

    `compact` stands for anything that makes the prompt smaller before the call: pruning, a summary, the last stages.
    `prepare`: a summary will be due after the answer, and written in the background.
    """

    NONE = "none"
    PREPARE = "prepare"
    COMPACT = "compact"


class FiringGauge(StrEnum):
    """The limit that makes the next action due: N messages, K tokens, or the size of the prompt in the window."""

    MESSAGES = "messages"
    TOKENS = "tokens"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class SummariserReport:
    """The model tried first for a summary, and its circuit breaker's state: `closed`, `open` or `half_open`.

    `retry_after_seconds` says how long the circuit breaker stays open.
    """

    model: str
    state: str
    retry_after_seconds: int


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why the last attempt at a summary failed, and when; it is cleared once a later attempt succeeds."""

    reason: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """Facts about a session's summaries for the report: their number, the adopted one, the models that write them."""

    agent: str
    model: str
    summary_count: int = 0
    adopted: AdoptedSummary | None = None
    summariser: SummariserReport | None = None
    failure: SummaryFailure | None = None


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """One summary, adopted or prepared, as the report shows it.

    `through_position` is the last message that it covers. `through_id` is that message's id, None for a prepared
    summary.
    """

    messages_summarized: int
    token_count: int
    created_at: datetime
    through_id: MessageId | None
    through_position: int
    model: str


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The state of a session's context. Tokens are the model's: our counts times the factor.

    - `total_tokens`: the prompt of the conversation as it stands, before the next message reduces it.
    - `unreduced_tokens`: the same without any pruning, shortening or omission since the summary. If more than two
      windows follow the summary, only loaded messages count.
    - `last_stage`: the stage that last changed what is shown; None if all is shown as it is stored.
    - `counted_from_position`: the position after which messages (N) and tokens (K) are counted.
    - `messages_threshold`, `tokens_threshold`: None if no summary is written automatically.
    - `quoted`: the earlier messages that the newest turn's prompt quoted. It is not computed, but added from the stored
      events to a report on request.
    """

    agent: str
    model: str
    context_window: int
    response_reserve: int
    system_tokens: int
    tools_tokens: int
    summary_tokens: int
    message_tokens: int
    total_tokens: int
    unreduced_tokens: int
    last_stage: str | None
    threshold_tokens: int
    usage_percent: float
    counted_from_position: int
    messages_since_summary: int
    messages_threshold: int | None
    messages_percent: float | None
    tokens_since_summary: int
    tokens_threshold: int | None
    tokens_percent: float | None
    will_trigger: bool
    next_action: NextAction
    next_trigger: FiringGauge | None
    summary_count: int
    last_summary_at: datetime | None
    estimated_response_tokens: int
    summary: SummaryReport | None
    prepared: SummaryReport | None
    summariser: SummariserReport | None
    summary_failure: SummaryFailure | None
    quoted: HistoryQuoted | None = None
