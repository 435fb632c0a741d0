"""End of a turn: answer, usage, status and last events are stored in one transaction, retried until it succeeds."""

from dataclasses import replace
from functools import partial

import structlog

from throughline.context.measure import count_message
from throughline.domain.errors import DatabaseUnavailable, LeaseLost, NotFound, RunAbandoned, ThroughlineError
from throughline.domain.message import NewMessage
from throughline.domain.run import USER_STEP, Outcome, Run, RunError, RunStatus, user_message
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.event_writer import Unstored
from throughline.turn.state import Turn, TurnDependencies
from throughline.turn.store_step import wait_for_database

UNSTORABLE = "The answer could not be stored. Your message is kept; send it again."
UNEXPLAINED = frozenset({ThroughlineError.code, RunAbandoned.code})
"""Error codes of turns that ended by an unexpected error or whose processes crashed."""

ESTIMATING = "chars"
"""Name of the token counter that uses only a text's length, and rather overestimates."""

log = structlog.get_logger(__name__)


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
