"""JSON shapes of the context report and of the plan for a model call, which `context/` computes."""

from typing import Annotated

from pydantic import AliasChoices, Field

from throughline.context.context_report import FiringGauge
from throughline.domain.message import Role
from throughline.wire.json_shape import Id, Shape, Time, one_of


class SummaryOut(Shape):
    """A summary of a session, adopted or prepared."""

    messages_summarized: int
    token_count: int
    created_at: Time
    through_id: Id | None = Field(description="the last message it stands for; null while it is prepared")
    through_position: int
    model: str


class SummariserOut(Shape):
    """The summary model that is called first, in the state that the answering process knows."""

    model: str
    state: Annotated[str, one_of("closed", "open", "half_open")] = Field(
        description="open: it failed several times in a row and is not asked; half_open: the next call decides"
    )
    retry_after_seconds: int = Field(description="how long it is still not asked, 0 unless it is open")


class SummaryFailureOut(Shape):
    """Why the last attempt at a summary failed."""

    reason: str
    failed_at: Time


class ContextOut(Shape):
    """The state of a session's context. Tokens are the model's: the service's counts times the factor.

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
    total_tokens: int = Field(
        description="what is sent of the conversation as it stands, before the next message makes room"
    )
    unreduced_tokens: int = Field(
        description="what the whole conversation since the summary would take, nothing pruned, shortened or left out"
    )
    last_rung: str | None = Field(
        validation_alias=AliasChoices("last_rung", "last_stage"),
        description="what last changed what is shown; null: all is shown as it is stored",
    )
    threshold_tokens: int
    usage_percent: float
    counted_from_position: int = Field(description="the messages behind it are those that N and K count")
    messages_since_summary: int = Field(
        description="since the newest summary, prepared or in use (with `adopt: immediately` the one in use); "
        "counted from a restored summary on"
    )
    messages_threshold: int | None
    messages_percent: float | None
    tokens_since_summary: int
    tokens_threshold: int | None
    tokens_percent: float | None
    will_trigger: bool
    next_action: Annotated[str, one_of("none", "prepare", "compact")] = Field(
        description="what an empty message and answer would set off; compact: anything that makes the prompt smaller "
        "first; prepare: a summary is due after the answer, and is written in the background"
    )
    next_trigger: Annotated[str, one_of(*FiringGauge)] | None = Field(
        description="which gauge makes `next_action` happen; null where nothing does"
    )
    summary_count: int = Field(description="versions of the summary, those that were gone back to counted again")
    last_summary_at: Time | None
    estimated_response_tokens: int
    summary: SummaryOut | None
    prepared: SummaryOut | None
    summariser: SummariserOut | None
    summary_failure: SummaryFailureOut | None = Field(description="null where none failed since the last summary")

    @property
    def is_compacting_next(self) -> bool:
        """Whether the next message makes the prompt smaller first. Preparing a summary (`prepare`) does not."""
        return self.will_trigger and self.next_action != "prepare"

    @property
    def is_over_window(self) -> bool:
        """Whether the content shown now exceeds the window. The next message makes it smaller first."""
        return self.total_tokens > self.context_window


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
    reason: str = Field(description="why it is not shown whole, or why it is; may be empty")
    tokens: int = Field(description="what it takes in the prompt, 0 where it is not shown")
    pinned: bool
    score: float | None = Field(
        default=None, description="0 to 1, of the strategy importance: the lowest leave the prompt first"
    )


class PreviewOut(Shape):
    """The plan for one model call, of which nothing has been executed. Tokens are the model's."""

    action: Annotated[str, one_of("none", "prune", "fit", "compact", "adopt")]
    cause: Annotated[str, one_of("threshold", "messages", "tokens", "manual", "overflow")] | None = Field(
        description="why room would be made"
    )
    fired: list[str] = Field(description="the stages that would make the prompt smaller, in their order")
    tokens: int = Field(description="what would be sent")
    unreduced_tokens: int = Field(description="the same with nothing pruned, shortened or left out since the summary")
    window: int
    usage_percent: float
    threshold_tokens: int
    budget_tokens: int = Field(description="the window less the reserve for the answer")
    floor_too_high: bool = Field(description="what always stays leaves too little room for a compaction to last")
    summarised_through: int = Field(description="the position the summary in use reaches, 0 where there is none")
    summarise: SegmentToSummarise | None
    messages: list[PreviewedMessage]
    min_score_threshold: float | None = Field(
        default=None, description="the score below which the strategy importance leaves messages out"
    )
