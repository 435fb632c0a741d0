"""The context policy: what an agent's YAML says about its window, as one frozen value."""

from dataclasses import dataclass, field
from enum import StrEnum


class Strategy(StrEnum):
    """How a conversation that outgrew its window is made to fit."""

    SUMMARIZATION = "summarization"
    TRUNCATION = "truncation"
    IMPORTANCE = "importance"


class Adopt(StrEnum):
    """When a summary takes the place of verbatim history."""

    AT_THRESHOLD = "at_threshold"
    IMMEDIATELY = "immediately"


class SummaryKind(StrEnum):
    """What a summary is made of: the model's narrative and our ledger, or the narrative alone."""

    HYBRID = "hybrid"
    LLM = "llm"


class SummaryShape(StrEnum):
    """How a summary grows: one text written anew each time, or stretches whose neighbours are merged level by level."""

    ROLLING = "rolling"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """When old tool outputs are shown as stubs (fractions of the window), and how many stay whole."""

    start: float = 0.70
    aggressive: float = 0.85
    critical: float = 0.95
    keep_last: int = 5
    keep_last_aggressive: int = 2
    max_output_bytes: int = 50_000


@dataclass(frozen=True, slots=True)
class SummaryPolicy:
    """How summaries are written.

    `model` has the precedence (agent, `context_summary_model`, `default_llm`) applied; empty: the agent's own model.
    `base_url` is the server that model lives at, None for its provider's own. `chunk_messages` is the most messages
    that one stretch stands for; None: as many as fit the summary model's window.
    """

    model: str = ""
    base_url: str | None = None
    kind: SummaryKind = SummaryKind.HYBRID
    shape: SummaryShape = SummaryShape.TIERED
    style: str = ""
    max_tokens: int = 1500
    instructions: str = ""
    timeout_seconds: float = 10.0
    chunk_messages: int | None = None


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """All context settings of an agent, with the precedence (agent, setting, default) already applied.

    `usage_threshold` and `target` are fractions of the window; `window` is None where the model's own applies.
    `keep_recent` (messages) belongs to the strategy `truncation`, `min_score_threshold` (0 to 1) to `importance`.
    `pre_compact` is the hook as `module:function`, '' for none.
    """

    strategy: Strategy = Strategy.SUMMARIZATION
    auto_summarize: bool = True
    usage_threshold: float = 0.8
    target: float = 0.5
    max_messages_before_summary: int = 30
    max_tokens_before_summary: int = 128_000
    adopt: Adopt = Adopt.AT_THRESHOLD
    min_recent_messages: int = 6
    response_reserve: int = 4096
    window: int | None = None
    prune: PrunePolicy = field(default_factory=PrunePolicy)
    summary: SummaryPolicy = field(default_factory=SummaryPolicy)
    token_counter: str = "tiktoken"  # noqa: S105  # a counter of tokens, no secret
    pre_compact: str = ""
    keep_recent: int = 20
    min_score_threshold: float = 0.3
