"""Compaction: asks for summaries chunk by chunk and moves the cursor with each one that is stored."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from app.context.budget import summary_limit
from app.context.calibration import unscale
from app.context.plan import ContextPlan, backlog, plan_context
from app.domain.errors import DatabaseUnavailable, LeaseLost, ThroughlineError
from app.domain.events import EventType
from app.domain.json_types import JsonObject
from app.domain.message import Message, NewMessage
from app.domain.run import Lease
from app.domain.session import Session
from app.domain.summary import Adoption, NewStretch
from app.turn.prompting import context_input
from app.turn.state import Cast, Conversation, TurnParts
from app.turn.summarize import NotWorthIt, Summariser, chunks_for, write_stretch

Announce: TypeAlias = Callable[[EventType, JsonObject], None]
PAGE_MESSAGES = 20
"""Few, as each may be megabytes."""

BACKLOG_MESSAGES = 200
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is to be compacted, for whom. `lease` is None where no turn asks (a forced summary)."""

    cast: Cast
    conversation: Conversation
    pending: NewMessage | None = None
    lease: Lease | None = None
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class Compacted:
    """How it ended: `adopted`, `skipped` (not worth it) or `failed`; `conversation` is the one to go on with."""

    conversation: Conversation
    outcome: str
    detail: str
    tokens_before: int
    tokens_after: int


async def compact(parts: TurnParts, task: Compaction, plan: ContextPlan, announce: Announce) -> Compacted:
    """Summarise what the plan names, within the policy's time limit, and announce start and end.

    Never raises for a summariser that fails, is slow or writes nonsense: the cursor then stays where the last good
    summary put it. LeaseLost and DatabaseUnavailable are let through.
    """
    started = parts.clock.monotonic()
    announce(EventType.COMPACTION_STARTED, {"cause": plan.cause, "tokens": plan.tokens})
    progress = _Progress(task.conversation)
    outcome, detail = await _within_time(parts, task, plan, progress)
    after = plan_context(context_input(task.cast, progress.conversation, task.pending)).tokens
    done = Compacted(progress.conversation, outcome, detail, plan.tokens, after)
    announce(EventType.COMPACTION_FINISHED, _finished_data(plan, done))
    parts.metrics.compaction_finished(
        cause=plan.cause or "none",
        outcome=outcome,
        seconds=parts.clock.monotonic() - started,
        tokens_freed=max(plan.tokens - after, 0),
    )
    return done


class _Progress:
    """What has been adopted so far; survives a time-out in the middle of the next chunk."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation


async def _within_time(parts: TurnParts, task: Compaction, plan: ContextPlan, progress: _Progress) -> tuple[str, str]:
    """Summarise chunk after chunk; return outcome and detail. What earlier chunks achieved is never undone."""
    seconds = task.cast.agent.context.summary.timeout_seconds
    failed, skipped = "failed", "skipped"
    outcome, detail = skipped, "There is nothing that could be summarised without tearing a call from its results."
    try:
        async with asyncio.timeout(seconds):
            await _work_off(parts, task, plan, progress)
    except (LeaseLost, DatabaseUnavailable):
        raise
    except NotWorthIt as error:
        outcome, detail = skipped, error.detail
    except TimeoutError:
        outcome, detail = failed, f"The summary was not ready within {seconds:g} seconds."
    except ThroughlineError as error:
        log.warning("summary failed", session_id=str(task.conversation.session.id), error=error.code)
        outcome, detail = failed, error.detail
    else:
        if progress.conversation is not task.conversation:
            return "adopted", ""
    return ("adopted" if progress.conversation is not task.conversation else outcome), detail


async def _work_off(parts: TurnParts, task: Compaction, plan: ContextPlan, progress: _Progress) -> None:
    """Summarise what the plan names; what lies between the cursor and the loaded rows is read first, page by page."""
    while plan.must_load_first:
        behind = await _read_backlog(parts, task, progress.conversation.session, plan.through_position)
        if not behind:
            return
        await _adopt_chunks(parts, task, behind, progress)
        inp = context_input(task.cast, progress.conversation, task.pending)
        plan = plan_context(inp, forced=plan.cause)
    await _adopt_chunks(parts, task, plan.to_summarise, progress)


async def _read_backlog(
    parts: TurnParts, task: Compaction, session: Session, through_position: int | None
) -> tuple[Message, ...]:
    """Read what follows the cursor until it fills a window or is many messages, and on to the end of a group."""
    rows: tuple[Message, ...] = ()
    after = session.summary_through_id
    while True:
        page = await parts.store.get_messages_after(session.id, after, limit=PAGE_MESSAGES)
        rows = (*rows, *page)
        behind = backlog(rows, through_position)
        if len(page) < PAGE_MESSAGES or (behind and _is_much(task, rows)):
            return behind
        after = page[-1].id


def _is_much(task: Compaction, rows: tuple[Message, ...]) -> bool:
    tokens = sum(row.token_count for row in rows)
    return len(rows) >= BACKLOG_MESSAGES or tokens >= task.cast.budget.window_tokens


async def _adopt_chunks(parts: TurnParts, task: Compaction, messages: tuple[Message, ...], progress: _Progress) -> None:
    summariser = _summariser(parts, task)
    for chunk in chunks_for(summariser, messages):
        session = progress.conversation.session
        stretch = await write_stretch(parts.clock, summariser, session, chunk)
        adopted = await parts.store.adopt_summary(_adoption(task, session, stretch), task.lease)
        progress.conversation = _behind(progress.conversation, adopted)


def _summariser(parts: TurnParts, task: Compaction) -> Summariser:
    """The agent's summary model (the setting's, where the agent names none), else the agent's own model."""
    cast, policy = task.cast, task.cast.agent.context.summary
    model = parts.models.get(policy.model, policy.base_url) if policy.model else cast.model
    instructions = "\n".join(part for part in (policy.instructions, task.instructions) if part)
    return Summariser(
        model=model,
        policy=policy,
        count=cast.counter.count,
        max_tokens=max(unscale(summary_limit(policy, cast.budget), cast.factor), 1),
        window_tokens=cast.budget.window_tokens if model is cast.model else model.context_limit,
        factor=cast.factor,
        instructions=instructions,
    )


def _adoption(task: Compaction, session: Session, stretch: NewStretch) -> Adoption:
    return Adoption(
        session_id=session.id,
        expected_version=session.summary_version,
        stretch=stretch,
        text=stretch.text,
        token_count=stretch.token_count,
        run_id=None if task.lease is None else task.lease.run_id,
    )


def _behind(conversation: Conversation, session: Session) -> Conversation:
    """Trim the state: what the adopted summary stands for leaves the history; the rows stay where they are."""
    cursor = session.summary_through_position
    history = tuple(message for message in conversation.history if message.position > cursor)
    return replace(conversation, session=session, history=history)


def _finished_data(plan: ContextPlan, done: Compacted) -> JsonObject:
    session = done.conversation.session
    return {
        "cause": plan.cause,
        "outcome": done.outcome,
        "detail": done.detail,
        "tokens_before": done.tokens_before,
        "tokens_after": done.tokens_after,
        "through_position": session.summary_through_position,
        "summary_version": session.summary_version,
    }
