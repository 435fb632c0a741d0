"""Answers to a user about a session's context between turns: the report, and whether a summary is due."""

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from throughline.context.calibration import scale
from throughline.context.compaction.compaction_cut import row_tokens
from throughline.context.compaction.compaction_triggers import (
    GROWTH_SHARE,
    CompactionTrigger,
    can_reach_tokens,
    count_trigger,
    counted_from,
    due_triggers,
    is_near_threshold,
    is_summarising,
    messages_since_summary,
    reducing_tokens,
    summarised_through,
    tokens_since_restore,
    tokens_since_summary,
)
from throughline.context.compaction.last_stages import OLDEST_TRIMMED
from throughline.context.fit_prompt import fit_view
from throughline.context.measure import count_system
from throughline.context.plan_context import ContextPlan, plan_context
from throughline.context.policy import Adopt
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import EMPTY_USER_TEXT
from throughline.context.view.view import View
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.events import HistoryQuoted, MemoriesQuoted
from throughline.domain.message import Message, NewMessage, Role, Source
from throughline.domain.summary import AdoptedSummary, Prepared

# The values of the report on a session's context.
#
# The report says how full the context is, what the next turn will do about it, and which messages the summary covers.


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
    """One summary, adopted or prepared, as the report shows it. `token_count` is in the model's tokens.

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
class RestoreReport:
    """A restore that still holds: the newest message then, and the tokens that have to follow before it ends."""

    at_position: int
    tokens_since: int
    tokens_needed: int


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The state of a session's context. Tokens are the model's: our counts times the factor.

    - `total_tokens`: the prompt of the conversation as it stands, before the next message reduces it.
    - `unreduced_tokens`: the same without any pruning, shortening or omission since the summary. If more than two
      windows follow the summary, only loaded messages count.
    - `last_stage`: the stage that last changed what is shown; None if all is shown as it is stored.
    - `counted_from_position`: the position after which messages (N) and tokens (K) are counted.
    - `messages_threshold`, `tokens_threshold`: None if no summary is written automatically.
    - `can_reach_tokens`: False if K is more than the messages of this window can ever take.
    - `adopt`: when a prepared summary is used, as the agent's option says.
    - `restored`: None if no summary was restored, or enough was said since for another summary.
    - `quoted`, `quoted_memories`: the earlier messages and the memories that the newest turn's prompt quoted. They are
      not computed, but added from the stored events to a report on request.
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
    can_reach_tokens: bool = True
    adopt: Adopt = Adopt.AT_THRESHOLD
    restored: RestoreReport | None = None
    quoted: HistoryQuoted | None = None
    quoted_memories: MemoriesQuoted | None = None


NEXT_MESSAGE = NewMessage(role=Role.USER, content=EMPTY_USER_TEXT, source=Source.API)
"""The message assumed to come next: its text is the placeholder for an empty one."""

EMPTY_MESSAGE = Message(
    id=MessageId(UUID(int=0)),
    session_id=SessionId(UUID(int=0)),
    position=0,
    role=Role.USER,
    content=EMPTY_USER_TEXT,
    source=Source.API,
    created_at=datetime.min.replace(tzinfo=UTC),
)
"""The message assumed to come next, as a stored message; also used for the answer assumed to follow."""

RECENT_ANSWERS = 10
"""Number of latest answers whose average length is expected of the next answer."""


def explain_context(context_input: ContextInput, facts: SummaryFacts) -> ContextReport:
    """Return the report on a session between turns, or as it will be after the running turn."""
    return report_turn_end(context_input, facts)[0]


def report_turn_end(context_input: ContextInput, facts: SummaryFacts) -> tuple[ContextReport, bool]:
    """Return the report at a turn's end, and whether a summary should now be written in the background."""
    plan = next_plan(context_input)
    return _with_limits(_report(plan, facts), plan.initial_view.context_input), plan.is_summary_due


def next_plan(context_input: ContextInput) -> ContextPlan:
    """Return the plan for an empty message once no turn runs; the running turn's messages then count as history."""
    return plan_context(replace(context_input, history=context_input.rows, own=(), user=NEXT_MESSAGE))


def is_reducing_prompt(plan: ContextPlan) -> bool:
    """Return whether the plan makes the prompt smaller before the call."""
    return bool(plan.decision.is_now or plan.fired or fit_view(plan.view).notes)


def _report(plan: ContextPlan, facts: SummaryFacts) -> ContextReport:
    """Return the report on the view as the plan found it, without the assumed empty message."""
    view = plan.initial_view
    context, empty = replace(view.context_input, user=None), view.counts[view.current_index]
    total = scale(view.tokens - empty, context.factor)
    (system, tools, summary), (action, gauge) = _fixed_tokens(view), _next_step(plan)
    since, since_tokens = messages_since_summary(context), scale(tokens_since_summary(context), context.factor)
    most_messages, most_tokens = _thresholds(context)
    return ContextReport(
        agent=facts.agent,
        model=facts.model,
        context_window=context.budget.window_tokens,
        response_reserve=context.budget.reserve_tokens,
        system_tokens=system,
        tools_tokens=tools,
        summary_tokens=summary,
        message_tokens=max(total - system - tools - summary, 0),
        total_tokens=total,
        unreduced_tokens=max(scale(view.unreduced_tokens - empty, context.factor), total),
        last_stage=OLDEST_TRIMMED if context.has_gap else view.state.stage or None,
        threshold_tokens=reducing_tokens(context),
        usage_percent=_percent(total, context.budget.window_tokens),
        counted_from_position=counted_from(context),
        messages_since_summary=since,
        messages_threshold=most_messages,
        messages_percent=None if most_messages is None else _percent(since, most_messages),
        tokens_since_summary=since_tokens,
        tokens_threshold=most_tokens,
        tokens_percent=None if most_tokens is None else _percent(since_tokens, most_tokens),
        will_trigger=action is not NextAction.NONE,
        next_action=action,
        next_trigger=gauge,
        summary_count=facts.summary_count,
        last_summary_at=None if facts.adopted is None else facts.adopted.created_at,
        estimated_response_tokens=_expected_answer(view),
        summary=_summary_report(facts.adopted, context.factor),
        prepared=_prepared_report(context.prepared, context.factor),
        summariser=facts.summariser,
        summary_failure=facts.failure,
    )


def _with_limits(report: ContextReport, context_input: ContextInput) -> ContextReport:
    """Return the report with what the agent's options and a restore say about the next summary."""
    return replace(
        report,
        can_reach_tokens=can_reach_tokens(context_input),
        adopt=context_input.policy.adopt,
        restored=_restore_report(replace(context_input, user=None)),
    )


def _thresholds(context_input: ContextInput) -> tuple[int | None, int | None]:
    """Return the numbers of messages and tokens after which a summary is due; None without automatic summaries."""
    if not is_summarising(context_input):
        return None, None
    return context_input.policy.max_messages_before_summary, context_input.policy.max_tokens_before_summary


def _fixed_tokens(view: View) -> tuple[int, int, int]:
    """Return the tokens of system prompt, tools and summary, in the model's tokens."""
    context_input = view.context_input
    system = count_system(context_input.system_prompt.strip(), context_input.count)
    summary = view.system_tokens - system
    return (
        scale(system, context_input.factor),
        scale(context_input.tools_tokens, context_input.factor),
        scale(summary, context_input.factor),
    )


def _next_step(plan: ContextPlan) -> tuple[NextAction, FiringGauge | None]:
    """Return what the assumed empty message and answer trigger, and which limit causes it."""
    if is_reducing_prompt(plan):
        return NextAction.COMPACT, _gauge(plan.decision.trigger if plan.decision.is_now else None)
    later = _input_after_answer(plan)
    if later is None:
        return NextAction.NONE, None
    return NextAction.PREPARE, _gauge(count_trigger(later, summarised_through(later)))


def _gauge(trigger: CompactionTrigger | None) -> FiringGauge:
    """Return the limit that the report names as the cause: MESSAGES or TOKENS for these triggers, else WINDOW."""
    if trigger is CompactionTrigger.MESSAGES:
        return FiringGauge.MESSAGES
    return FiringGauge.TOKENS if trigger is CompactionTrigger.TOKENS else FiringGauge.WINDOW


def _input_after_answer(plan: ContextPlan) -> ContextInput | None:
    """Return the input after the assumed message and an empty answer, if a summary is due then; else None."""
    context_input = plan.view.context_input
    rows = context_input.rows
    last = rows[-1].position if rows else context_input.summary_through_position
    tokens = plan.view.counts[plan.view.current_index]
    said = tuple(
        replace(EMPTY_MESSAGE, position=last + step, role=role, token_count=tokens, counter=context_input.counter_name)
        for step, role in ((1, Role.USER), (2, Role.ASSISTANT))
    )
    later = replace(context_input, history=(*rows, *said))
    most = plan.raw_tokens + 2 * tokens
    is_far_off = not (due_triggers(later, most) or count_trigger(later, summarised_through(later)))
    if is_far_off and not is_near_threshold(later, most):
        return None
    return later if plan_context(later).is_summary_due else None


def _restore_report(context_input: ContextInput) -> RestoreReport | None:
    since = tokens_since_restore(context_input)
    if since is None:
        return None
    needed = math.ceil(GROWTH_SHARE * context_input.budget.window_tokens)
    return RestoreReport(context_input.view_state.restored_at_position, since, needed)


def _summary_report(version: AdoptedSummary | None, factor: float) -> SummaryReport | None:
    """Return the report on an adopted summary; None if it covers no message (after a restore to the beginning)."""
    if version is None or version.through_position == 0:
        return None
    return SummaryReport(
        messages_summarized=version.through_position,
        token_count=scale(version.token_count, factor),
        created_at=version.created_at,
        through_id=version.through_id,
        through_position=version.through_position,
        model=version.model,
    )


def _prepared_report(prepared: Prepared | None, factor: float) -> SummaryReport | None:
    if prepared is None:
        return None
    return SummaryReport(
        messages_summarized=prepared.through_position,
        token_count=scale(prepared.token_count, factor),
        created_at=prepared.created_at,
        through_id=None,
        through_position=prepared.through_position,
        model=prepared.model,
    )


def _expected_answer(view: View) -> int:
    """Return the mean size of the newest answers; the whole reserve if there is none yet."""
    context_input = view.context_input
    answers = [
        tokens
        for row, tokens in zip(context_input.rows, row_tokens(view), strict=True)
        if tokens and row.role is Role.ASSISTANT
    ][-RECENT_ANSWERS:]
    if not answers:
        return context_input.budget.reserve_tokens
    return min(scale(sum(answers) // len(answers), context_input.factor), context_input.budget.reserve_tokens)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole > 0 else 100.0
