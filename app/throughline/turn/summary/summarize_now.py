"""Summary on demand: what `POST …/summarize` and `/summarize` do. It runs outside any turn, by compare-and-set."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import structlog

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.summaries.check_summary import SummaryRejected
from throughline.context.summaries.summary_prompt import (
    SMALLEST_BUDGET,
    TextRequest,
    chunk_for_summariser,
    render_transcript,
    summary_request,
)
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput, ModelUnavailable, TemporaryError
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import CompactionOutcome, CompactionResult, SummaryState
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.execution.error_boundary import running_concurrently
from throughline.execution.lease_loop import Heartbeats
from throughline.ports.storage import SummaryStore
from throughline.ports.tracing import SpanUnderWay, SummaryTrace
from throughline.turn.prompting.planning import at_rest, plan_call
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.reread import SummaryCost, SummaryRequest, plan_reread
from throughline.turn.summary.summariser import EXTRACTING_MODEL, Summariser, summary_models
from throughline.turn.summary.summariser_calls import check_text, pause_seconds, write_text

# Summary of messages that belong to no session, read in parts that fit the model's window. Nothing is stored.
#
# The Python client uses it.


async def summarize_transcript(messages: Sequence[Message], existing_summary: str, summariser: Summariser) -> str:
    """Return one checked text for `existing_summary` and `messages` together.

    The messages are read in parts; each call extends the text of the call before. A failed or unusable answer is
    requested once more. Raises InvalidInput if the summary model's window has no room for messages, SummaryRejected,
    NotWorthIt, and the ModelRejected and ModelUnavailable families.
    """
    text, count, most = existing_summary, summariser.count, summariser.max_tokens
    replaced = await run_off_loop_if_large(len(text), partial(count, text))
    room = _room(max(replaced, most), summariser)
    cut = partial(chunk_for_summariser, tuple(messages), budget_tokens=room, count=count)
    for chunk in await run_off_loop_if_large(characters_of(messages), cut):
        record = render_transcript(chunk)
        replaced += await run_off_loop_if_large(len(record), partial(count, record))
        prompt = summary_request(text, chunk, most, summariser.guidance)
        text = await _ask_twice(TextRequest(prompt, most, replaced, (1, chunk[-1].position)), summariser)
    return text


def _room(kept_tokens: int, summariser: Summariser) -> int:
    """Return the tokens of a request that remain besides the summary it carries and the instructions."""
    most = summariser.request_tokens(summariser.max_tokens)
    room = most - kept_tokens - summariser.count(summariser.instructions) - SMALLEST_BUDGET
    if room < max(most // 4, SMALLEST_BUDGET):
        raise InvalidInput(
            f"The existing summary and the instructions take {most - max(room, 0)} of the {most} tokens that a request "
            f"to {summariser.model.name} may have: shorten them, or name a model with a larger window.",
            field="existing_summary",
        )
    return room


async def _ask_twice(asked: TextRequest, summariser: Summariser) -> str:
    """Return the checked answer; the text replaces everything read so far."""
    try:
        return (await check_text(await write_text(summariser, asked), summariser, asked)).text
    except SummaryRejected:
        pass
    except ModelUnavailable as error:
        await asyncio.sleep(pause_seconds(error))
    return (await check_text(await write_text(summariser, asked), summariser, asked)).text


LEASE_SECONDS = 15.0
"""Seconds for which a crashed process blocks other summaries on demand; a running process renews its lease in time."""

ON_DEMAND_SECONDS = 60.0
"""Time limit of a summary on demand: longer than a turn gives, because no turn waits for it, only the user who asked.
"""

log = structlog.get_logger(__name__)


async def summarize_now(
    dependencies: SummaryDependencies, session: Session, request: SummaryRequest
) -> CompactionResult:
    """Summarise all but the newest messages of `session`, whatever the triggers say.

    With instructions, messages that are already summarised are read again, and without, those for which an extract
    stands because no model could write. In all processes together, a session has one
    such request at a time. A running turn is not disturbed: the first to change the summary wins, and the other's work
    is dropped. Raises SummaryInProgress, NotFound, DatabaseUnavailable, and InvalidInput for a position after the last
    message or instructions too long for every summary model.
    """
    async with _summary_lease(dependencies.summaries, session.id):
        summary = SummaryTrace("summarize on demand", session.id, session.agent)
        with SpanUnderWay(dependencies.tracing.begin_summary(summary)) as span:
            span.add_result(done := await _summarize(dependencies, session, request))
            return done


async def estimate_summary(dependencies: SummaryDependencies, session: Session, request: SummaryRequest) -> SummaryCost:
    """Return what `summarize_now` would read and cost, without writing anything. Raises the same errors."""
    task = await _load_task(dependencies, session, request)
    prepared = task.conversation.prepared if task.extends_prepared else None  # which is not read again
    after = (task.session.summary_through_position if prepared is None else prepared.through_position) + 1
    first = await _first_to_read(dependencies, task, request)
    return (await plan_reread(dependencies, task, min(first or after, after)))[1]


async def _first_to_read(dependencies: SummaryDependencies, task: Compaction, request: SummaryRequest) -> int | None:
    """Return the position from which messages are read again; None if only new ones are read.

    It is what the request says, or else where an extract stands for messages because no model could write.
    """
    if request.first is not None or all(
        model.name == EXTRACTING_MODEL for model in summary_models(dependencies, task.agent)
    ):
        return request.first
    parts = await dependencies.summaries.load_parts(task.session.id, SummaryState.ADOPTED)
    segments = () if parts is None else parts[1]
    return min((one.from_position for one in segments if one.model == EXTRACTING_MODEL), default=None)


async def _load_task(dependencies: SummaryDependencies, session: Session, request: SummaryRequest) -> Compaction:
    agent, conversation = await at_rest(dependencies, session)
    if (request.from_position or 0) > conversation.session.message_count:
        raise InvalidInput(
            f"There is no message #{request.from_position}: the session has {conversation.session.message_count}.",
            field="from_position",
        )
    plan = await plan_call(agent, conversation, forced=CompactionTrigger.MANUAL)
    seconds = max(ON_DEMAND_SECONDS, agent.definition.context.summary.timeout_seconds)
    return Compaction(agent, conversation, plan, instructions=request.instructions, seconds_left=seconds)


async def _summarize(dependencies: SummaryDependencies, session: Session, request: SummaryRequest) -> CompactionResult:
    task = await _load_task(dependencies, session, request)
    first = await _first_to_read(dependencies, task, request)
    if first is not None and first <= task.session.summary_through_position:
        task, _ = await plan_reread(dependencies, task, first)
    elif task.plan.decision.trigger is None:
        return task.unchanged(CompactionOutcome.SKIPPED, _nothing_to_do(task.session))
    _, _, done = await compact(dependencies, task)
    if done.outcome is CompactionOutcome.ADOPTED:
        dependencies.metrics.compaction_measured(tokens_before=done.tokens_before, tokens_after=done.tokens_after)
    if done.is_stale or done.outcome is not CompactionOutcome.ADOPTED:
        return replace(done, session=(await at_rest(dependencies, session))[1].session)
    return done


def _nothing_to_do(session: Session) -> str:
    if session.summary_through_position == 0:
        return "There is nothing to summarize yet: the newest messages always stay as they are."
    done = session.summary_through_position
    return (
        f"There is nothing new to summarize: messages up to #{done} are summarized, and the newest ones stay as "
        "they are."
    )


@asynccontextmanager
async def _summary_lease(summaries: SummaryStore, session_id: SessionId) -> AsyncGenerator[None]:
    """Hold the session's lease for summaries on demand during the `with` block, so that no second one runs."""
    lease = await summaries.take_lease(session_id, LEASE_SECONDS)
    try:
        heartbeat = Heartbeats(summaries.renew_leases, LEASE_SECONDS).of(lease)
        async with running_concurrently(heartbeat.hold, f"summarize {session_id}"):
            yield
    finally:
        try:
            await summaries.release_lease(lease)
        except TemporaryError as error:
            log.warning("summary lease not released, left to expire", session_id=str(session_id), error=error.code)
