"""How a turn ends: answer, usage, status and last events in one transaction, tried until the database has them."""

from dataclasses import replace
from functools import partial

import structlog

from throughline.context.measure import count_message
from throughline.domain.errors import DatabaseUnavailable, LeaseLost, NotFound, RunAbandoned, ThroughlineError
from throughline.domain.message import NewMessage
from throughline.domain.run import USER_STEP, Outcome, Run, RunError, RunStatus, user_message
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.event_writer import Unstored
from throughline.turn.keep_step import wait_for_database
from throughline.turn.state import Turn, TurnDependencies

UNSTORABLE = "The answer could not be stored. Your message is kept; send it again."
UNEXPLAINED = frozenset({ThroughlineError.code, RunAbandoned.code})
"""Ends of turns that something broke, or that their processes did not survive."""

ESTIMATING = "chars"
"""The counter that reads a text's length alone, and rather counts too much."""

log = structlog.get_logger(__name__)


def failed(code: str, detail: str) -> Outcome:
    """Return the outcome of a run that ends with an error."""
    return Outcome(status=RunStatus.FAILED, error=RunError(type=code, detail=detail))


async def end_turn(turn: Turn, run: Run, outcome: Outcome) -> RunStatus | None:
    """Store the end, and return the status that was stored; None where another worker goes on with the run.

    A database that is away, stalls or is full is waited for as long as it takes: a finished answer is not asked for
    twice. One that is there and does not take this end, however often it is tried, gets the end of a failure instead,
    and where it refuses that too, after the last attempt, the failure alone. The lease must be renewed meanwhile.
    """
    unstored = await turn.events.drain()
    while True:
        write = partial(_write_end, turn, run, outcome, unstored)
        try:
            with ErrorBoundary(log.error, "answer could not be stored", lets_through=(LeaseLost,), run_id=str(run.id)):
                return await wait_for_database(turn.dependencies, run.id, write)
        except LeaseLost:
            return await _stored_status(turn, run)
        if outcome.status is RunStatus.FAILED:
            return await _fail(turn, run, outcome)
        outcome = failed(ThroughlineError.code, UNSTORABLE)


async def _write_end(turn: Turn, run: Run, outcome: Outcome, unstored: Unstored) -> RunStatus:
    await _keep_message(turn, run, outcome)
    ended = await turn.dependencies.runs.finish(turn.lease, outcome, unstored.events, unstored.next_seq)
    return ended.status


async def _fail(turn: Turn, run: Run, outcome: Outcome) -> RunStatus | None:
    """What cannot even be stored as a failure is left for another attempt; the last one writes the run's row alone.

    Otherwise it would be taken up again after each lease, for ever. The message is then kept in that row only.
    """
    if run.attempt <= turn.dependencies.config.max_attempts:
        return None
    error = outcome.error or RunError(ThroughlineError.code, UNSTORABLE)
    try:
        await wait_for_database(turn.dependencies, run.id, lambda: turn.dependencies.runs.fail(turn.lease, error))
    except ThroughlineError as refusal:
        log.error("run could not be ended", run_id=str(run.id), error=refusal.code)
        return await _stored_status(turn, run)
    return RunStatus.FAILED


async def _stored_status(turn: Turn, run: Run) -> RunStatus | None:
    """Return how the run ended, if it has: by our own try whose answer was lost, or by another worker."""
    try:
        stored = await turn.dependencies.runs.get_run(run.owner_id, run.id)
    except (NotFound, DatabaseUnavailable):
        stored = None
    status = stored.status if stored is not None and stored.status.is_final else None
    log.info("run is no longer held", run_id=str(run.id), status=None if status is None else status.value)
    return status


async def _keep_message(turn: Turn, run: Run, outcome: Outcome) -> None:
    """Store the user's message where the turn ended before that: what was accepted is kept, whatever came of it.

    It is not counted here, for counting may be what ended the turn.
    Raises LeaseLost, DatabaseUnavailable.
    """
    if outcome.status is RunStatus.SUCCEEDED:
        return
    lets_through = (LeaseLost, DatabaseUnavailable)
    with ErrorBoundary(log.error, "message could not be stored", lets_through=lets_through, run_id=str(run.id)):
        await turn.dependencies.messages.append_message(
            turn.lease, USER_STEP, _as_kept(turn.dependencies, run, outcome)
        )


def _as_kept(dependencies: TurnDependencies, run: Run, outcome: Outcome) -> NewMessage:
    """Return the message as a later turn will count it, or, where counting may have ended this one, as if counted.

    A text that a counter cannot take would end every later turn of the session, too.
    """
    message = user_message(run)
    if outcome.error is None or outcome.error.type not in UNEXPLAINED:
        return message
    try:
        counter = dependencies.make_counter(dependencies.agents.get(run.agent).context.token_counter)
    except ThroughlineError:  # nobody can count for this agent, until somebody mends its definition
        return message
    estimate = count_message(message, dependencies.make_counter(ESTIMATING).count)
    return replace(message, token_count=estimate, counter=counter.name)
