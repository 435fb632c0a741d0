"""The context policy: what an agent's YAML says about its window, as one frozen value.

Here alone stand a setting's default, what it may be, its unit, and why it is so; agent files and the service's
settings are checked against it. "Chosen" says that nothing but judgement stands behind a number.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated


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
    """What a summary is made of: the model's narrative and kept facts, or the narrative alone."""

    HYBRID = "hybrid"
    LLM = "llm"


class SummaryShape(StrEnum):
    """How a summary grows: one text written anew each time, or segments whose neighbours are merged level by level."""

    ROLLING = "rolling"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be, written into its annotation: above `gt` or at least `ge`, below `lt` or at most `le`."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None


WINDOW_SHARE = Range(gt=0, lt=1)
MAX_WISH = 4_000
"""Characters of what a summary should keep, of agent, session and request each: they are told together and whole."""

SCORE = Range(ge=0, le=1)
TOOL_OUTPUTS = Range(ge=0, le=1_000_000)
MESSAGES = Range(ge=2, le=10_000)
"""At least one exchange; far more messages than any window holds is a slip of the pen."""


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """When old tool outputs are shown as stubs, and how many stay whole; each mark lies above the one before it."""

    start: Annotated[float, WINDOW_SHARE] = 0.70
    """Share of the window above which tool outputs become stubs. Below the usage threshold, so that a prune, which
    costs no model call, is tried before a compaction; how far below is chosen."""

    aggressive: Annotated[float, WINDOW_SHARE] = 0.85
    """Share of the window above which fewer outputs stay whole. Chosen: between the usage threshold and the next
    mark, for what a compaction has not brought down."""

    critical: Annotated[float, WINDOW_SHARE] = 0.95
    """Share of the window above which the prompt is made to fit at any cost. The rest is for what a count, which is
    an estimate, may be off."""

    keep_last: Annotated[int, TOOL_OUTPUTS] = 5
    """Newest tool outputs that stay whole at `start`, beside those that no call has seen yet. Chosen: the work of a few
    steps."""

    keep_last_aggressive: Annotated[int, TOOL_OUTPUTS] = 2
    """Newest tool outputs that stay whole at `aggressive`. Chosen: what the next step most likely reads, no more."""

    min_freed: Annotated[float, Range(ge=0, lt=1)] = 0.10
    """Share of the window that a prune has to free, or it is not done: it changes the prompt's beginning, for which
    the provider's cache pays. Chosen: one prune then pays for itself within a few calls."""

    max_output_bytes: Annotated[int, Range(ge=1_000, le=100_000_000)] = 50_000
    """Bytes (UTF-8) beyond which one tool output is shown by its head and tail, however empty the window. At four
    bytes a token a tenth of a window of 128,000 tokens."""


@dataclass(frozen=True, slots=True)
class SummaryPolicy:
    """How summaries are written."""

    model: str = ""
    """The model that writes them, with the precedence (agent, `context_summary_model`, `default_llm`) applied; empty:
    the agent's own, which needs no further key."""

    base_url: str | None = None
    """The server `model` lives at, None for its provider's own."""

    api_key_env: str | None = None
    """The name of the environment variable with the key for that server."""

    kind: SummaryKind = SummaryKind.HYBRID
    """Hybrid, because a number or an instruction that is written anew in each summary is sooner or later lost."""

    shape: SummaryShape = SummaryShape.TIERED
    """Tiered, because a fact is then written anew log4(n) times in n segments, and not n times."""

    style: str = ""
    """A word on tone for the summariser, such as "terse"."""

    max_tokens: Annotated[int | None, Range(ge=200, le=100_000)] = None
    """The most tokens of a summary; None: 6 % of the window, between 1,500 and 8,000 (`budget.summary_limit`). A small
    window allows less (`budget.MAX_SUMMARY_SHARE`). In less than 200 there is room for no fact beside the text."""

    instructions: str = ""
    """What a summary has to keep, in the operator's words."""

    timeout_seconds: Annotated[float, Range(gt=0, le=600)] = 10.0
    """Seconds that a turn waits for summaries altogether, of which a summary model with another behind it has 70 %.
    Chosen: about as long as somebody waits for an answer to begin; a turn whose summary is late goes on without it. One
    that is asked for, or written ahead, has 60."""

    chunk_messages: Annotated[int | None, MESSAGES] = None
    """The most messages one segment stands for; None: as many as fit the summary model's window, which asks it least
    often."""


@dataclass(frozen=True, slots=True)
class ImportanceWeights:
    """What the strategy `importance` takes messages to be worth, 0 to 1; those of lower scores leave the view first.

    A tool call and its results have one score. Chosen, in this order: what was asked and found out cannot be had again,
    what was only acknowledged says nothing. Pinned messages have no score, they always stay.
    """

    user: Annotated[float, SCORE] = 1.0
    tool_use: Annotated[float, SCORE] = 1.0

    referenced: Annotated[float, SCORE] = 0.9
    """Answers with a name, number or path that the newest messages use again."""

    long_answer: Annotated[float, SCORE] = 0.6
    """Answers of 200 characters or more."""

    short_answer: Annotated[float, SCORE] = 0.4

    acknowledgement: Annotated[float, SCORE] = 0.1
    """Messages of at most 24 characters, the user's among them."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """All context settings of an agent, with the precedence (agent, setting, default) already applied."""

    strategy: Strategy = Strategy.SUMMARIZATION
    """Summarization, because it alone keeps what was said long ago in sight."""

    auto_summarize: bool = True
    """Whether summaries are written without being asked for; the default, as nobody is there to ask."""

    usage_threshold: Annotated[float, Range(gt=0.1, le=0.95)] = 0.8
    """Share of the window above which a conversation is compacted. Chosen: a fifth of the window is left for the turn
    that comes to lie above it, its tool outputs and its answer."""

    target: Annotated[float, Range(ge=0.05, le=0.9)] = 0.5
    """Share of the window to compact to, below `usage_threshold`. Chosen: the next compaction is three tenths of the
    window away, and half of it still shows messages as they were said."""

    target_tokens: Annotated[int | None, Range(ge=64, le=1_000_000_000)] = None
    """The same in the model's tokens instead of a share; None: `target` holds."""

    max_messages_before_summary: Annotated[int, Range(ge=1, le=1_000_000)] = 30
    """N: messages since the newest summary after which the next is due. Chosen: fifteen exchanges, few enough for one
    summary to tell."""

    max_tokens_before_summary: Annotated[int, Range(ge=1, le=1_000_000_000)] = 128_000
    """K: the same in the model's tokens. The window of many summary models: one of them reads that much at once."""

    adopt: Adopt = Adopt.AT_THRESHOLD
    """At the threshold, because a summary that takes the place of messages which still fit loses their words, and
    costs the provider's prompt cache, for nothing."""

    min_recent_messages: Annotated[int, Range(ge=1, le=10_000)] = 6
    """Newest messages that are never summarised. Chosen: three exchanges, which "as I just said" refers to."""

    response_reserve: Annotated[int, Range(ge=16, le=10_000_000)] = 4096
    """Tokens kept free for the answer, at most a quarter of the window. Chosen: some 3,000 words, a long answer."""

    window: Annotated[int | None, Range(ge=1024, le=1_000_000_000)] = None
    """Tokens of the window; None: the model's own."""

    prune: PrunePolicy = field(default_factory=PrunePolicy)
    summary: SummaryPolicy = field(default_factory=SummaryPolicy)
    importance: ImportanceWeights = field(default_factory=ImportanceWeights)

    token_counter: str = "tiktoken"  # noqa: S105  # a counter of tokens, no secret
    """What counts tokens. tiktoken, because its vocabularies come with the service and fit the most models; written in
    an agent's file it becomes that of the agent's model."""

    pre_compact: str = ""
    """The hook asked before each compaction, as `module:function`, '' for none."""

    keep_recent: Annotated[int, MESSAGES] = 20
    """Newest messages that the strategy `truncation` keeps. Chosen: ten exchanges."""

    min_score_threshold: Annotated[float, SCORE] = 0.3
    """Score (0 to 1) below which the strategy `importance` leaves a message out at once. Between a mere
    acknowledgement (0.1) and a short answer (0.4)."""
