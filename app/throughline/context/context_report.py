"""The values of the report on a session's context.

They say how full it is, what the next turn will do about it, and which messages the summary stands for.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from throughline.domain.ids import MessageId
from throughline.domain.summary import AdoptedSummary


class NextAction(StrEnum):
    """What the next turn will do with the context, for an empty message and answer.

    `compact` is anything that makes the prompt smaller before the call: pruning, a summary, the last ladder. `prepare`:
    a summary will be due after the answer, and be written in the background.
    """

    NONE = "none"
    PREPARE = "prepare"
    COMPACT = "compact"


class FiringGauge(StrEnum):
    """Which of the three gauges the next message makes fire."""

    MESSAGES = "messages"
    TOKENS = "tokens"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class SummariserReport:
    """The model asked first for a summary, and its breaker: `closed`, `open` for so many seconds, or `half_open`."""

    model: str
    state: str
    retry_after_seconds: int


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why the last attempt at a summary failed; there is none once another one succeeded."""

    reason: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What is known of a session's summaries: how many there were, the adopted one, who writes them."""

    agent: str
    model: str
    summary_count: int = 0
    adopted: AdoptedSummary | None = None
    summariser: SummariserReport | None = None
    failure: SummaryFailure | None = None


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """One summary as the report shows it."""

    messages_summarized: int
    token_count: int
    created_at: datetime
    through_id: MessageId | None
    through_position: int
    model: str


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The state of a session's context. Tokens are the model's: our counts times the factor.

    `total_tokens` is what is sent of the conversation as it stands, before the next message makes room;
    `unreduced_tokens` what the whole conversation since the summary would take, none of it pruned, shortened or left
    out; where more than two windows of it lie there, only what is loaded is counted. `last_stage` names what last
    changed what is shown, None where all is shown as it is stored. N and K count what stands behind
    `counted_from_position`. Thresholds of messages and tokens are None where no
    summary is written without being asked for.
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
