"""One claimed run from the claim to the last event: runs the turn's graph under the lease and stores how the run ended.

The worker calls `take_turn` once for every run that it has claimed.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import structlog

from throughline.context.measure import count_message
from throughline.domain.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    LeaseLost,
    NotFound,
    RunAbandoned,
    ThroughlineError,
    provider_words,
)
from throughline.domain.message import NewMessage, Role, is_blank
from throughline.domain.run import USER_STEP, ClaimedRun, Outcome, RowLease, Run, RunError, RunStatus, user_message
from throughline.domain.tool import NewWait, given_before
from throughline.domain.usage_report import total_usage
from throughline.execution.compute_threads import work_for
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.lease_loop import Heartbeat, StopReason
from throughline.ports.tracing import Span, SpanUnderWay, TurnEnd, create_untraced_task
from throughline.turn.apply_overrides import apply_request
from throughline.turn.event_writer import EventWriter, Unstored
from throughline.turn.graph import TurnGraph, step_limit
from throughline.turn.llm_node import not_in_format
from throughline.turn.prompting.context_report import close_context
from throughline.turn.prompting.planning import count_new
from throughline.turn.state import Turn, TurnDependencies, TurnState, present
from throughline.turn.store_step import PAUSE_SECONDS, settle_step, wait_for_database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TurnStart:
    """Everything that `take_turn` needs to run the turn of one claimed run."""

    dependencies: TurnDependencies
    graph: TurnGraph
    claimed: ClaimedRun
    heartbeat: Heartbeat[RowLease]


async def take_turn(start: TurnStart) -> None:
    """Run the turn until it ends or waits, its lease is lost, a cancel is requested, or the asyncio task is cancelled.

    If the asyncio task is cancelled (at shutdown), the caller has to give the run back. Another worker then resumes the
    run from the messages that this turn has stored.
    """
    work_for(start.claimed.run.owner_id)
    with SpanUnderWay(start.dependencies.tracing.begin_turn(start.claimed.run)) as span:
        await _take(start, span)


async def _take(start: TurnStart, span: Span) -> None:
    turn = _open(start)
    started = start.dependencies.clock.monotonic()
    graph = asyncio.create_task(_run(start, turn))
    watch = create_untraced_task(start.heartbeat.watch())
    try:
        await asyncio.wait({graph, watch}, return_when=asyncio.FIRST_COMPLETED)
        async with _lease_renewed(start):
            ended = _with_calls(turn, await _ended(turn, graph, watch))
            status = None if ended is None else await end_turn(turn, start.claimed.run, ended)
    finally:
        await _stop(graph, watch)
        await turn.events.drain()
    if ended is None or status is None:
        return
    seconds = start.dependencies.clock.monotonic() - started
    start.dependencies.metrics.turn_finished(agent=start.claimed.run.agent, status=status.value, seconds=seconds)
    end = TurnEnd(ended, status)
    span.add_result(end)
    _log_end(turn, start.claimed.run, end, seconds=seconds, trace_id=span.trace_id)


def _log_end(turn: Turn, run: Run, end: TurnEnd, *, seconds: float, trace_id: str) -> None:
    """Write the line that says how the turn ended: its waits, its tokens, its prompt, and the agent and its session.

    `queued_seconds` is the time until the first attempt, by the database's clock. Tokens and cost are those of the
    answers, None if unknown. `prompt_tokens` is the size of the last prompt by our count, `stage` what reduced the
    turn's prompts. `trace_id` is left out unless the turn was traced.
    """
    ended, prompt = end.outcome, turn.last_prompt
    queued = None if run.started_at is None else round((run.started_at - run.created_at).total_seconds(), 3)
    log.info(
        "turn finished",
        run_id=str(run.id),
        session_id=str(run.session_id),
        agent=run.agent,
        status=end.status.value,
        error=None if ended.error is None else ended.error.type,
        attempt=run.attempt,
        queued_seconds=queued,
        seconds=round(seconds, 3),
        input_tokens=ended.usage.input_tokens,
        output_tokens=ended.usage.output_tokens,
        cost_usd=None if ended.usage.cost_usd is None else float(ended.usage.cost_usd),
        prompt_tokens=prompt.tokens,
        unreduced_tokens=prompt.unreduced_tokens,
        window_tokens=prompt.window_tokens,
        stage=",".join(prompt.stages) or "none",
        **({"trace_id": trace_id} if trace_id else {}),
    )


@asynccontextmanager
async def _lease_renewed(start: TurnStart) -> AsyncGenerator[None]:
    """Renew the lease in the background while the `with` block stores the end of the turn."""
    holding = create_untraced_task(start.heartbeat.hold())
    try:
        yield
    finally:
        await _stop(holding)


def _open(start: TurnStart) -> Turn:
    return Turn(
        dependencies=start.dependencies,
        lease=start.claimed.lease,
        events=EventWriter(start.dependencies.events, start.claimed, start.dependencies.messages.new_message_id),
        deadline=start.dependencies.clock.monotonic() + start.dependencies.config.deadline_seconds,
        attempt=start.claimed.run.attempt,
        source=start.claimed.run.source,
    )


async def _run(start: TurnStart, turn: Turn) -> Outcome | None:
    """Run the graph and return the run's outcome.

    Return None if nothing may be written (the lease is lost) or nothing can be written (the database is unavailable).
    Another worker then continues the run.
    """
    try:
        with ErrorBoundary(log.error, task="turn", lets_through=(ThroughlineError,), run_id=str(turn.lease.run_id)):
            return await _through_the_graph(start, turn)
    except LeaseLost:
        log.warning("run lease lost, turn stopped", run_id=str(turn.lease.run_id))
        return None
    except DatabaseUnavailable as error:
        await turn.events.drain()  # a write that goes on would hold the run's row, and the next claim would skip it
        await start.dependencies.clock.sleep(PAUSE_SECONDS)
        await _give_back(start, counts=isinstance(error, DatabaseBusy))
        return None
    except ThroughlineError as error:
        log.info("turn failed", run_id=str(turn.lease.run_id), error=error.code, **provider_words(error))
        return failed(error.code, error.detail, error.provider_message)
    return failed(ThroughlineError.code, "An unexpected error occurred. Your message is kept; send it again.")


async def _through_the_graph(start: TurnStart, turn: Turn) -> Outcome:
    """Run the graph with the agent as it is now, and with the overrides of the run's request.

    Raises NotFound if the agent no longer exists, InvalidInput if it does not allow the overrides.
    """
    run, dependencies = start.claimed.run, start.dependencies
    definition = apply_request(dependencies.agents.get(run.agent), run.input, dependencies.models)
    values = await start.graph.ainvoke(
        TurnState(claimed=start.claimed, definition=definition),
        context=turn,
        config={"recursion_limit": step_limit(definition.max_tool_rounds)},
    )
    state = TurnState(**values)
    if state.waiting:
        return _waiting(start, state)
    answer = present(state.answer)
    conversation = present(state.conversation)
    closing = await close_context(start.dependencies, present(state.agent), conversation, answer)
    error = not_in_format(state.misfit) if state.misfit else None
    return Outcome(
        status=RunStatus.SUCCEEDED if error is None else RunStatus.FAILED,
        answer=answer,
        error=error,
        context=closing.report,
        is_summary_due=closing.is_summary_due,
    )


def _waiting(start: TurnStart, state: TurnState) -> Outcome:
    """Return the outcome of a turn that waits: the calls of its last step, and until when.

    A graph may wait without having called a tool.
    """
    own = present(state.conversation).own
    step = next((message for message in reversed(own) if message.tool_calls), own[-1])
    seconds = state.definition.wait_seconds
    until = start.dependencies.clock.now() + timedelta(seconds=seconds)
    wait = NewWait(state.waiting, step.id, until, given_before(start.claimed.run.wait, state.waiting))
    return Outcome(status=RunStatus.WAITING, wait=wait)


def _with_calls(turn: Turn, outcome: Outcome | None) -> Outcome | None:
    """Return the outcome with what the attempt's model calls used, however it ended."""
    if outcome is None:
        return None
    return replace(outcome, usage=total_usage(turn.calls.made), calls=turn.calls.take())


async def _ended(
    turn: Turn, graph: "asyncio.Task[Outcome | None]", watch: "asyncio.Task[StopReason]"
) -> Outcome | None:
    if graph.done():
        return graph.result()
    await _stop(graph)
    if watch.result() is StopReason.CANCEL_REQUESTED:
        return Outcome(status=RunStatus.CANCELLED, answer=await _partial_answer(turn))
    log.warning("run lease lost, turn stopped", run_id=str(turn.lease.run_id))
    return None


async def _partial_answer(turn: Turn) -> NewMessage | None:
    """Return the part of the answer that readers have already seen, marked as interrupted; None if they saw nothing.

    A step whose storage the cancellation interrupted is complete: it is stored, and no part of it is left.
    """
    text = turn.events.shown_text if await settle_step(turn) else ""
    if is_blank(text):
        return None
    message = NewMessage(
        id=turn.events.message_id,
        role=Role.ASSISTANT,
        content=text,
        source=turn.source,
        metadata={"interrupted": True},
    )
    return await count_new(message, turn.dependencies.make_counter(turn.dependencies.config.token_counter))


async def _give_back(start: TurnStart, *, counts: bool) -> None:
    """Return the run to the queue once the database is available again.

    `counts` says whether this attempt counts against the run's maximum. An outage of the database does not count; an
    error that the run itself may have caused does.
    """
    runs, lease = start.dependencies.runs, start.claimed.lease
    try:
        await wait_for_database(start.dependencies, lease.run_id, lambda: runs.give_back(lease, counts=counts))
    except DatabaseUnavailable as error:
        log.warning("run not returned to queue, lease left to expire", run_id=str(lease.run_id), error=error.code)


async def _stop(*tasks: "asyncio.Task[Outcome | None] | asyncio.Task[StopReason] | asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# The end of a turn, whatever becomes of it: it is written until it is stored.

UNSTORABLE = "The answer could not be stored. Your message is kept; send it again."
UNEXPLAINED = frozenset({ThroughlineError.code, RunAbandoned.code})
"""Error codes of turns that ended by an unexpected error or whose processes crashed."""

ESTIMATING = "chars"
"""Name of the token counter that uses only a text's length, and rather overestimates."""


def failed(code: str, detail: str, provider_message: str = "") -> Outcome:
    """Return the outcome of a run that ends with an error."""
    return Outcome(status=RunStatus.FAILED, error=RunError(code, detail, provider_message))


async def end_turn(turn: Turn, run: Run, outcome: Outcome) -> RunStatus | None:
    """Store how the run ended, and return the stored status; None if another worker continues the run.

    While the database is unavailable or full, the write is retried without limit, so that a finished answer is not
    requested twice. If an available database refuses the outcome or is too slow for it several times, a plain failure
    is stored instead: without answer, calls and words of others. If it refuses that too, the last attempt stores the
    run's status alone. The caller must keep the lease renewed meanwhile.
    """
    unstored = await turn.events.drain()
    is_plain = False
    while True:
        write = partial(_write_end, turn, run, outcome, unstored)
        try:
            with ErrorBoundary(
                log.error, "turn outcome refused by database", lets_through=(LeaseLost,), run_id=str(run.id)
            ):
                return await wait_for_database(turn.dependencies, run.id, write)
        except LeaseLost:
            return await _stored_status(turn, run)
        if is_plain:
            return await _fail(turn, run, outcome)
        error = outcome.error or RunError(ThroughlineError.code, UNSTORABLE)
        outcome, is_plain = failed(error.type, UNSTORABLE), True


async def _write_end(turn: Turn, run: Run, outcome: Outcome, unstored: Unstored) -> RunStatus:
    await _keep_message(turn, run, outcome)
    ended = await turn.dependencies.runs.finish(turn.lease, outcome, unstored.events, unstored.next_seq)
    return ended.status


async def _fail(turn: Turn, run: Run, outcome: Outcome) -> RunStatus | None:
    """Leave a run whose failure cannot be stored to the next attempt; in the last attempt write only the run's row.

    Otherwise workers would claim the run again after each lease, for ever. The user's message is then kept in that row
    only.
    """
    if run.attempt <= turn.dependencies.config.max_attempts:
        return None
    error = outcome.error or RunError(ThroughlineError.code, UNSTORABLE)
    try:
        await wait_for_database(turn.dependencies, run.id, lambda: turn.dependencies.runs.fail(turn.lease, error))
    except ThroughlineError as refusal:
        log.error("run failure not stored", run_id=str(run.id), error=refusal.code)
        return await _stored_status(turn, run)
    return RunStatus.FAILED


async def _stored_status(turn: Turn, run: Run) -> RunStatus | None:
    """Return the stored final status of the run; None if it has not ended.

    It may have been stored by our own write, whose reply was lost, or by another worker.
    """
    try:
        stored = await turn.dependencies.runs.get_run(run.owner_id, run.id)
    except (NotFound, DatabaseUnavailable):
        stored = None
    status = stored.status if stored is not None and stored.status.is_final else None
    log.info(
        "lease lost before the run's end was stored",
        run_id=str(run.id),
        status=None if status is None else status.value,
    )
    return status


async def _keep_message(turn: Turn, run: Run, outcome: Outcome) -> None:
    """Store the user's message if the turn did not succeed and has not stored it: an accepted message is always kept.

    The agent's counter does not count its tokens here, because counting may be what failed the turn. Raises LeaseLost,
    DatabaseUnavailable.
    """
    if outcome.status in {RunStatus.SUCCEEDED, RunStatus.WAITING}:  # the turn has stored it
        return
    lets_through = (LeaseLost, DatabaseUnavailable)
    with ErrorBoundary(log.error, "user message not stored", lets_through=lets_through, run_id=str(run.id)):
        await turn.dependencies.messages.append_message(
            turn.lease, USER_STEP, _with_estimated_count(turn.dependencies, run, outcome)
        )


def _with_estimated_count(dependencies: TurnDependencies, run: Run, outcome: Outcome) -> NewMessage:
    """Return the message to store, with an estimated token count if counting may have failed the turn.

    Otherwise a text that the agent's counter cannot handle would fail every later turn of the session, too. In all
    other cases the message has no count; a later turn counts it.
    """
    message = user_message(run)
    if outcome.error is None or outcome.error.type not in UNEXPLAINED:
        return message
    try:
        counter = dependencies.make_counter(dependencies.agents.get(run.agent).context.token_counter)
    except ThroughlineError:  # the agent's definition is broken: no counter until it is fixed
        return message
    estimate = count_message(message, dependencies.make_counter(ESTIMATING).count)
    return replace(message, token_count=estimate, counter=counter.name)
