"""What a user may ask of the context: how full it is, what triggers next, what the summary stands for."""

from dataclasses import dataclass, replace
from enum import StrEnum

from app.context.calibration import scale
from app.context.plan import (
    ContextInput,
    Measured,
    measure_context,
    messages_since_summary,
    plan_context,
)
from app.domain.json_types import JsonValue
from app.domain.message import NewMessage, Role, Source
from app.domain.summary import SummaryVersion

RECENT_ANSWERS = 10
"""The next answer is expected to be as long as these were on average."""


class NextAction(StrEnum):
    """What the next turn will do with the context, for an empty message and answer.

    `prepare` is part of the wire and not reported yet: no summary is written in the background.
    """

    NONE = "none"
    PREPARE = "prepare"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What is stored of a session's summaries: how many there were, the adopted one and the prepared one."""

    agent: str
    model: str
    summary_count: int = 0
    adopted: SummaryVersion | None = None
    prepared: SummaryVersion | None = None


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """One summary as the report shows it."""

    messages_summarized: int
    token_count: int
    created_at: str
    through_id: str | None
    through_position: int
    model: str


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The state of a session's context. Tokens are the model's: our counts times the factor."""

    agent: str
    model: str
    context_window: int
    response_reserve: int
    system_tokens: int
    tools_tokens: int
    summary_tokens: int
    message_tokens: int
    total_tokens: int
    threshold_tokens: int
    usage_percent: float
    messages_since_summary: int
    messages_threshold: int
    messages_percent: float
    tokens_since_summary: int
    tokens_threshold: int
    tokens_percent: float
    will_trigger: bool
    next_action: NextAction
    summary_count: int
    last_summary_at: str | None
    estimated_response_tokens: int
    summary: SummaryReport | None
    prepared: SummaryReport | None


def explain_context(inp: ContextInput, facts: SummaryFacts) -> ContextReport:
    """Return the report on a session at rest; `inp.user` is normally None."""
    measured = measure_context(inp)
    total = scale(measured.total, inp.factor)
    message_tokens = scale(measured.messages, inp.factor)
    since = messages_since_summary(inp)
    action = next_action(inp)
    return ContextReport(
        agent=facts.agent,
        model=facts.model,
        context_window=inp.budget.window_tokens,
        response_reserve=inp.budget.reserve_tokens,
        system_tokens=scale(measured.system, inp.factor),
        tools_tokens=scale(measured.tools, inp.factor),
        summary_tokens=scale(measured.summary, inp.factor),
        message_tokens=message_tokens,
        total_tokens=total,
        threshold_tokens=inp.budget.threshold_tokens,
        usage_percent=_percent(total, inp.budget.window_tokens),
        messages_since_summary=since,
        messages_threshold=inp.policy.max_messages_before_summary,
        messages_percent=_percent(since, inp.policy.max_messages_before_summary),
        tokens_since_summary=message_tokens,
        tokens_threshold=inp.policy.max_tokens_before_summary,
        tokens_percent=_percent(message_tokens, inp.policy.max_tokens_before_summary),
        will_trigger=action is not NextAction.NONE,
        next_action=action,
        summary_count=facts.summary_count,
        last_summary_at=None if facts.adopted is None else facts.adopted.created_at.isoformat(),
        estimated_response_tokens=_expected_answer(inp, measured),
        summary=_summary_report(facts.adopted),
        prepared=_summary_report(facts.prepared),
    )


def next_action(inp: ContextInput) -> NextAction:
    """Return what an empty message would set off."""
    empty = NewMessage(role=Role.USER, content="", source=Source.API)
    asked = inp if inp.user is not None else replace(inp, user=empty)
    return NextAction.NONE if plan_context(asked).cause is None else NextAction.COMPACT


def report_json(report: ContextReport) -> dict[str, JsonValue]:
    """Return the wire form of the report."""
    fields: dict[str, JsonValue] = {name: getattr(report, name) for name in ContextReport.__slots__}
    return fields | {
        "next_action": report.next_action.value,
        "summary": _summary_json(report.summary),
        "prepared": _summary_json(report.prepared),
    }


def _summary_json(summary: SummaryReport | None) -> JsonValue:
    return None if summary is None else {name: getattr(summary, name) for name in SummaryReport.__slots__}


def _summary_report(version: SummaryVersion | None) -> SummaryReport | None:
    """A version that stands for no message (after a restore to the beginning) is no summary."""
    if version is None or version.through_position == 0:
        return None
    return SummaryReport(
        messages_summarized=version.through_position,
        token_count=version.token_count,
        created_at=version.created_at.isoformat(),
        through_id=None if version.through_id is None else str(version.through_id),
        through_position=version.through_position,
        model=version.model,
    )


def _expected_answer(inp: ContextInput, measured: Measured) -> int:
    """The mean of the newest answers, the whole reserve where there is none yet."""
    answers = [tokens for row, tokens in zip(inp.rows, measured.rows, strict=True) if row.role is Role.ASSISTANT][
        -RECENT_ANSWERS:
    ]
    if not answers:
        return inp.budget.reserve_tokens
    return min(scale(sum(answers) // len(answers), inp.factor), inp.budget.reserve_tokens)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole > 0 else 100.0
