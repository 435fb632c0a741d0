"""JSON shapes of the context report and of the plan for a model call, which `context/` computes."""

from typing import Annotated

from pydantic import Field

from throughline.context.explain_context import FiringGauge
from throughline.context.policy import Adopt
from throughline.domain.message import Role
from throughline.wire.json_shape import Id, Shape, Time, one_of


class SummaryOut(Shape):
    """A summary of a session, adopted or prepared."""

    messages_summarized: int
    token_count: int
    created_at: Time
    through_id: Id | None = Field(description="the last message that the summary covers; null while it is prepared")
    through_position: int
    model: str


class RestoredOut(Shape):
    """A restored summary that no automatic summary replaces yet, or a restore to none."""

    at_position: int = Field(description="the newest message when it was restored")
    tokens_since: int = Field(description="tokens of the messages after that one")
    tokens_needed: int = Field(
        description="automatic summaries may replace it from so many tokens on; with `adopt: immediately` at N or K too"
    )


class SummariserOut(Shape):
    """The summary model that is called first, and the state of its circuit breaker in the process that answers."""

    model: str
    state: Annotated[str, one_of("closed", "open", "half_open")] = Field(
        description="open: the model failed several times in a row and is not called; half_open: the next call decides"
    )
    retry_after_seconds: int = Field(description="seconds until the model is called again; 0 unless open")


class SummaryFailureOut(Shape):
    """Why the last attempt at a summary failed."""

    reason: str
    failed_at: Time


class ContextOut(Shape):
    """The state of a session's context. Tokens are the model's: the service's counts times a factor learned for it.

    Thresholds of messages and tokens are null if no summary is written automatically.
    """

    agent: str
    model: str
    context_window: int
    response_reserve: int
    system_tokens: int
    tools_tokens: int
    summary_tokens: int
    message_tokens: int
    total_tokens: int = Field(description="tokens of the conversation as the next prompt would show it now")
    unreduced_tokens: int = Field(
        description="tokens of the whole conversation since the summary, if no stage had made it smaller"
    )
    last_stage: str | None = Field(
        description="the last stage that made the prompt smaller; null: every message is shown as it is stored",
    )
    threshold_tokens: int = Field(description="the prompt is made smaller above it")
    usage_percent: float
    counted_from_position: int = Field(description="N and K count the messages after this position")
    messages_since_summary: int = Field(
        description="since the newest summary, prepared or in use (with `adopt: immediately` the one in use); "
        "counted from a restored summary on"
    )
    messages_threshold: int | None
    messages_percent: float | None
    tokens_since_summary: int
    tokens_threshold: int | None
    tokens_percent: float | None
    can_reach_tokens: bool = Field(
        default=True, description="false: the limit of tokens is more than this window's messages ever take"
    )
    adopt: Annotated[str, one_of(*Adopt)] = Field(
        default=Adopt.AT_THRESHOLD, description="when a prepared summary is used: the option of the agent"
    )
    will_trigger: bool
    next_action: Annotated[str, one_of("none", "prepare", "compact")] = Field(
        description=(
            "what an empty message with an empty answer would trigger; compact: the prompt is made smaller first;"
            " prepare: a summary is written in the background after the answer"
        )
    )
    next_trigger: Annotated[str, one_of(*FiringGauge)] | None = Field(
        description="the gauge that triggers `next_action`; null if there is none"
    )
    summary_count: int = Field(description="number of summary versions; a restored version counts again")
    last_summary_at: Time | None
    estimated_response_tokens: int
    summary: SummaryOut | None
    prepared: SummaryOut | None
    restored: RestoredOut | None = Field(
        default=None, description="null: no summary was restored, or enough was said since for another one"
    )
    summariser: SummariserOut | None
    summary_failure: SummaryFailureOut | None = Field(description="null if no summary failed since the last one")

    @property
    def is_compacting_next(self) -> bool:
        """Whether the next message makes the prompt smaller first. Preparing a summary (`prepare`) does not."""
        return self.will_trigger and self.next_action != "prepare"

    @property
    def is_over_window(self) -> bool:
        """Whether the content shown now exceeds the window. The next message makes it smaller first."""
        return self.total_tokens > self.context_window


class HistoryQuoted(Shape):
    """The prompt quotes earlier messages that the user's message asks for."""

    positions: list[int] = Field(description="the quoted messages, best first")
    scores: list[float] = Field(description="shares of the score of a message with every word of the question")
    tokens: int = Field(description="size of the quotations in the prompt")


class MemoriesQuoted(Shape):
    """The prompt quotes memories of the user that fit the user's message."""

    memory_ids: list[Id] = Field(description="the quoted memories, best first")
    tokens: int = Field(description="size of the memories in the prompt")


class SessionContextOut(ContextOut):
    """The state of a session's context, and what its newest turn quoted."""

    quoted: HistoryQuoted | None = Field(
        default=None,
        description="the earlier messages that the prompt of the session's newest turn quoted; null: none, or the "
        "turn's events are deleted",
    )
    quoted_memories: MemoriesQuoted | None = Field(
        default=None, description="the memories of the user that this prompt quoted; null as above"
    )


class SegmentToSummarise(Shape):
    """The segment of messages that would be summarized before the model is called."""

    from_position: int
    through_position: int
    message_count: int


class PreviewedMessage(Shape):
    """One stored message and how the prompt would show it.

    Of the messages before the cursor, only pinned ones are listed.
    """

    position: int
    role: Annotated[str, one_of(*Role)]
    form: Annotated[str, one_of("whole", "pruned", "truncated", "folded", "summarised", "trimmed", "left_out")]
    reason: str = Field(description="the reason why the message is, or is not, shown whole; may be empty")
    tokens: int = Field(description="tokens of the message in the prompt; 0 if it is not shown")
    pinned: bool
    score: float | None = Field(
        default=None,
        description="0 to 1, with the strategy importance: messages with the lowest score leave the prompt first",
    )


class PreviewOut(Shape):
    """The plan for one model call. Nothing of it has been executed. Tokens are the model's."""

    action: Annotated[str, one_of("none", "prune", "fit", "compact", "adopt")]
    cause: Annotated[str, one_of("threshold", "messages", "tokens", "manual", "overflow")] | None = Field(
        description="why the prompt would be reduced"
    )
    fired: list[str] = Field(description="the stages that would make the prompt smaller, in their order")
    tokens: int = Field(description="what would be sent")
    unreduced_tokens: int = Field(description="tokens if no stage made the prompt smaller")
    window: int
    usage_percent: float
    threshold_tokens: int = Field(description="the prompt is made smaller above it")
    budget_tokens: int = Field(description="window minus the reserve for the answer")
    floor_too_high: bool = Field(
        description="system prompt, tools, summary, pins and newest messages leave too little space: "
        "a compaction would soon be followed by the next"
    )
    summarised_through: int = Field(
        description="the last position that the adopted summary covers; 0 without a summary"
    )
    summarise: SegmentToSummarise | None
    messages: list[PreviewedMessage]
    min_score_threshold: float | None = Field(
        default=None, description="with the strategy importance: messages with a lower score are left out first"
    )
    quoted: list[int] = Field(
        default_factory=list,
        description="positions of earlier messages that the prompt quotes",
    )
    quoted_memories: list[Id] = Field(
        default_factory=list, description="ids of the user's memories that the prompt quotes"
    )
