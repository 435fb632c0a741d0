"""The context policy: an agent's settings for its context window, as one immutable value.

Each setting's default, range, unit and reason stand only here. Agent files and the service's settings are validated
against it. "Chosen" marks a number that rests on judgement alone.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated


class Recall(StrEnum):
    """When the prompt quotes stored messages, or memories: never, or when they fit the user's message."""

    OFF = "off"
    AUTO = "auto"


class Strategy(StrEnum):
    """How a conversation over its threshold is made smaller: by a summary, or by leaving messages out.

    Truncation leaves out the oldest messages, importance those with the lowest scores.
    """

    SUMMARIZATION = "summarization"
    TRUNCATION = "truncation"
    IMPORTANCE = "importance"


class Adopt(StrEnum):
    """When a summary replaces the messages that it covers: at the threshold only, or also at N messages or K tokens."""

    AT_THRESHOLD = "at_threshold"
    IMMEDIATELY = "immediately"


class SummaryKind(StrEnum):
    """What a summary contains: the model's narrative together with kept facts, or the narrative alone."""

    HYBRID = "hybrid"
    LLM = "llm"


class SummaryShape(StrEnum):
    """How a summary grows: one text rewritten each time, or segments whose neighbours are merged level by level."""

    ROLLING = "rolling"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class Range:
    """Allowed range of a number, as an annotation: above `gt` or at least `ge`, below `lt` or at most `le`."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None


WINDOW_SHARE = Range(gt=0, lt=1)
MAX_INSTRUCTIONS = 4_000
"""Most characters of each text that says what a summary should keep: the agent's, the session's and the request's.

All three are sent to the summary model together and in full.
"""

SCORE = Range(ge=0, le=1)
TOOL_OUTPUTS = Range(ge=0, le=1_000_000)
MESSAGES = Range(ge=2, le=10_000)
"""Allowed range of a number of messages: at least one exchange.

More messages than any window holds are taken for a typing error.
"""


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """When old tool outputs are replaced by stubs, and how many stay whole; each threshold is above the one before."""

    start: Annotated[float, WINDOW_SHARE] = 0.70
    """Share of the window above which tool outputs become stubs.

    It is below the usage threshold, so that a prune, which costs no model call, is tried before a compaction. How far
    below is chosen.
    """

    aggressive: Annotated[float, WINDOW_SHARE] = 0.85
    """Share of the window above which fewer outputs stay whole.

    Chosen: between the usage threshold and `critical`, for prompts that a compaction has not made smaller.
    """

    critical: Annotated[float, WINDOW_SHARE] = 0.95
    """Share of the window above which the prompt is made to fit at any cost.

    The rest of the window covers the error of our token counts, which are estimates.
    """

    keep_last: Annotated[int, TOOL_OUTPUTS] = 5
    """Number of newest tool outputs that stay whole at `start`, besides outputs that no model call has seen yet.

    Chosen: the work of a few steps.
    """

    keep_last_aggressive: Annotated[int, TOOL_OUTPUTS] = 2
    """Number of newest tool outputs that stay whole at `aggressive`.

    Chosen: only those that the next step most likely needs.
    """

    min_freed: Annotated[float, Range(ge=0, lt=1)] = 0.10
    """Share of the window that a prune has to free; otherwise it is not done.

    A prune changes the beginning of the prompt and thereby invalidates the provider's prompt cache. Chosen: a prune
    pays for itself within a few calls.
    """

    max_output_bytes: Annotated[int, Range(ge=1_000, le=100_000_000)] = 50_000
    """Size in bytes (UTF-8) above which one tool output is shown by its head and tail, however empty the window is.

    At four bytes a token it is a tenth of a window of 128,000 tokens.
    """


@dataclass(frozen=True, slots=True)
class SummaryPolicy:
    """How summaries are written, by which model, and how long they may be."""

    model: str = ""
    """The model that writes summaries; empty for the agent's own model, which needs no further key.

    The precedence of the agent's file, `context_summary_model` and `default_llm` is already applied.
    """

    base_url: str | None = None
    """The server that offers `model`; None for the provider's own."""

    api_key_env: str | None = None
    """The name of the environment variable with the API key for the server at `base_url`; None without one."""

    kind: SummaryKind = SummaryKind.HYBRID
    """`hybrid`: the model's text together with facts word for word; `llm`: the text alone.

    Hybrid by default, because a number or an instruction that is rewritten in each summary is lost sooner or later.
    """

    shape: SummaryShape = SummaryShape.TIERED
    """`tiered`: a text for each segment, merged level by level; `rolling`: one text that is rewritten each time.

    Tiered by default, because a fact is then rewritten only log4(n) times in n segments instead of n times.
    """

    style: str = ""
    """A word on tone, such as "terse"."""

    max_tokens: Annotated[int | None, Range(ge=200, le=100_000)] = None
    """Most tokens of a summary; None for 6 % of the window, at least 1,500 and at most 8,000 (`budget.summary_limit`).

    A small window allows less (`budget.MAX_SUMMARY_SHARE`). Below 200 tokens there is no room for facts besides the
    text.
    """

    instructions: str = ""
    """What the summary must keep."""

    timeout_seconds: Annotated[float, Range(gt=0, le=600)] = 10.0
    """What a turn waits for all its summaries together. One on demand, or written ahead, has at least 60 seconds.

    A summary model that has a fallback gets half of the remaining time. Chosen: about as long as a user waits for an
    answer to begin; after that the turn continues without the summary.
    """

    chunk_messages: Annotated[int | None, MESSAGES] = None
    """Most messages that one summary segment covers; None for as many as fit the summary model's window.

    None needs the fewest model calls.
    """


@dataclass(frozen=True, slots=True)
class ImportanceWeights:
    """Scores of messages in the strategy `importance`, from 0 to 1; messages with low scores are left out first.

    A tool call and its results have one score. Pinned messages have none: they always stay. Chosen, in this order:
    questions and findings cannot be recovered, whereas mere acknowledgements carry no information.
    """

    user: Annotated[float, SCORE] = 1.0
    """The user's messages."""

    tool_use: Annotated[float, SCORE] = 1.0
    """A tool call and its results."""

    referenced: Annotated[float, SCORE] = 0.9
    """Answers that contain a name, number or path which the newest messages use again."""

    long_answer: Annotated[float, SCORE] = 0.6
    """Answers of 200 characters or more."""

    short_answer: Annotated[float, SCORE] = 0.4
    """Other answers."""

    acknowledgement: Annotated[float, SCORE] = 0.1
    """Messages of at most 24 characters, the user's included."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """All context settings of an agent, with the precedence (agent, setting, default) already applied."""

    strategy: Strategy = Strategy.SUMMARIZATION
    """How a conversation over its threshold is made smaller.

    Summarization by default, because it alone keeps the content of old messages in the prompt.
    """

    auto_summarize: bool = True
    """Whether summaries are written without a request.

    True by default, because nobody would make the request.
    """

    usage_threshold: Annotated[float, Range(gt=0.1, le=0.95)] = 0.8
    """Share of the window above which a conversation is compacted.

    Chosen: a fifth of the window is left for the turn that exceeds the threshold, its tool outputs and its answer.
    """

    target: Annotated[float, Range(ge=0.05, le=0.9)] = 0.5
    """Share of the window that a compaction aims at, below `usage_threshold`.

    Chosen: the next compaction is then three tenths of the window away, and half of the window still shows messages
    verbatim.
    """

    target_tokens: Annotated[int | None, Range(ge=64, le=1_000_000_000)] = None
    """The compaction's target in the model's tokens instead of a share; None: `target` applies."""

    max_messages_before_summary: Annotated[int, Range(ge=1, le=1_000_000)] = 30
    """Number of messages (N) since the newest summary after which the next is due.

    Chosen: fifteen exchanges, few enough for one summary to report.
    """

    max_tokens_before_summary: Annotated[int, Range(ge=1, le=1_000_000_000)] = 128_000
    """Number of the model's tokens (K) since the newest summary after which the next is due.

    It is the window of many summary models, which can read that much in one request.
    """

    adopt: Adopt = Adopt.AT_THRESHOLD
    """When a summary replaces the messages that it covers: only at `usage_threshold`, or also at
    `max_messages_before_summary` and `max_tokens_before_summary`. For the latter, `max_messages_before_summary` is at
    least 4 more than `min_recent_messages`.

    At the threshold by default: before it, a summary would replace messages that still fit. That would lose their
    wording and invalidate the provider's prompt cache for nothing.
    """

    min_recent_messages: Annotated[int, Range(ge=1, le=10_000)] = 6
    """Number of newest messages that are never summarised.

    Chosen: three exchanges, to which phrases like "as I just said" refer.
    """

    response_reserve: Annotated[int, Range(ge=16, le=10_000_000)] = 4096
    """Tokens reserved for the answer, at most a quarter of the window.

    Chosen: about 3,000 words, a long answer.
    """

    window: Annotated[int | None, Range(ge=1024, le=1_000_000_000)] = None
    """Tokens of the context window; None for the model's own."""

    prune: PrunePolicy = field(default_factory=PrunePolicy)
    summary: SummaryPolicy = field(default_factory=SummaryPolicy)
    importance: ImportanceWeights = field(default_factory=ImportanceWeights)

    recall: Recall = Recall.AUTO
    """Whether messages behind the summary are searched for what the user's message asks, and quoted in the prompt.

    Measured by benchmarks/planted_recall.py: with it, prompts hold far more of the facts that are asked for.
    """

    memories: Recall = Recall.OFF
    """Whether memories of the user that fit the user's message are quoted in the prompt; never in shared sessions.

    Off by default: memories were stored to be read by their user, and perhaps by no provider.
    """

    token_counter: str = "tiktoken"  # noqa: S105  # a counter of tokens, no secret
    """How tokens are counted: `tiktoken` with the model's vocabulary, `tiktoken:<encoding>`, `chars`,
    `transformers:<name or path>` or `module:function`.

    tiktoken, because its vocabularies are shipped with the service and fit the most models. In an agent's file the
    default is the counter of the agent's model.
    """

    pre_compact: str = ""
    """Your function as `module:function`, which is asked before each compaction."""

    keep_recent: Annotated[int, MESSAGES] = 20
    """Number of newest messages that the strategy `truncation` keeps. Chosen: ten exchanges."""

    min_score_threshold: Annotated[float, SCORE] = 0.3
    """Score (0 to 1) below which the strategy `importance` leaves a message out at once.

    It lies between an acknowledgement (0.1) and a short answer (0.4).
    """
